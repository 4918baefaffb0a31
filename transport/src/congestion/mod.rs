//! Congestion control: windows in bytes, and DCQCN.
//!
//! Windows limit unacknowledged data per queue pair and destination; they react to loss and CNPs.
//! Rates limit a queue pair's data; they react to CNPs. READ responses to a lossy peer are paced.
//! [`CongestionConfig`] has the parameters of windows and rates.

mod config;
mod pace;
mod rate;
mod window;

pub use config::{CongestionConfig, Dcqcn, WindowConfig};
pub(crate) use pace::Pace;
pub(crate) use rate::Rate;
pub(crate) use window::{Near, Window};

use crate::addr::Mtu;

/// Receive-buffer bytes of a datagram besides payload: headers and bookkeeping. Linux uses 300 to
/// 4,000, by size and interface.
pub(crate) const OVERHEAD: u64 = 768;

/// Cost of the largest packet, in bytes.
pub(crate) const LARGEST: u64 = Mtu::B4096.bytes() as u64 + OVERHEAD;
