//! Ports of this process, shared as in the kernel. Processes at one address also claim listeners'
//! ports on the link.

use std::{
    collections::{BTreeMap, btree_map::Range},
    fs,
    net::{IpAddr, SocketAddr},
};

use roce_transport::cm::PortSpace;
use rustix::thread::CapabilitySet;

use super::error::CmError;
use crate::calls::ProcessMutex;

const EPHEMERAL: std::ops::RangeInclusive<u16> = 32_768..=60_999;

/// If the system reports none.
const UNPRIVILEGED: u16 = 1024;

pub(super) fn check_right(port: u16) -> Result<(), CmError> {
    let start = fs::read_to_string("/proc/sys/net/ipv4/ip_unprivileged_port_start");
    let start = start.ok().and_then(|text| text.trim().parse().ok()).unwrap_or(UNPRIVILEGED);
    let is_capable = || {
        rustix::thread::capabilities(None)
            .is_ok_and(|sets| sets.effective.contains(CapabilitySet::NET_BIND_SERVICE))
    };
    if may_take(port, start, is_capable) { Ok(()) } else { Err(CmError::PortPrivileged(port)) }
}

fn may_take(port: u16, start: u16, is_capable: impl FnOnce() -> bool) -> bool {
    port == 0 || port >= start || is_capable()
}

#[derive(Clone, Copy)]
pub(super) struct Binding {
    pub(super) address: IpAddr,
    /// A wildcard covers its family only.
    pub(super) afonly: bool,
    /// Shares the port with bindings of this option.
    pub(super) reuse: bool,
    pub(super) peer: Option<SocketAddr>,
}

impl Binding {
    fn check(&self, other: &Self, port: u16) -> Result<(), CmError> {
        let one_family = self.address.is_ipv4() == other.address.is_ipv4();
        if self.reuse && other.reuse || self.afonly && other.afonly && !one_family {
            return Ok(());
        }
        if self.address.is_unspecified() || other.address.is_unspecified() {
            return Err(CmError::PortOverlap(port));
        }
        if self.address == other.address { Err(CmError::PortInUse(port)) } else { Ok(()) }
    }

    /// True if no connection can belong to both bindings.
    fn is_apart_from(&self, other: &Self) -> bool {
        let differ = |one: IpAddr, other: IpAddr| {
            !one.is_unspecified() && !other.is_unspecified() && one != other
        };
        differ(self.address, other.address)
            || self.peer.zip(other.peer).is_some_and(|(one, other)| {
                one.port() != other.port() || differ(one.ip(), other.ip())
            })
    }
}

/// True if `::` covers IPv6 only by default.
pub(super) fn bindv6only() -> bool {
    fs::read("/proc/sys/net/ipv6/bindv6only").is_ok_and(|text| text.starts_with(b"1"))
}

/// Port of a binding, and the binding's serial number.
type Key = (PortSpace, u16, u64);

#[derive(Default)]
struct Table {
    next: u64,
    /// Start of the next ephemeral search, first random: processes may share an address.
    hint: Option<u16>,
    uses: BTreeMap<Key, Binding>,
}

static TABLE: ProcessMutex<Table> =
    ProcessMutex::new(Table { next: 0, hint: None, uses: BTreeMap::new() });

/// Released on drop.
pub(super) struct PortLease(Key);

impl PortLease {
    /// Port 0: a free port.
    pub(super) fn take(space: PortSpace, port: u16, binding: Binding) -> Result<Self, CmError> {
        let mut table = TABLE.lock();
        let port = if port == 0 {
            table.free(space, &binding)?
        } else {
            // the latest binding decides the error, as in the kernel
            table.of(space, port).rev().try_for_each(|(_, other)| binding.check(other, port))?;
            port
        };
        let key = (space, port, table.next);
        table.uses.insert(key, binding);
        table.next += 1;
        Ok(Self(key))
    }

    pub(super) const fn port(&self) -> u16 {
        self.0.1
    }

    /// Makes the port exclusive.
    pub(super) fn listen(&self) -> Result<(), CmError> {
        let mut table = TABLE.lock();
        let Some(&own) = table.uses.get(&self.0).filter(|own| own.reuse) else { return Ok(()) };
        let alone = Binding { reuse: false, ..own };
        let (space, port, _) = self.0;
        let mut others = table.of(space, port).rev().filter(|(key, _)| **key != self.0);
        others.try_for_each(|(_, other)| alone.check(other, port))?;
        table.uses.insert(self.0, alone);
        Ok(())
    }

    pub(super) fn change(&self, change: impl FnOnce(&mut Binding)) {
        TABLE.lock().uses.entry(self.0).and_modify(change);
    }
}

impl Drop for PortLease {
    fn drop(&mut self) {
        TABLE.lock().uses.remove(&self.0);
    }
}

