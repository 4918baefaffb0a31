//! Names of raw devices: `raw:eth0`, `raw:eth0,ip=10.0.0.9/24,vlan=100,gw=10.0.0.1`,
//! `xdp:eth0,queue=1`.

use std::{fs, net::IpAddr};

use super::OpenError;
use crate::link::{XdpMode, XdpOptions};
use roce_ethernet::{MacAddr, Prefix, StationConfig, Vlan};

#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub(super) struct RawSpec {
    pub(super) interface: String,
    /// Own addresses; if empty, the interface's.
    addresses: Vec<Prefix>,
    /// Leases a further IPv4 address, with this seed.
    dhcp: Option<[u8; 32]>,
    mac: Option<MacAddr>,
    vlan: Option<u16>,
    priority: Option<u8>,
    gateways: Vec<IpAddr>,
    roce_v1: bool,
    /// AF_XDP options; `None`: packet socket.
    pub(super) xdp: Option<XdpOptions>,
}

/// Above any interface's queue count; the socket map has an entry for each.
const QUEUE_MAX: u32 = 4_095;
/// Speed of an interface that reports none, in Mbit/s.
pub(super) const MBPS: u32 = 10_000;
/// Placeholder until opening.
const SEED: [u8; 32] = [0; 32];
const DHCP: &str = "ip=dhcp";

const OPTIONS: &str = "write ip=ADDRESS/LENGTH, ip=dhcp, mac=MAC, vlan=1..4094, prio=0..7, gw=ADDRESS or roce=v1, separated by commas";

const XDP_OPTIONS: &str = "write queue=NUMBER, mode=zero-copy, mode=copy, mode=generic, busy=MICROSECONDS, ip=ADDRESS/LENGTH, ip=dhcp, mac=MAC, vlan=1..4094, prio=0..7, gw=ADDRESS or roce=v1, separated by commas";
const XDP_KEYS: [&str; 3] = ["queue", "mode", "busy"];
const XDP: &str = "xdp:";
/// Keys that need own addresses.
const OF_STATION: [&str; 4] = ["mac=", "vlan=", "prio=", "gw="];

/// True if a word continues the raw device before it.
pub(crate) fn continues(before: &str, word: &str) -> bool {
    is_raw(before) && word.contains('=')
}

pub(super) fn is_raw(text: &str) -> bool {
    text.starts_with("raw:") || text.starts_with(XDP)
}

impl RawSpec {
    pub(super) fn parse(text: &str) -> Result<Self, OpenError> {
        let mut words = text.split(',').map(str::trim);
        let interface = words.next().unwrap_or_default();
        let interface = interface.split_once(':').map_or("", |(_, interface)| interface);
        let mut spec = Self {
            interface: interface.into(),
            xdp: text.starts_with(XDP).then(XdpOptions::default),
            ..Self::default()
        };
        if interface.is_empty() || interface.contains('=') {
            let first = text.split(',').next().unwrap_or_default();
            let hint = "the name has no interface; write for example raw:eth0 or xdp:eth0";
            return Err(wrong(text, first, hint));
        }
        let mut other = None;
        for word in words {
            spec.set(word).map_err(|hint| wrong(text, word, hint))?;
            if OF_STATION.iter().any(|key| word.starts_with(key)) {
                other = other.or(Some(word));
            }
        }
        if let Some(word) = other.filter(|_| !spec.is_own()) {
            let hint =
                "the device needs its own address; add for example ip=10.0.0.9/24 or ip=dhcp";
            return Err(wrong(text, word, hint));
        }
        if spec.dhcp.is_some() {
            if spec.addresses.iter().any(|own| own.address.is_ipv4()) {
                return Err(wrong(text, DHCP, "ip=dhcp excludes another IPv4 address; omit one"));
            }
            if spec.addresses.is_empty() && spec.mac.is_none() {
                let hint = "a DHCP server identifies a device by its MAC address; add for example \
                     mac=02:00:00:00:00:09";
                return Err(wrong(text, DHCP, hint));
            }
        }
        if spec.priority.is_some() && spec.vlan.is_none() {
            let hint = "a priority needs a VLAN; write for example vlan=100,prio=3";
            return Err(wrong(text, "prio=", hint));
        }
        for &gateway in &spec.gateways {
            let is_of_lease = spec.dhcp.is_some() && gateway.is_ipv4(); // network not known yet
            if !is_of_lease && !spec.addresses.iter().any(|own| own.contains(gateway)) {
                let hint = "the gateway is in no network of ip=; give one that is";
                return Err(wrong(text, &format!("gw={gateway}"), hint));
            }
        }
        Ok(spec)
    }

