//! Explanations of errors of opening a device.

use roce_transport::explain::{Explain, Reason};

use super::error::OpenError;
use crate::bind::{BindError, XdpRefusal};

impl Explain for OpenError {
    fn explain(&self) -> Reason {
        let (cause, errno, advice) = match self {
            Self::NoSuchDevice(_) => (
                "no_such_device",
                "ENODEV",
                "ROCE_DEVICES, `roce run -d` and Device::named take what `roce devinfo` lists",
            ),
            Self::NoAddress(_) => {
                ("no_address", "EINVAL", "write an IPv4 or IPv6 address after udp:")
            }
            Self::RawSpec { .. } => {
                ("raw_device", "EINVAL", "write raw:eth0, raw:eth0,ip=10.0.0.9/24 or xdp:eth0")
            }
            Self::NoInterface { .. } => {
                ("no_interface", "ENODEV", "`ip link` lists the interfaces")
            }
            Self::Bind(error) => return error.explain(),
            Self::MtuTooSmall { .. } => {
                ("mtu_too_small", "EINVAL", "`ip link set DEV mtu 1500`, or another interface")
            }
            Self::Shards { .. } => {
                ("shards", "EINVAL", "ROCE_SHARDS=1, OpenOptions::shards, or another device")
            }
            Self::Capture { .. } => {
                ("capture", "EIO", "ROCE_PCAP or --pcap must name a file that can be written")
            }
            Self::System(_) => (
                "system",
                "EIO",
                "limits of descriptors, threads and memory of this process: `ulimit -a`",
            ),
        };
        Reason::new(cause, self, advice).with_errno(errno)
    }
}

impl Explain for BindError {
    fn explain(&self) -> Reason {
        let (cause, errno, advice) = match self {
            Self::Taken(_) => (
                "address_taken",
                "EADDRINUSE",
                "`ss -ulnp sport = :4791` shows who has the port; `lsmod` whether rdma_rxe is loaded",
            ),
            Self::OtherUser { .. } => (
                "other_user",
                "EADDRINUSE",
                "`roce share` run by root has all users share the addresses of the host",
            ),
            Self::Full(_) => (
                "address_full",
                "EADDRINUSE",
                "`roce devinfo --counters` lists the programs that have an address",
            ),
            Self::Service { .. } => (
                "service_silent",
                "EADDRINUSE",
                "`systemctl restart roce-share` restarts the service of the package",
            ),
            Self::NoDoor { .. } => {
                ("no_door", "EACCES", "`sudo roce share` receives for programs of all users")
            }
            Self::Stopped { .. } => {
                ("holder_stopped", "EADDRINUSE", "`kill -CONT` has the stopped process go on")
            }
            Self::NotLocal(_) => ("not_local", "EADDRNOTAVAIL", "`ip address` lists this host's"),
            Self::LoopbackFull => (
                "loopback_full",
                "EADDRINUSE",
                "`roce devinfo --counters` lists who has an address",
            ),
            Self::NoLoopbackLeft { .. } => (
                "no_loopback_left",
                "EADDRINUSE",
                "`ip address show dev lo` lists loopback's addresses; `roce devinfo --counters` who has one",
            ),
            Self::LoopbackDown => ("loopback_down", "EADDRNOTAVAIL", "`ip address show dev lo`"),
            Self::NoIpv6 { .. } => (
                "no_ipv6",
                "EAFNOSUPPORT",
                "an IPv4 address; a sandbox may forbid sockets for IPv6, and ipv6.disable=1 does",
            ),
            Self::NoNetRaw(_) => (
                "no_net_raw",
                "EPERM",
                "`setcap cap_net_raw+ep FILE`; `getpcaps $$` shows what there is",
            ),
            Self::Duplicate { .. } => (
                "duplicate_address",
                "EADDRINUSE",
                "`arping -D -I DEV ADDRESS` shows who has the address",
            ),
            Self::NoLease { .. } => (
                "no_lease",
                "EADDRNOTAVAIL",
                "`tcpdump -i DEV -e udp port 67 or udp port 68` shows what is asked, and who answers",
            ),
            Self::Interface { .. } => {
                ("interface", "EIO", "`ip link show DEV`; a sandbox may forbid packet sockets")
            }
            Self::Xdp { why, .. } => match why {
                XdpRefusal::Capability(_) | XdpRefusal::UserNamespace => {
                    ("xdp_right", "EPERM", "`getpcaps $$` shows what there is")
                }
                XdpRefusal::QueueTaken(_) | XdpRefusal::Attached => {
                    ("xdp_taken", "EBUSY", "`ip link show DEV` and `bpftool net` show who is there")
                }
                _ => ("xdp", "EOPNOTSUPP", "raw:DEV does the same without AF_XDP"),
            },
            Self::System { .. } => {
                ("socket", "EIO", "`ulimit -n` limits descriptors; a sandbox may forbid sockets")
            }
        };
        Reason::new(cause, self, advice).with_errno(errno)
    }
}