impl Table {
    fn of(&self, space: PortSpace, port: u16) -> Range<'_, Key, Binding> {
        self.uses.range((space, port, 0)..=(space, port, u64::MAX))
    }

    fn free(&mut self, space: PortSpace, binding: &Binding) -> Result<u16, CmError> {
        let (first, last) = (*EPHEMERAL.start(), *EPHEMERAL.end());
        let count = last - first + 1;
        let hint =
            *self.hint.get_or_insert_with(|| getrandom::u32().unwrap_or_default() as u16 % count);
        let ports = || (0..count).map(|step| first + (hint + step) % count);
        let unused = ports().find(|&port| self.of(space, port).next().is_none());
        let is_apart =
            |&port: &u16| self.of(space, port).all(|(_, other)| binding.is_apart_from(other));
        let port = unused.or_else(|| ports().find(is_apart)).ok_or(CmError::NoPort)?;
        self.hint = Some((port - first + 1) % count);
        Ok(port)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const TWO: &str = "10.0.0.2";

    /// An address, `4` or `6` (wildcards), then `only` and `reuse`.
    fn binding(text: &str) -> Binding {
        let mut words = text.split(' ');
        let address = match words.next().unwrap() {
            "4" => "0.0.0.0",
            "6" => "::",
            other => other,
        };
        let address: IpAddr = address.parse().unwrap();
        let words: Vec<_> = words.collect();
        Binding {
            address,
            afonly: address.is_ipv4() || words.contains(&"only"),
            reuse: words.contains(&"reuse"),
            peer: None,
        }
    }

    fn take(port: u16, text: &str) -> Result<PortLease, CmError> {
        PortLease::take(PortSpace::Ipoib, port, binding(text))
    }

    /// The kernel's results.
    #[test]
    fn two_at_a_port() {
        const IN_USE: i32 = libc::EADDRINUSE;
        const OVERLAP: i32 = libc::EADDRNOTAVAIL;
        let table = [
            ("10.0.0.1", "10.0.0.1", IN_USE),
            ("10.0.0.1", TWO, 0),
            ("10.0.0.1", "4", OVERLAP),
            ("10.0.0.1", "6", OVERLAP),
            ("10.0.0.1", "6 only", 0),
            ("10.0.0.1", "fd00::1", 0),
            ("4", "4", OVERLAP),
            ("4", "6", OVERLAP),
            ("4", "6 only", 0),
            ("4", "fd00::1 only", 0),
            // without `only`, overlaps IPv4
            ("4", "fd00::1", OVERLAP),
            ("fd00::1", "fd00::1", IN_USE),
            ("fd00::1", "fd00::2", 0),
            ("fd00::1", "6", OVERLAP),
            ("fd00::1 only", "6 only", OVERLAP),
            ("6", "6", OVERLAP),
            ("6 only", "6 only", OVERLAP),
            ("10.0.0.1 reuse", "10.0.0.1 reuse", 0),
            ("10.0.0.1 reuse", "10.0.0.1", IN_USE),
            ("10.0.0.1 reuse", "4 reuse", 0),
            ("10.0.0.1 reuse", "4", OVERLAP),
            ("4 reuse", "6 reuse", 0),
            ("6 only reuse", "6", OVERLAP),
        ];
        for (port, &(one, other, wanted)) in (100..).zip(&table) {
            for (first, second) in [(one, other), (other, one)] {
                let _first = take(port, first).unwrap();
                let got = take(port, second).err().map_or(0, |error| error.errno());
                assert_eq!(got, wanted, "{first}, then {second}");
            }
        }
    }

    #[test]
    fn a_listener_does_not_share() {
        let first = take(8, "10.0.0.1 reuse").unwrap();
        let (second, third) = (take(8, "10.0.0.1 reuse").unwrap(), take(8, TWO).unwrap());
        assert!(matches!(first.listen(), Err(CmError::PortInUse(8))));
        second.change(|binding| binding.address = binding_of_all());
        assert!(matches!(first.listen(), Err(CmError::PortOverlap(8))));
        drop(second);
        first.listen().unwrap();
        first.listen().unwrap();
        assert!(matches!(take(8, "10.0.0.1 reuse"), Err(CmError::PortInUse(8))));
        drop((first, third));
        take(8, "4").unwrap();
    }

    fn binding_of_all() -> IpAddr {
        binding("4").address
    }

    #[test]
    fn low_ports_need_a_right() {
        let table = [
            (0, 1024, false, true),
            (1, 1024, false, false),
            (1023, 1024, false, false),
            (1024, 1024, false, true),
            (1023, 1024, true, true),
            (80, 80, false, true),
            (79, 80, false, false),
            (1, 0, false, true),
            (65_535, 65_535, false, true),
        ];
        for (port, start, is_capable, wanted) in table {
            let got = may_take(port, start, || is_capable);
            assert_eq!(got, wanted, "{port} from {start}, {is_capable}");
        }
    }

    #[test]
    fn spaces_have_ports_of_their_own() {
        let _first = take(7, "4").unwrap();
        PortLease::take(PortSpace::Ib, 7, binding("4")).unwrap();
    }

    #[test]
    fn ephemeral_ports_run_out_for_one_peer_only() {
        let to = |peer: &str| Binding { peer: Some(peer.parse().unwrap()), ..binding("10.0.0.1") };
        let take = |binding| PortLease::take(PortSpace::Ib, 0, binding);
        let leases: Vec<_> = EPHEMERAL.map(|_| take(to("10.0.0.9:7")).unwrap()).collect();
        let mut ports: Vec<_> = leases.iter().map(PortLease::port).collect();
        ports.sort_unstable();
        assert!(ports.into_iter().eq(EPHEMERAL));
        let refused = [to("10.0.0.9:7"), binding("10.0.0.1"), binding("4")];
        for binding in refused {
            assert!(matches!(take(binding), Err(CmError::NoPort)));
        }
        for binding in [to("10.0.0.9:8"), to("10.0.0.8:7"), binding(TWO)] {
            take(binding).unwrap();
        }
    }
}
