use std::{fs, io, net::IpAddr};

use pnet_datalink::MacAddr;
use thiserror::Error;

use roce_ethernet::LeaseError;

/// Unusable address.
#[derive(Debug, Error)]
#[non_exhaustive]
#[allow(missing_docs, reason = "an error's comment describes its fields")]
pub enum BindError {
    /// Another program has the port.
    #[error(
        "port 4791 on {0} is taken: rdma_rxe is loaded, or a roce device, of this program or \
         another, has this address and does not share it; unload it (rmmod rdma_rxe), close the \
         other, or choose another address (udp:ADDRESS) or device, such as roce_lo"
    )]
    Taken(IpAddr),
    /// Another user has the port: ID of the process, if visible, and of the user.
    #[error("{}", other_user(*address, *process, *user))]
    OtherUser { address: IpAddr, process: Option<u32>, user: u32 },
    /// Too many programs share the address.
    #[error(
        "too many programs share {0}: one user may have 62, `roce share` allows 20 for each user; \
         close some, or choose another address (udp:ADDRESS) or device, such as roce_lo"
    )]
    Full(IpAddr),
    /// `roce share` does not respond.
    #[error(
        "`roce share` has port 4791 on {address} and does not respond ({source}); restart it, or \
         choose another address (udp:ADDRESS) or device, such as roce_lo"
    )]
    Service { address: IpAddr, source: io::Error },
    /// Other users cannot be admitted.
    #[error(
        "cannot make the file in /run/roce-share by which programs find {address} ({source}); run \
         this as root"
    )]
    NoDoor { address: IpAddr, source: io::Error },
    /// A stopped process has the port: the process ID.
    #[error(
        "process {process} has port 4791 on {address} and is stopped; resume it (kill -CONT \
         {process}) or end it, or choose another address (udp:ADDRESS) or device, such as roce_lo"
    )]
    Stopped { address: IpAddr, process: u32 },
    /// The address is not local.
    #[error("{0} is not an address of this host; `roce devinfo` lists the usable addresses")]
    NotLocal(IpAddr),
    /// Every address of 127.0.0.0/24 is in use.
    #[error(
        "port 4791 is taken on every address from 127.0.0.1 to 127.0.0.254; close some of the \
         programs that use them"
    )]
    LoopbackFull,
    /// The host's addresses of 127.0.0.0/24, up to `taken`, are in use; some sandboxes lack
    /// others, from `missing` on.
    #[error(
        "port 4791 on {taken} is taken, by rdma_rxe or another roce device, and {missing} is not \
         an address of this host; close the other, or add one (ip address add {missing}/8 dev lo)"
    )]
    NoLoopbackLeft { taken: IpAddr, missing: IpAddr },
    /// The loopback interface has no address.
    #[error(
        "127.0.0.1 is not an address of this host: the interface lo is down; `ip link set lo up` \
         starts it"
    )]
    LoopbackDown,
    /// The system refuses IPv6 sockets.
    #[error(
        "cannot use {address}: the system refuses IPv6 sockets ({source}); enable IPv6, or use an \
         IPv4 address"
    )]
    NoIpv6 { address: IpAddr, source: io::Error },
    /// A raw device lacks CAP_NET_RAW.
    #[error(
        "a raw device on {0} needs the capability CAP_NET_RAW; give it to the program (setcap \
         cap_net_raw+ep FILE), or run it as root"
    )]
    NoNetRaw(String),
    /// Another host has the address: its MAC address.
    #[error(
        "{address} is in use: the host with the MAC address {mac} has it; choose another address"
    )]
    Duplicate { address: IpAddr, mac: MacAddr },
    /// No server leased an address in the seconds tried: reason.
    #[error(
        "no DHCP lease on {interface} within {seconds} s: {error}; set ip=ADDRESS/LENGTH instead \
         of ip=dhcp"
    )]
    NoLease { interface: String, seconds: u64, error: LeaseError },
    /// The interface refuses packet sockets.
    #[error("cannot open a packet socket on {interface}: {source}")]
    Interface { interface: String, source: io::Error },
    /// The interface refuses AF_XDP.
    #[error("xdp:{interface} {why}")]
    Xdp { interface: String, why: XdpRefusal },
    /// Other system error.
    #[error("cannot open UDP port 4791 on {address}: {source}")]
    System { address: IpAddr, source: io::Error },
}