    /// Valid words on error.
    fn set(&mut self, word: &str) -> Result<(), &'static str> {
        let options = if self.xdp.is_some() { XDP_OPTIONS } else { OPTIONS };
        let (key, value) = word.split_once('=').ok_or(options)?;
        if let Some(xdp) = &mut self.xdp
            && XDP_KEYS.contains(&key)
        {
            return set_xdp(xdp, key, value);
        }
        match key {
            "ip" if value == "dhcp" => once(&mut self.dhcp, SEED)?,
            "ip" => {
                let hint = "write an address with its prefix length, such as ip=10.0.0.9/24 or ip=fd00::9/64, or ip=dhcp";
                let prefix = prefix(value).ok_or(hint)?;
                if self.addresses.iter().any(|own| own.address == prefix.address) {
                    return Err("this address is given twice; omit one");
                }
                self.addresses.push(prefix);
            }
            "mac" => {
                let hint = "write six bytes in hexadecimal, as in mac=02:00:00:00:00:09";
                let mac: MacAddr = value.parse().map_err(|_| hint)?;
                if mac.0 & 1 == 1 || mac == MacAddr::zero() {
                    return Err(
                        "not a unicast MAC address: its first byte must be even and the address \
                         not zero; 02:… is free to choose",
                    );
                }
                once(&mut self.mac, mac)?;
            }
            "vlan" => {
                let id = value.parse().ok().filter(|id| (1..=4094).contains(id));
                once(&mut self.vlan, id.ok_or("write a VLAN ID from 1 to 4094, as in vlan=100")?)?;
            }
            "prio" => {
                let priority = value.parse().ok().filter(|priority| *priority <= 7);
                once(&mut self.priority, priority.ok_or("write a priority from 0 to 7")?)?;
            }
            "gw" => {
                let hint = "write the address of a gateway, as in gw=10.0.0.1";
                let gateway: IpAddr = value.parse().map_err(|_| hint)?;
                if self.gateways.iter().any(|other| other.is_ipv4() == gateway.is_ipv4()) {
                    return Err("two gateways of one address family; omit one");
                }
                self.gateways.push(gateway);
            }
            "roce" => match value {
                "v1" => self.roce_v1 = true,
                _ => return Err("write roce=v1 for RoCE v1 beside RoCEv2"),
            },
            _ => return Err(options),
        }
        Ok(())
    }

    const fn is_own(&self) -> bool {
        self.dhcp.is_some() || !self.addresses.is_empty()
    }

    pub(super) fn name(&self) -> String {
        let scheme = if self.xdp.is_some() { "xdp" } else { "raw" };
        match (self.addresses.first(), self.mac) {
            (Some(first), _) => format!("{scheme}:{}", first.address),
            (None, Some(mac)) => format!("{scheme}:{mac}"),
            (None, None) => format!("{scheme}:{}", self.interface),
        }
    }

    pub(super) fn station(&self, mac: MacAddr, addresses: Vec<Prefix>) -> StationConfig {
        // `mac=`, `vlan=`, `prio=` and `gw=` are refused without own addresses
        let replies = self.is_own();
        let priority = self.priority.unwrap_or(0);
        StationConfig {
            mac: if replies { self.mac.unwrap_or_else(|| self.derived_mac()) } else { mac },
            vlan: self.vlan.map(|id| Vlan { id, priority }),
            addresses: if replies { self.addresses.clone() } else { addresses },
            gateways: if replies { self.gateways.clone() } else { gateways(&self.interface) },
            replies,
            roce_v1: self.roce_v1,
            dhcp: self.dhcp,
            mbps: MBPS,
        }
    }

    /// Locally administered, from the first address: peers never learn another.
    fn derived_mac(&self) -> MacAddr {
        let last = self.addresses.first().map_or([0; 4], |own| match own.address {
            IpAddr::V4(v4) => v4.octets(),
            IpAddr::V6(v6) => v6.octets().last_chunk().copied().unwrap_or_default(),
        });
        let [a, b, c, d] = last;
        MacAddr(0x02, 0x52, a, b, c, d)
    }
}

