//! How much may be under way, and how fast: windows in bytes, and DCQCN.
//!
//! A window limits what waits for an acknowledgement, per queue pair and per destination; it reacts
//! to loss and to notifications. A rate limits how fast the data of a queue pair leaves; it reacts
//! to notifications of the peer. Answers to READs that a peer loses have a pace.
//! [`CongestionConfig`] has the parameters of both.

mod config;
mod pace;
mod rate;
mod window;

pub use config::{CongestionConfig, Dcqcn, WindowConfig};
pub(crate) use pace::Pace;
pub(crate) use rate::Rate;
pub(crate) use window::{Near, Window};

use crate::addr::Mtu;

/// Bytes of a receive buffer that a datagram takes besides its payload: headers, and what the
/// system keeps for each. Linux takes from 300 to 4,000, depending on sizes and interface.
pub(crate) const OVERHEAD: u64 = 768;

/// Cost of the largest packet.
pub(crate) const LARGEST: u64 = Mtu::B4096.bytes() as u64 + OVERHEAD;
