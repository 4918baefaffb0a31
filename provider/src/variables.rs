//! Variables of the environment.

use std::{env, path::PathBuf};

/// The variable that names the devices.
pub const DEVICES: &str = "ROCE_DEVICES";
/// The variable that names a file for captures.
pub const PCAP: &str = "ROCE_PCAP";
/// The variable with the faults.
pub const FAULT: &str = "ROCE_FAULT";
/// The variable with the seed of the faults.
pub const FAULT_SEED: &str = "ROCE_FAULT_SEED";
/// The variable that has every packet take the network stack.
pub const SOCKETS_ONLY: &str = "ROCE_SOCKETS_ONLY";
/// The variable with the level of the log.
pub const LOG: &str = "ROCE_LOG";
/// The variable with the size of the sockets' receive buffers, in bytes.
pub const RECEIVE_BUFFER: &str = "ROCE_RECEIVE_BUFFER";

/// The file that `ROCE_PCAP` names.
pub(crate) fn pcap() -> Option<PathBuf> {
    env::var_os(PCAP).filter(|value| !value.is_empty()).map(PathBuf::from)
}

/// True if every packet is to take the network stack.
pub(crate) fn sockets_only() -> bool {
    env::var_os(SOCKETS_ONLY).is_some_and(|value| !value.is_empty() && value != "0")
}

/// Size of the sockets' receive buffers that is asked of the kernel; it grants what
/// `net.core.rmem_max` allows.
pub(crate) fn receive_buffer() -> Option<usize> {
    env::var(RECEIVE_BUFFER).ok()?.parse().ok()
}
