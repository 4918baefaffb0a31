//! Addresses that programs of several users share.
//!
//! A [service] (`roce share`) has the UDP sockets. Its clients are programs of any user. Each has a
//! partition of an address's numbers, and gets the packets for it and for the services that it
//! listens for. Clients send by UDP ports of their own, which needs no permission.
//!
//! A client trusts the service, which receives for it. The service trusts no client:
//!
//! - It accepts no descriptor. A descriptor that is closed can make the process that closes it
//!   wait. So a client knocks at the [door] of an address, a FIFO. The service connects to the Unix
//!   socket that the knock names, by a socket that cannot receive. It sends the client the ends of
//!   two pipes, for [requests](message::Request) and for answers. Received datagrams go by the
//!   socket, each run behind a [header](super::arrival).
//! - It waits for no client. A packet without room in a client's socket is lost, as on a wire.
//! - It keeps nothing of a client's but an entry in the [table], and records of its connections,
//!   both bounded. What is under way to a client lies in the socket's buffer, which the system
//!   bounds.
//! - It chooses what can be chosen: partitions. They rest before another user gets them.
//!
//! A client that loses the service knocks again until the next one is there, and gets the same
//! partition.

mod client;
mod clients;
mod door;
mod message;
mod service;
mod table;

pub(in crate::link) use client::{Client, ask};
pub(in crate::link) use clients::Clients;
pub(crate) use door::DIRECTORY;
pub use service::ShareLink;

#[cfg(test)]
mod tests;
