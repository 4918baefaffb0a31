//! Connection management: librdmacm, on top of [`roce_provider::cm`].
//!
//! The provider moves an id's queue pair when the peer accepts, and finds devices by address. This
//! module has the rest of what programs see. As in librdmacm, an id's members are filled in when
//! the program takes the event. Ids of one device share contexts and protection domains. Calls on
//! ids without a channel wait.

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
mod route;
mod transition;
mod user_events;

pub(crate) use device_addr::prepare;
