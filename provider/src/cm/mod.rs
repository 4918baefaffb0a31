//! Connection management as in librdmacm.
//!
//! Differences: handles clean up without destroy or acknowledge calls, addresses are
//! [`SocketAddr`](std::net::SocketAddr)s, and the adapter moves an id's queue pair on acceptance.
//!
//! ```
//! use roce_provider::cm::{CmQpAttr, ConnParam, EventChannel, EventKind, PortSpace};
//! use roce_provider::{Device, OpenOptions};
//! use std::time::Duration;
//!
//! # fn main() -> Result<(), Box<dyn std::error::Error>> {
//! let soon = Some(Duration::from_secs(10));
//! let channel = EventChannel::new()?;
//! let listener = channel.create_id(PortSpace::Tcp);
//! // default: all devices of the host
//! listener.set_context(&Device::named("roce_lo")?.open(OpenOptions::default())?)?;
//! listener.listen(8)?;
//!
//! let client = channel.create_id(PortSpace::Tcp);
//! client.resolve_addr(None, listener.listening_addrs()[0], Duration::from_secs(2))?;
//! assert_eq!(channel.wait(soon)?.kind(), EventKind::AddrResolved);
//! client.resolve_route(Duration::from_secs(2))?;
//! assert_eq!(channel.wait(soon)?.kind(), EventKind::RouteResolved);
//! client.create_qp(None, &CmQpAttr::default())?;
//! client.connect(&ConnParam { private_data: b"hello".to_vec(), ..ConnParam::default() })?;
//!
//! let request = channel.wait(soon)?;
//! assert_eq!(request.kind(), EventKind::ConnectRequest);
//! assert_eq!(&request.private_data()[..5], b"hello");
//! let server = request.id();
//! server.create_qp(None, &CmQpAttr::default())?;
//! server.accept(&ConnParam::default())?;
//! for _ in 0..2 {
//!     assert_eq!(channel.wait(soon)?.kind(), EventKind::Established);
//! }
//! # Ok(())
//! # }
//! ```

mod addrinfo;
mod channel;
mod connect;
mod create_qp;
mod devices;
mod endpoint;
mod error;
mod event;
mod id;
mod kind;
mod listen;
mod multicast;
mod next_event;
mod param;
mod ports;
mod post;
mod presence;
mod queues;
mod reasons;
mod resolve;
mod route;
mod set_option;
mod shared;
#[cfg(test)]
mod tests;

pub use addrinfo::{AddrInfo, AddrInfoHints, getaddrinfo};
pub use channel::EventChannel;
pub use devices::{DeviceSource, set_device_source};
pub use error::CmError;
pub use event::CmEvent;
pub use id::CmId;
pub use kind::{EventKind, IdState, Status};
pub use multicast::JoinFlags;
pub use param::{ConnParam, UDP_QKEY, UdParam};
pub use queues::CmQpAttr;
pub use roce_transport::cm::{PortSpace, RejectReason};
