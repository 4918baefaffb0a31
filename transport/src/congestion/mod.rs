//! Congestion control.
//!
//! Windows limit unacknowledged bytes per queue pair and per destination, by loss and CNPs. DCQCN
//! limits the rate of a queue pair, by CNPs. READ responses to lossy peers are paced.

mod config;
mod pace;
mod rate;
mod window;

pub use config::{CongestionConfig, Dcqcn, WindowConfig};
pub(crate) use pace::Pace;
pub(crate) use rate::Rate;
pub(crate) use window::{Near, Window};

use crate::addr::Mtu;

/// Receive-buffer bytes per datagram besides payload; Linux uses 300 to 4,000, by size and
/// interface.
pub(crate) const OVERHEAD: u64 = 768;

pub(crate) const LARGEST: u64 = Mtu::B4096.bytes() as u64 + OVERHEAD;
/// Packets of the largest run at the largest path MTU.
pub(crate) const LARGEST_RUN: u32 = 15;
