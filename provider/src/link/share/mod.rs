//! Addresses that programs of several users share.
//!
//! A [service] (`roce share`) has the UDP sockets. Each client, a program of any user, has a
//! partition of an address's numbers, and receives packets for its partition and services. Clients
//! send from their own UDP ports. A client trusts the service. The service trusts no client:
//!
//! - The service receives no descriptor, since closing a descriptor can block. A client writes a
//!   request to join into an address's [FIFO](admission). The service connects to the Unix socket
//!   that the request names, by a socket that cannot receive. The [greeting](message::Greeting) has
//!   a partition and two pipes, for [requests](message::Request) and responses. Datagrams take the
//!   socket, each run behind a [header](super::arrival).
//! - The service waits for no client. A packet without room in a client's socket is lost.
//! - The service bounds its [table] of clients and the records of their connections.
//! - The service chooses partitions. A partition rests before another user gets it.
//!
//! A client that loses the service asks again until the next service responds. The partition stays.

mod admission;
mod client;
mod message;
mod service;
mod table;

pub(crate) use admission::DIRECTORY;
pub(in crate::link) use client::{Client, Clients};
pub use service::Service;
pub(in crate::link) use table::OWN;

#[cfg(test)]
mod tests;
