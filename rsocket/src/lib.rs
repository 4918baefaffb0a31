//! rsockets, as in librdmacm: byte streams over RC connections, and datagrams.
//!
//! Each side exposes a receive buffer; the peer WRITEs data into it, with the length in immediate
//! data. `incoming` and `outgoing` are the pure protocol halves. `datagrams` has a queue pair
//! (`endpoint`) per local address, and a UDP socket for discovery.

mod datagrams;
mod deadline;
mod endpoint;
mod errors;
mod headers;
mod incoming;
mod outgoing;
mod peers;
mod queues;
mod resolve;
mod settings;
mod socket;
mod stream;
#[cfg(test)]
mod tests;
mod transfer;
mod udp;
mod waiters;
mod wire;

pub use deadline::Deadline;
pub use settings::{Settings, polling_time};
pub use socket::{Readiness, Socket};
pub use stream::{Sink, Source};
pub use waiters::wakeup_descriptor;
