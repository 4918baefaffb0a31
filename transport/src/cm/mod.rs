//! Connection management by QP1.
//!
//! Read first: InfiniBand volume 1, chapter 12, above all 12.9.7; annex A11. [`EDGES`] has the
//! transitions.

mod active;
mod arrival;
mod command;
mod common;
mod config;
mod connection;
mod connections;
mod credit;
mod deadlines;
mod error;
mod event;
mod listeners;
mod message;
mod passive;
mod qp_setup;
mod record;
mod release;
mod resend;
mod service;
mod sidr;
mod stale;
mod state;

pub(crate) use arrival::{Arrival, CmPath};
pub use command::{Accept, CmService, ConnEnd, ConnId, Connect, Listen, ListenerId};
pub(crate) use common::OutgoingMad;
pub use common::RequestFaults;
pub use config::CmConfig;
pub use connections::Connections;
pub(crate) use connections::ReplyOutcome;
pub use error::{ConnAttribute, ConnError};
pub use event::ConnEvent;
pub use message::{
    About, Apr, CmMad, CmParseError, Drep, Dreq, Lap, Message, Mra, PrivateData, Rej, RejectReason,
    Rep, Req, ReqPath, Rtu, SidrRep, SidrReq, Unused, without_padding,
};
pub use qp_setup::QpSetup;
pub use record::ConnRecord;
pub use resend::MadReason;
pub use service::{IpHeader, PortSpace, ServiceId};
pub use state::{CmState, EDGES, Edge, Trigger};