impl BindError {
    pub(crate) fn of_socket(address: IpAddr, source: io::Error) -> Self {
        match source.kind() {
            io::ErrorKind::AddrInUse => Self::Taken(address),
            io::ErrorKind::AddrNotAvailable => Self::NotLocal(address),
            _ => Self::System { address, source },
        }
    }
}

fn other_user(address: IpAddr, process: Option<u32>, user: u32) -> String {
    let process =
        process.map_or_else(|| "a process".to_owned(), |number| format!("process {number}"));
    format!(
        "{process} of the user {user} has port 4791 on {address}; `sudo roce share` gives it to programs \
         of all users once that program has ended; or choose another address (udp:ADDRESS) or device, \
         such as roce_lo"
    )
}

/// Refusal of AF_XDP.
#[derive(Debug, Error)]
#[non_exhaustive]
#[allow(missing_docs, reason = "a refusal's comment describes its fields")]
pub enum XdpRefusal {
    /// The kernel lacks AF_XDP.
    #[error("needs AF_XDP, which this kernel lacks (CONFIG_XDP_SOCKETS); use raw: instead")]
    NoKernel,
    /// Missing capability.
    #[error(
        "needs the capability {0}, which the process lacks; give the program all three (setcap \
         cap_net_raw,cap_net_admin,cap_bpf+ep FILE), or run it as root"
    )]
    Capability(&'static str),
    /// Capabilities of a user namespace only.
    #[error(
        "needs CAP_NET_ADMIN and CAP_BPF of the host, not of a user namespace (a container), to \
         load a BPF program; use raw: instead"
    )]
    UserNamespace,
    /// Queue in use.
    #[error(
        "cannot use queue {0}: another program has an AF_XDP socket on it; end that program, or \
         choose another queue (queue=NUMBER)"
    )]
    QueueTaken(u32),
    /// No such queue; the interface has `count`.
    #[error("has no queue {queue}: it has {count}, starting at queue=0")]
    NoQueue { queue: u32, count: u32 },
    /// Existing XDP program.
    #[error(
        "already has an XDP program, perhaps of another roce device; remove it (`ip link set DEV \
         xdp off`), or use raw:"
    )]
    Attached,
    /// The driver lacks XDP.
    #[error("has a driver without XDP; use mode=generic")]
    NoDriver,
    /// The interface lacks zero-copy.
    #[error("does not support mode=zero-copy on this queue; omit mode=")]
    NoZeroCopy,
    /// Frames are longer than a page.
    #[error(
        "has too large an MTU for AF_XDP before Linux 6.6; lower it: `ip link set DEV mtu 3300`"
    )]
    LongFrames,
    /// Too little locked memory.
    #[error("needs more locked memory than the user's processes may have; set `ulimit -l 8192`")]
    LockedMemory,
    /// Other system error; the refused operation is `what`.
    #[error("cannot be used with AF_XDP: {what}: {source}")]
    System { what: &'static str, source: io::Error },
}

/// True if stopped by a signal or a tracer.
pub(crate) fn is_stopped(process: u32) -> bool {
    let stat = fs::read_to_string(format!("/proc/{process}/stat")).unwrap_or_default();
    // the name may contain anything
    let state = stat.rsplit_once(") ").and_then(|(_, fields)| fields.chars().next());
    matches!(state, Some('T' | 't'))
}

#[cfg(test)]
mod tests {
    use std::process::{Command, id};

    use rustix::process::{Pid, Signal, WaitOptions, kill_process, waitpid};

    use super::is_stopped;

    #[test]
    fn who_is_stopped() {
        let mut child = Command::new("sleep").arg("60").spawn().unwrap();
        let pid = Pid::from_child(&child);
        assert!(!is_stopped(child.id()) && !is_stopped(id()));
        kill_process(pid, Signal::STOP).unwrap();
        waitpid(Some(pid), WaitOptions::UNTRACED).unwrap();
        assert!(is_stopped(child.id()));
        child.kill().unwrap();
        child.wait().unwrap();
        assert!(!is_stopped(child.id()));
    }
}