fn set_xdp(xdp: &mut XdpOptions, key: &str, value: &str) -> Result<(), &'static str> {
    match key {
        "queue" => {
            let queue = value.parse().ok().filter(|queue| *queue <= QUEUE_MAX);
            xdp.queue =
                queue.ok_or("write the number of a queue of the interface, as in queue=0")?;
        }
        "mode" => {
            xdp.mode = match value {
                "zero-copy" => XdpMode::ZeroCopy,
                "copy" => XdpMode::Copy,
                "generic" => XdpMode::Generic,
                _ => {
                    return Err(
                        "write mode=zero-copy, mode=copy or mode=generic, or omit it for the \
                         fastest available",
                    );
                }
            };
        }
        _ => {
            let time = value.parse().ok().filter(|time| (1..=1_000_000).contains(time));
            xdp.busy = Some(time.ok_or("write a time in µs from 1 to 1000000, as in busy=20")?);
        }
    }
    Ok(())
}

fn wrong(text: &str, word: &str, hint: &str) -> OpenError {
    OpenError::RawSpec { text: text.into(), word: word.into(), hint: hint.into() }
}

fn once<T>(place: &mut Option<T>, value: T) -> Result<(), &'static str> {
    match place.replace(value) {
        None => Ok(()),
        Some(_) => Err("this is given twice; omit one"),
    }
}

fn prefix(text: &str) -> Option<Prefix> {
    let (address, length) = text.split_once('/')?;
    let address: IpAddr = address.trim_matches(['[', ']']).parse().ok()?;
    let length: u8 = length.parse().ok()?;
    let most = if address.is_ipv4() { 32 } else { 128 };
    let is_host = !address.is_unspecified() && !address.is_multicast() && !address.is_loopback();
    (length <= most && is_host && address != IpAddr::from([255; 4]))
        .then_some(Prefix { address, length })
}

/// The kernel's default gateways.
fn gateways(interface: &str) -> Vec<IpAddr> {
    let table = |path: &str| fs::read_to_string(path).unwrap_or_default();
    let v4 = ipv4_gateway(&table("/proc/net/route"), interface);
    let v6 = ipv6_gateway(&table("/proc/net/ipv6_route"), interface);
    v4.into_iter().chain(v6).collect()
}

/// Columns: interface, destination, gateway; hexadecimal in memory order.
fn ipv4_gateway(table: &str, interface: &str) -> Option<IpAddr> {
    table.lines().find_map(|line| {
        let fields: Vec<_> = line.split_whitespace().collect();
        let &[name, "00000000", gateway, ..] = &fields[..] else { return None };
        let gateway = u32::from_str_radix(gateway, 16).ok()?.to_ne_bytes();
        (name == interface && gateway != [0; 4]).then(|| IpAddr::from(gateway))
    })
}

