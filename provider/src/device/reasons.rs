//! Explanations of errors of opening a device.

use roce_transport::reasons;

use super::error::OpenError;
use crate::bind::{BindError, XdpRefusal};

reasons! {
    OpenError {
        Self::NoSuchDevice(_) => ENODEV "no_such_device"
            "ROCE_DEVICES, `roce run -d` and Device::named take what `roce devinfo` lists";
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
            "limits of descriptors, threads and memory of this process: `ulimit -a`";
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
            "`roce share` run by root has all users share the addresses of the host";
        Self::Full(_) => EADDRINUSE "address_full"
            "`roce devinfo --counters` lists the programs that have an address";
        Self::Service { .. } => EADDRINUSE "service_silent"
            "`systemctl restart roce-share` restarts the service of the package";
        Self::NoDoor { .. } => EACCES "no_door"
            "`sudo roce share` receives for programs of all users";
        Self::Stopped { .. } => EADDRINUSE "holder_stopped"
            "`kill -CONT` has the stopped process go on";
        Self::NotLocal(_) => EADDRNOTAVAIL "not_local" "`ip address` lists this host's";
        Self::LoopbackFull => EADDRINUSE "loopback_full"
            "`roce devinfo --counters` lists who has an address";
        Self::NoLoopbackLeft { .. } => EADDRINUSE "no_loopback_left"
            "`ip address show dev lo` lists loopback's addresses; `roce devinfo --counters` who \
             has one";
        Self::LoopbackDown => EADDRNOTAVAIL "loopback_down" "`ip address show dev lo`";
        Self::NoIpv6 { .. } => EAFNOSUPPORT "no_ipv6"
            "an IPv4 address; a sandbox may forbid sockets for IPv6, and ipv6.disable=1 does";
        Self::NoNetRaw(_) => EPERM "no_net_raw"
            "`setcap cap_net_raw+ep FILE`; `getpcaps $$` shows what there is";
        Self::Duplicate { .. } => EADDRINUSE "duplicate_address"
            "`arping -D -I DEV ADDRESS` shows who has the address";
        Self::NoLease { .. } => EADDRNOTAVAIL "no_lease"
            "`tcpdump -i DEV -e udp port 67 or udp port 68` shows what is asked, and who answers";
        Self::Interface { .. } => EIO "interface"
            "`ip link show DEV`; a sandbox may forbid packet sockets";
        Self::Xdp { why: XdpRefusal::Capability(_) | XdpRefusal::UserNamespace, .. } => EPERM "xdp_right"
            "`getpcaps $$` shows what there is";
        Self::Xdp { why: XdpRefusal::QueueTaken(_) | XdpRefusal::Attached, .. } => EBUSY "xdp_taken"
            "`ip link show DEV` and `bpftool net` show who is there";
        Self::Xdp { .. } => EOPNOTSUPP "xdp" "raw:DEV does the same without AF_XDP";
        Self::System { .. } => EIO "socket"
            "`ulimit -n` limits descriptors; a sandbox may forbid sockets";
    }
}
