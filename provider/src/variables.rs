//! Variables of the environment. All that this software reads is read here.

#![allow(unsafe_code, reason = "getauxval has no safe interface")]

use std::{
    env,
    ffi::{OsStr, OsString},
};

use roce_transport::congestion::CongestionConfig;

/// The variable that names the devices.
pub const DEVICES: &str = "ROCE_DEVICES";
/// The variable that names the adapter that devices show themselves as.
pub const AS: &str = "ROCE_AS";
/// The variable that names a file for captures.
pub const PCAP: &str = "ROCE_PCAP";
/// The variable with the faults.
pub const FAULT: &str = "ROCE_FAULT";
/// The variable that has a program take rules while it runs.
pub const CONTROL: &str = "ROCE_CONTROL";
/// The variable with a directory where calls are counted.
pub const CALLS: &str = "ROCE_CALLS";
/// The variable with the seed of the faults.
pub const FAULT_SEED: &str = "ROCE_FAULT_SEED";
/// The variable that has every packet take the network stack.
pub const SOCKETS_ONLY: &str = "ROCE_SOCKETS_ONLY";
/// The variable with the level of the log.
pub const LOG: &str = "ROCE_LOG";
/// The variable with the size of the sockets' receive buffers, in bytes.
pub const RECEIVE_BUFFER: &str = "ROCE_RECEIVE_BUFFER";

/// The variable with the number of source ports of each address.
pub const SOURCE_PORTS: &str = "ROCE_SOURCE_PORTS";
/// The variable with the most datagrams that are handed to the kernel as one run.
pub const SEGMENTS: &str = "ROCE_SEGMENTS";

/// The variable with the most packets of a WRITE that leave as a WRITE each.
pub const WRITE_ONLY_PACKETS: &str = "ROCE_WRITE_ONLY_PACKETS";

/// The variable with the number of shards.
pub const SHARDS: &str = "ROCE_SHARDS";

/// The variable that has the L_Key and the R_Key of a region differ in programs of the C libraries.
pub const DISTINCT_KEYS: &str = "ROCE_DISTINCT_KEYS";
/// The variable with the name of the reaper's socket.
pub const REAPER: &str = "ROCE_REAPER";

/// The variable with the directory that stands for `/sys/class`.
pub const SYSFS: &str = "ROCE_SYSFS";

/// The variable that has failures explained on stderr.
pub const EXPLAIN: &str = "ROCE_EXPLAIN";
/// The variable that has programs of the C libraries checked for what works by luck.
pub const CHECK: &str = "ROCE_CHECK";
/// The variable that names a file with findings that are not told.
pub const CHECK_SUPPRESSIONS: &str = "ROCE_CHECK_SUPPRESSIONS";

/// The variable that turns ECN off.
pub const ECN: &str = "ROCE_ECN";
/// The variable that turns DCQCN off.
pub const DCQCN: &str = "ROCE_DCQCN";

/// The value of a variable; `None` if it is not set or empty, and always in a program that has more
/// rights than the user who started it (setuid, setgid, file capabilities: `AT_SECURE`). Who starts
/// such a program says what stands in its environment, but must not say which files it writes.
pub fn value(name: impl AsRef<OsStr>) -> Option<OsString> {
    obeyed(env::var_os(name), is_privileged())
}

/// A seed as text; nothing is 0.
#[must_use]
pub fn parse_seed(text: &str) -> Option<u64> {
    match text.strip_prefix("0x") {
        _ if text.is_empty() => Some(0),
        Some(hex) => u64::from_str_radix(hex, 16).ok(),
        None => text.parse().ok(),
    }
}

fn is_privileged() -> bool {
    // SAFETY: It takes a number, and reads what the kernel gave the process at its start.
    unsafe { libc::getauxval(libc::AT_SECURE) != 0 }
}

fn obeyed(value: Option<OsString>, privileged: bool) -> Option<OsString> {
    value.filter(|value| !privileged && !value.is_empty())
}

/// Congestion control, less what is turned off.
pub(crate) fn congestion() -> CongestionConfig {
    congestion_without(|variable| value(variable).is_some_and(|value| value == "0"))
}

fn congestion_without(off: impl Fn(&str) -> bool) -> CongestionConfig {
    let default = CongestionConfig::default();
    CongestionConfig {
        ecn: default.ecn && !off(ECN),
        dcqcn: default.dcqcn.filter(|_| !off(DCQCN)),
        ..default
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parts_of_congestion_control_can_be_turned_off() {
        let default = CongestionConfig::default();
        assert_eq!(congestion_without(|_| false), default);
        let no_ecn = congestion_without(|variable| variable == ECN);
        assert_eq!(no_ecn, CongestionConfig { ecn: false, ..default });
        let no_dcqcn = congestion_without(|variable| variable == DCQCN);
        assert_eq!(no_dcqcn, CongestionConfig { dcqcn: None, ..default });
    }

    #[test]
    fn a_privileged_program_obeys_no_variable() {
        let set = |value: &str| Some(OsString::from(value));
        assert_eq!(obeyed(set("x"), false), set("x"));
        assert_eq!(obeyed(set("x"), true), None);
        assert_eq!(obeyed(set(""), false), None);
        assert_eq!(obeyed(None, false), None);
    }
}