/// Columns: destination, length, source, length, gateway, …, interface.
fn ipv6_gateway(table: &str, interface: &str) -> Option<IpAddr> {
    table.lines().find_map(|line| {
        let fields: Vec<_> = line.split_whitespace().collect();
        let &[_, "00", _, _, gateway, .., name] = &fields[..] else { return None };
        let gateway = u128::from_str_radix(gateway, 16).ok()?;
        (name == interface && gateway != 0).then(|| IpAddr::from(gateway.to_be_bytes()))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn spec(text: &str) -> Result<RawSpec, String> {
        RawSpec::parse(&format!("raw:{text}")).map_err(|error| error.to_string())
    }

    #[test]
    fn devices_of_their_own() {
        let own = spec(
            "eth0,ip=10.0.0.9/24,ip=fd00::9/64,mac=02:00:00:00:00:09,vlan=100,prio=3,gw=10.0.0.1,roce=v1",
        );
        let own = own.unwrap();
        let config = own.station(MacAddr::zero(), Vec::new());
        assert_eq!((own.name().as_str(), own.interface.as_str()), ("raw:10.0.0.9", "eth0"));
        assert_eq!(
            config,
            StationConfig {
                mac: MacAddr(2, 0, 0, 0, 0, 9),
                vlan: Some(Vlan { id: 100, priority: 3 }),
                addresses: vec![
                    Prefix { address: [10, 0, 0, 9].into(), length: 24 },
                    Prefix { address: "fd00::9".parse().unwrap(), length: 64 },
                ],
                gateways: vec![[10, 0, 0, 1].into()],
                replies: true,
                roce_v1: true,
                dhcp: None,
                mbps: MBPS,
            }
        );
        let mac = |text| spec(text).unwrap().station(MacAddr::zero(), Vec::new()).mac;
        assert_eq!(mac("v0,ip=10.0.0.9/24"), MacAddr(2, 0x52, 10, 0, 0, 9));
        assert_eq!(mac("v0,ip=fd00::1:9/64"), MacAddr(2, 0x52, 0, 1, 0, 9));
        assert_eq!(spec("v0").unwrap().name(), "raw:v0");
        let leased = spec("v0,ip=dhcp,mac=02:00:00:00:00:09,vlan=7,gw=10.0.0.1").unwrap();
        let config = leased.station(MacAddr::zero(), Vec::new());
        assert_eq!(leased.name(), "raw:02:00:00:00:00:09");
        assert!(config.replies && config.dhcp.is_some() && config.addresses.is_empty());
        let both = spec("v0,ip=dhcp,ip=fd00::9/64").unwrap();
        assert_eq!(both.name(), "raw:fd00::9");
        assert_eq!(both.station(MacAddr::zero(), Vec::new()).mac, MacAddr(2, 0x52, 0, 0, 0, 9));
    }

    #[test]
    fn what_is_wrong_is_shown_with_what_could_stand_there() {
        for (text, wanted) in [
            ("", "raw:: \"raw:\" is wrong: the name has no interface"),
            ("ip=10.0.0.9/24", "\"raw:ip=10.0.0.9/24\" is wrong: the name has no interface"),
            (
                "v0,pi=10.0.0.9/24",
                "\"pi=10.0.0.9/24\" is wrong: write ip=ADDRESS/LENGTH, ip=dhcp, mac=MAC",
            ),
            ("v0,ip", "\"ip\" is wrong: write ip=ADDRESS/LENGTH"),
            ("v0,ip=10.0.0.9", "\"ip=10.0.0.9\" is wrong: write an address with its prefix length"),
            ("v0,ip=10.0.0.9/33", "\"ip=10.0.0.9/33\" is wrong: write an address"),
            ("v0,ip=127.0.0.1/8", "\"ip=127.0.0.1/8\" is wrong: write an address"),
            ("v0,ip=ff02::1/64", "\"ip=ff02::1/64\" is wrong: write an address"),
            (
                "v0,ip=10.0.0.9/24,ip=10.0.0.9/8",
                "\"ip=10.0.0.9/8\" is wrong: this address is given twice; omit one",
            ),
            ("v0,ip=10.0.0.9/24,mac=1", "\"mac=1\" is wrong: write six bytes"),
            ("v0,ip=10.0.0.9/24,mac=01:00:00:00:00:01", "is wrong: not a unicast MAC address"),
            ("v0,ip=10.0.0.9/24,vlan=0", "\"vlan=0\" is wrong: write a VLAN ID from 1 to 4094"),
            ("v0,ip=10.0.0.9/24,vlan=4095", "\"vlan=4095\" is wrong"),
            (
                "v0,ip=10.0.0.9/24,vlan=1,vlan=2",
                "\"vlan=2\" is wrong: this is given twice; omit one",
            ),
            ("v0,ip=10.0.0.9/24,vlan=1,prio=8", "\"prio=8\" is wrong: write a priority"),
            ("v0,ip=10.0.0.9/24,prio=3", "\"prio=\" is wrong: a priority needs a VLAN"),
            (
                "v0,ip=10.0.0.9/24,gw=10.0.1.1",
                "\"gw=10.0.1.1\" is wrong: the gateway is in no network",
            ),
            (
                "v0,ip=10.0.0.9/24,gw=fd00::1",
                "\"gw=fd00::1\" is wrong: the gateway is in no network",
            ),
            ("v0,ip=10.0.0.9/24,gw=x", "\"gw=x\" is wrong: write the address of a gateway"),
            ("v0,roce=v2", "\"roce=v2\" is wrong: write roce=v1 for RoCE v1 beside RoCEv2"),
            ("v0,vlan=7", "\"vlan=7\" is wrong: the device needs its own address"),
            ("v0,mac=02:00:00:00:00:01", "is wrong: the device needs its own address"),
            ("v0,ip=dhcp", "\"ip=dhcp\" is wrong: a DHCP server identifies a device by its MAC"),
            ("v0,ip=dhcp,ip=10.0.0.9/24", "\"ip=dhcp\" is wrong: ip=dhcp excludes"),
            (
                "v0,ip=dhcp,mac=02:00:00:00:00:01,ip=dhcp",
                "\"ip=dhcp\" is wrong: this is given twice; omit one",
            ),
            (
                "v0,ip=dhcp,mac=02:00:00:00:00:01,gw=fd00::1",
                "\"gw=fd00::1\" is wrong: the gateway is in",
            ),
            ("v0,ip=dhcp6", "\"ip=dhcp6\" is wrong: write an address with its prefix length"),
        ] {
            let error = spec(text).unwrap_err();
            assert!(error.contains(wanted) && error.lines().count() == 1, "{error}");
        }
    }

    #[test]
    fn devices_of_af_xdp_have_words_of_their_own_besides() {
        let parse = |text: &str| RawSpec::parse(text).map_err(|error| error.to_string());
        let own = parse("xdp:v0,queue=3,ip=10.0.0.9/24,mode=copy,vlan=7,busy=20").unwrap();
        assert_eq!((own.name().as_str(), own.interface.as_str()), ("xdp:10.0.0.9", "v0"));
        let xdp = XdpOptions { queue: 3, mode: XdpMode::Copy, busy: Some(20) };
        assert_eq!(own.xdp, Some(xdp));
        let station = own.station(MacAddr::zero(), Vec::new());
        assert_eq!(station.vlan, Some(Vlan { id: 7, priority: 0 }));
        let borrowed = parse("xdp:v0,queue=1").unwrap();
        assert_eq!(borrowed.name(), "xdp:v0");
        assert!(!borrowed.station(MacAddr::zero(), Vec::new()).replies);
        assert_eq!(spec("v0").unwrap().xdp, None);
        assert!(continues("xdp:v0", "queue=1") && continues("raw:v0", "ip=10.0.0.9/24"));
        for (text, wanted) in [
            ("xdp:", "xdp:: \"xdp:\" is wrong: the name has no interface"),
            ("xdp:v0,queues=1", "\"queues=1\" is wrong: write queue=NUMBER, mode=zero-copy"),
            ("xdp:v0,queue=x", "\"queue=x\" is wrong: write the number of a queue"),
            ("xdp:v0,queue=4096", "\"queue=4096\" is wrong: write the number of a queue"),
            ("xdp:v0,mode=fast", "\"mode=fast\" is wrong: write mode=zero-copy, mode=copy or"),
            ("xdp:v0,busy=0", "\"busy=0\" is wrong: write a time in µs"),
            ("raw:v0,queue=1", "\"queue=1\" is wrong: write ip=ADDRESS/LENGTH, ip=dhcp, mac=MAC"),
            ("xdp:v0,vlan=7", "\"vlan=7\" is wrong: the device needs its own address"),
        ] {
            let error = parse(text).unwrap_err();
            assert!(error.contains(wanted) && error.lines().count() == 1, "{error}");
        }
    }

    #[test]
    fn the_gateways_of_the_kernel() {
        let gateway = u32::from_ne_bytes([10, 0, 0, 1]);
        let table = format!(
            "Iface\tDestination\tGateway\tFlags\nv1\t00000000\t{gateway:08X}\t0003\n\
             v0\t0000000A\t00000000\t0001\nv0\t00000000\t{gateway:08X}\t0003\n"
        );
        assert_eq!(ipv4_gateway(&table, "v0"), Some([10, 0, 0, 1].into()));
        assert_eq!(ipv4_gateway(&table, "v2"), None);
        let line = |gateway, name| {
            let zero = "0".repeat(32);
            format!("{zero} 00 {zero} 00 {gateway} 00000400 00000001 00000000 00000003 {name}\n")
        };
        let table = line("0".repeat(32), "v0") + &line(format!("fe80{:028}", 1), "v0");
        assert_eq!(ipv6_gateway(&table, "v0"), Some("fe80::1".parse().unwrap()));
        assert_eq!(ipv6_gateway(&table, "lo"), None);
    }
}
