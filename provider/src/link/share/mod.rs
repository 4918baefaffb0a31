//! Addresses that programs of several users share.
//!
//! A [service] (`roce share`) has the UDP sockets. Each client, a program of any user, has a
//! partition of an address's numbers, and receives the packets for it and for its services. Clients
//! send by UDP ports of their own. A client trusts the service. The service trusts no client:
//!
//! - It receives no descriptor, since closing one can wait. A client knocks at the [door] of an
//!   address, a FIFO. The service connects to the Unix socket that the knock names, by a socket
//!   that cannot receive. It [greets](message::Greeting) with a partition and the ends of two
//!   pipes, for [requests](message::Request) and responses. Datagrams go by the socket, each run
//!   behind a [header](super::arrival).
//! - It waits for no client. A packet without room in a client's socket is lost, as on a wire.
//! - It keeps an entry in the [table] for each client, and records of its connections, both
//!   bounded.
//! - It chooses partitions. They rest before another user gets them.
//!
//! A client that loses the service knocks until the next one is there, and gets the same partition.

mod client;
mod door;
mod message;
mod service;
mod table;

pub(in crate::link) use client::{Client, Clients};
pub(crate) use door::DIRECTORY;
pub use service::Service;
pub(in crate::link) use table::OWN;

#[cfg(test)]
mod tests;
