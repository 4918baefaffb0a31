//! rsockets: byte streams over RC connections, and datagrams, as librdmacm has them, for its C
//! interface.
//!
//! Both sides expose a receive buffer, and data goes there by WRITEs with immediate data, which say
//! how much came. `incoming` and `outgoing` are the two halves of the protocol, functions of what
//! is sent and of what arrives; `wire` is what stands in messages and tables. `stream` puts both on
//! a queue pair, `socket` adds addresses and states. `datagrams` has a queue pair (`endpoint`) for
//! each own address, and a UDP socket by which peers find each other; `headers` is what stands in
//! front of data.

mod datagrams;
mod deadline;
mod endpoint;
mod errors;
mod headers;
mod incoming;
mod maps;
mod outgoing;
mod peers;
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
