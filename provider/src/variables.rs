//! Environment variables, all read here.

#![allow(unsafe_code, reason = "getauxval has no safe interface")]

use std::{
    env,
    ffi::{OsStr, OsString},
};

/// Environment variable and its option of `roce run`.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Variable {
    /// Name.
    pub name: &'static str,
    /// Option; empty if none.
    pub option: &'static str,
    /// Meaning if unset.
    pub default: &'static str,
    /// Meaning of the values.
    pub help: &'static str,
}

macro_rules! variables {
    ($($(#[doc = $help:literal])+ $constant:ident = $name:literal, $option:literal, $default:literal;)*) => {
        $($(#[doc = $help])+ pub const $constant: &str = $name;)*

        /// All variables.
        pub const VARIABLES: &[Variable] = &[$(Variable {
            name: $name,
            option: $option,
            default: $default,
            help: concat!($($help),+),
        },)*];
    };
}

variables! {
    /// The devices that there are, with commas or spaces between them: names that `roce devinfo`
    /// lists, names of network interfaces, `udp:ADDRESS`, `raw:INTERFACE,…`.
    DEVICES = "ROCE_DEVICES", "--device", "all";
    /// The adapter that devices show themselves as: the name of a profile, or the path of its file.
    AS = "ROCE_AS", "--as", "none";
    /// A file for what is sent and received (`OpenOptions::pcap`).
    PCAP = "ROCE_PCAP", "--pcap", "none";
    /// The faults (`FaultRules`); those for calls are for the C libraries.
    FAULT = "ROCE_FAULT", "--fault", "none";
    /// The seed of the faults: a number up to 2^64 - 1, decimal or hexadecimal after `0x`.
    FAULT_SEED = "ROCE_FAULT_SEED", "--seed", "0";
    /// Socket for rules while a program of the C libraries runs. 1: `control-PID` in the user's
    /// runtime directory, for `roce fault --pid PID`; or a path, where `%p` is the process; 0:
    /// none.
    CONTROL = "ROCE_CONTROL", "--control", "0";
    /// In the C libraries, a directory where each process counts its calls, in a file of its
    /// number.
    CALLS = "ROCE_CALLS", "--fail-each", "none";
    /// 1: failures of calls and of queue pairs are explained on stderr (`OpenOptions::explain`);
    /// `json`: as JSON, an object a line; 0: they are not.
    EXPLAIN = "ROCE_EXPLAIN", "--explain", "0";
    /// Reports on stderr what works by luck in programs of the C libraries. Findings turn status 0
    /// into 99. Words of `Checks` with commas, such as `1`, `json`, `json,reorder,seed=7`; 0: no
    /// checks.
    CHECK = "ROCE_CHECK", "--check", "0";
    /// A file of findings to suppress: on each line a name, and perhaps a pattern for a line of
    /// the stack, with `*` for anything.
    CHECK_SUPPRESSIONS = "ROCE_CHECK_SUPPRESSIONS", "--suppressions", "none";
    /// The size in bytes of each socket's receive buffer; the kernel grants at most
    /// `net.core.rmem_max`. With 212992, a machine with a large limit behaves as one with the usual
    /// limit.
    RECEIVE_BUFFER = "ROCE_RECEIVE_BUFFER", "--receive-buffer", "4 MiB";
    /// The process that tells the peers of connections when this one ends (`Reaper`).
    REAPER = "ROCE_REAPER", "--reaper", "none";
    /// The directory that stands for `/sys/class`, with files of counters of devices, which are
    /// kept up to date.
    SYSFS = "ROCE_SYSFS", "--sysfs", "none";
    /// Unless it is 0: every packet takes the network stack (`OpenOptions::sockets_only`).
    SOCKETS_ONLY = "ROCE_SOCKETS_ONLY", "", "0";
    /// The number of UDP source ports of each address, up to 64 (`OpenOptions::source_ports`); on
    /// loopback none by default.
    SOURCE_PORTS = "ROCE_SOURCE_PORTS", "", "16";
    /// The most datagrams in a run that is handed to the kernel (`OpenOptions::segments`); 1: each
    /// by itself.
    SEGMENTS = "ROCE_SEGMENTS", "", "the link's";
    /// The most packets of a WRITE that leave as a WRITE each (`OpenOptions::write_only_packets`).
    WRITE_ONLY_PACKETS = "ROCE_WRITE_ONLY_PACKETS", "", "0";
    /// The number of shards of each device, 1 to 16 (`OpenOptions::shards`).
    SHARDS = "ROCE_SHARDS", "", "1";
    /// Unless it is 0: in the C libraries too, the L_Key and the R_Key of a region differ
    /// (`OpenOptions::equal_keys`).
    DISTINCT_KEYS = "ROCE_DISTINCT_KEYS", "", "0";
    /// 0: memory of GPUs cannot be registered, and the libraries say so.
    GPU = "ROCE_GPU", "", "1";
    /// 0: reliable connections do not mark what they send as ECN-capable.
    ECN = "ROCE_ECN", "", "1";
    /// 0: notifications of the peer do not limit the rate.
    DCQCN = "ROCE_DCQCN", "", "1";
    /// The least level of what is logged to stderr: `error`, `warn`, `info`, `debug` or `trace`.
    LOG = "ROCE_LOG", "", "nothing";
}

/// Value of a variable; `None` if unset or empty, or in a privileged program (`AT_SECURE`).
///
/// A setuid, setgid or file-capability program's caller must not choose the files that the program
/// writes.
pub fn value(name: impl AsRef<OsStr>) -> Option<OsString> {
    obeyed(env::var_os(name), is_privileged())
}

/// Parses a seed; an empty text is 0.
#[must_use]
pub fn parse_seed(text: &str) -> Option<u64> {
    match text.strip_prefix("0x") {
        _ if text.is_empty() => Some(0),
        Some(hex) => u64::from_str_radix(hex, 16).ok(),
        None => text.parse().ok(),
    }
}

fn is_privileged() -> bool {
    // SAFETY: reads the kernel's auxiliary vector.
    unsafe { libc::getauxval(libc::AT_SECURE) != 0 }
}

fn obeyed(value: Option<OsString>, privileged: bool) -> Option<OsString> {
    value.filter(|value| !privileged && !value.is_empty())
}

/// True if set to anything but 0.
#[must_use]
pub fn is_on(variable: &str) -> bool {
    value(variable).is_some_and(|value| value != "0")
}

/// True if set to 0.
#[must_use]
pub fn is_off(variable: &str) -> bool {
    value(variable).is_some_and(|value| value == "0")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_privileged_program_obeys_no_variable() {
        let set = |value: &str| Some(OsString::from(value));
        assert_eq!(obeyed(set("x"), false), set("x"));
        assert_eq!(obeyed(set("x"), true), None);
        assert_eq!(obeyed(set(""), false), None);
        assert_eq!(obeyed(None, false), None);
    }
}
