//! Connection management: librdmacm, on top of [`roce_provider::cm`].
//!
//! The provider moves an id's queue pair when the peer accepts, and finds devices by address. The
//! rest of what programs see is here: the members of an id, which are filled in when the event that
//! announces them is taken, as by librdmacm; contexts and protection domains that ids of one device
//! share; calls that wait, of ids without a channel.

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
