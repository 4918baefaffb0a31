//! librdmacm on top of [`roce_provider::cm`].
//!
//! Taking an event fills in the id. A device's ids share context and protection domain.

pub(crate) mod address;
mod addrinfo;
mod channel;
mod connect;
mod device_addr;
mod endpoint;
mod event;
pub(crate) mod exit;
mod get_event;
mod id;
mod lifecycle;
mod multicast;
mod options;
mod queues;
mod refusal;
mod registry;
mod resolve;
mod transition;
mod user_events;

pub(crate) use device_addr::prepare;
