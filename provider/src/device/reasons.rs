//! Explanations of errors of opening a device.

use roce_transport::reasons;

use super::error::OpenError;
use crate::bind::{BindError, XdpRefusal};

reasons! {
    OpenError {
        Self::NoSuchDevice(_) => ENODEV "no_such_device"
            "ROCE_DEVICES, `roce run -d` and Device::named take the names that `roce devinfo` \
             lists";
        Self::NoAddress(_) => EINVAL "no_address" "write an IPv4 or IPv6 address after udp:";
        Self::RawSpec { .. } => EINVAL "raw_device"
            "write raw:eth0, raw:eth0,ip=10.0.0.9/24 or xdp:eth0";
        Self::NoInterface { .. } => ENODEV "no_interface" "`ip link` lists the interfaces";
        Self::MtuTooSmall { .. } => EINVAL "mtu_too_small"
            "`ip link set DEV mtu 1500`, or another interface";
        Self::Shards { .. } => EINVAL "shards"
            "ROCE_SHARDS=1, OpenOptions::shards, or another device";
        Self::Capture { .. } => EIO "capture"
            "ROCE_PCAP or --pcap must name a file that can be written";
        Self::System(_) => EIO "system"
            "check the process's limits of descriptors, threads and memory: `ulimit -a`";
    }
    of {
        Self::Bind(error) => error;
    }
}

reasons! {
    BindError {
        Self::Taken(_) => EADDRINUSE "address_taken"
            "`ss -ulnp sport = :4791` shows who has the port; `lsmod` whether rdma_rxe is loaded";
        Self::OtherUser { .. } => EADDRINUSE "other_user"
            "run `roce share` as root to share the host's addresses among all users";
        Self::Full(_) => EADDRINUSE "address_full"
            "`roce devinfo --counters` lists the programs of each address";
        Self::Service { .. } => EADDRINUSE "service_silent"
            "`systemctl restart roce-share` restarts the service of the package";
        Self::NoDoor { .. } => EACCES "no_door"
            "`sudo roce share` receives for programs of all users";
        Self::Stopped { .. } => EADDRINUSE "holder_stopped"
            "`kill -CONT` resumes the stopped process";
        Self::NotLocal(_) => EADDRNOTAVAIL "not_local" "`ip address` lists this host's addresses";
        Self::LoopbackFull => EADDRINUSE "loopback_full"
            "`roce devinfo --counters` lists the programs of each address";
        Self::NoLoopbackLeft { .. } => EADDRINUSE "no_loopback_left"
            "`ip address show dev lo` lists loopback's addresses; `roce devinfo --counters` lists \
             their programs";
        Self::LoopbackDown => EADDRNOTAVAIL "loopback_down" "`ip address show dev lo`";
        Self::NoIpv6 { .. } => EAFNOSUPPORT "no_ipv6"
            "use an IPv4 address; ipv6.disable=1 and some sandboxes forbid IPv6 sockets";
        Self::NoNetRaw(_) => EPERM "no_net_raw"
            "`setcap cap_net_raw+ep FILE`; `getpcaps $$` lists the capabilities";
        Self::Duplicate { .. } => EADDRINUSE "duplicate_address"
            "`arping -D -I DEV ADDRESS` shows the host that has the address";
        Self::NoLease { .. } => EADDRNOTAVAIL "no_lease"
            "`tcpdump -i DEV -e udp port 67 or udp port 68` shows requests and responses";
        Self::Interface { .. } => EIO "interface"
            "`ip link show DEV`; a sandbox may forbid packet sockets";
        Self::Xdp { why: XdpRefusal::Capability(_) | XdpRefusal::UserNamespace, .. } => EPERM "xdp_right"
            "`getpcaps $$` lists the capabilities";
        Self::Xdp { why: XdpRefusal::QueueTaken(_) | XdpRefusal::Attached, .. } => EBUSY "xdp_taken"
            "`ip link show DEV` and `bpftool net` show the XDP programs";
        Self::Xdp { .. } => EOPNOTSUPP "xdp" "raw:DEV does the same without AF_XDP";
        Self::System { .. } => EIO "socket"
            "`ulimit -n` limits descriptors; a sandbox may forbid sockets";
    }
}
