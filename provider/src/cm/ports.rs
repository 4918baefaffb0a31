//! Port numbers of this process. Another process has other addresses, so its ports are its own; if
//! it has the same ones, a listener claims the port on the link besides.

use std::{collections::BTreeMap, net::IpAddr};

use roce_transport::cm::PortSpace;

use super::error::CmError;
use crate::calls::{ProcessGuard, ProcessMutex};

/// Range of ephemeral ports.
const EPHEMERAL: std::ops::RangeInclusive<u16> = 32_768..=60_999;

struct Use {
    serial: u64,
    address: IpAddr,
    reuse: bool,
    listening: bool,
}

#[derive(Default)]
struct Table {
    next: u64,
    /// Start of the search for the next ephemeral port. Random at first, since processes may share
    /// an address.
    hint: Option<u16>,
    uses: BTreeMap<(PortSpace, u16), Vec<Use>>,
}

static TABLE: ProcessMutex<Table> =
    ProcessMutex::new(Table { next: 0, hint: None, uses: BTreeMap::new() });

fn table() -> ProcessGuard<'static, Table> {
    TABLE.lock()
}

/// A port in use, until it is dropped.
pub(super) struct PortLease {
    space: PortSpace,
    port: u16,
    serial: u64,
}

impl PortLease {
    /// Takes `port`, or with 0 a free one.
    pub(super) fn take(
        space: PortSpace,
        address: IpAddr,
        port: u16,
        reuse: bool,
    ) -> Result<Self, CmError> {
        let mut table = table();
        let port = if port == 0 { table.free(space)? } else { port };
        let serial = table.next;
        let uses = table.uses.entry((space, port)).or_default();
        let clash = |other: &Use| {
            overlap(address, other.address) && !(reuse && other.reuse && !other.listening)
        };
        if uses.iter().any(clash) {
            return Err(CmError::PortInUse(port));
        }
        uses.push(Use { serial, address, reuse, listening: false });
        table.next += 1;
        Ok(Self { space, port, serial })
    }

    pub(super) const fn port(&self) -> u16 {
        self.port
    }

    /// Makes the port one that is not shared, for a listener.
    pub(super) fn listen(&self) -> Result<(), CmError> {
        let mut table = table();
        let uses = table.uses.entry((self.space, self.port)).or_default();
        let Some(own) = uses.iter().position(|one| one.serial == self.serial) else {
            return Ok(());
        };
        let address = uses[own].address;
        if uses.iter().any(|other| other.serial != self.serial && overlap(address, other.address)) {
            return Err(CmError::PortInUse(self.port));
        }
        uses[own].listening = true;
        Ok(())
    }

    /// The address became known.
    pub(super) fn set_address(&self, address: IpAddr) {
        let mut table = table();
        let uses = table.uses.get_mut(&(self.space, self.port));
        if let Some(own) =
            uses.and_then(|uses| uses.iter_mut().find(|one| one.serial == self.serial))
        {
            own.address = address;
        }
    }
}

impl Drop for PortLease {
    fn drop(&mut self) {
        let mut table = table();
        if let Some(uses) = table.uses.get_mut(&(self.space, self.port)) {
            uses.retain(|one| one.serial != self.serial);
            if uses.is_empty() {
                table.uses.remove(&(self.space, self.port));
            }
        }
    }
}

impl Table {
    fn free(&mut self, space: PortSpace) -> Result<u16, CmError> {
        let (first, last) = (*EPHEMERAL.start(), *EPHEMERAL.end());
        let count = last - first + 1;
        let hint =
            *self.hint.get_or_insert_with(|| getrandom::u32().unwrap_or_default() as u16 % count);
        for step in 0..count {
            let port = first + (hint + step) % count;
            if !self.uses.contains_key(&(space, port)) {
                self.hint = Some((hint + step + 1) % count);
                return Ok(port);
            }
        }
        Err(CmError::NoPort)
    }
}

/// True if two addresses have a port in common: the same address, or one that stands for all.
fn overlap(one: IpAddr, other: IpAddr) -> bool {
    let all = |address: IpAddr| address.is_unspecified();
    one == other || all(one) || all(other)
}

#[cfg(test)]
mod tests {
    use std::net::{Ipv4Addr, Ipv6Addr};

    use super::*;

    const ANY: IpAddr = IpAddr::V4(Ipv4Addr::UNSPECIFIED);
    const ONE: IpAddr = IpAddr::V4(Ipv4Addr::new(10, 0, 0, 1));
    const TWO: IpAddr = IpAddr::V4(Ipv4Addr::new(10, 0, 0, 2));

    #[test]
    fn a_port_is_used_once_on_an_address() {
        let space = PortSpace::Ipoib;
        let first = PortLease::take(space, ONE, 7, false).unwrap();
        assert!(matches!(PortLease::take(space, ONE, 7, false), Err(CmError::PortInUse(7))));
        assert!(matches!(PortLease::take(space, ANY, 7, true), Err(CmError::PortInUse(7))));
        let second = PortLease::take(space, TWO, 7, false).unwrap();
        let other_space = PortLease::take(PortSpace::Ib, ONE, 7, false).unwrap();
        drop((first, second, other_space));
        PortLease::take(space, ANY, 7, false).unwrap();
    }

    #[test]
    fn a_listener_does_not_share() {
        let space = PortSpace::Ipoib;
        let first = PortLease::take(space, ONE, 8, true).unwrap();
        let second = PortLease::take(space, ONE, 8, true).unwrap();
        assert!(matches!(first.listen(), Err(CmError::PortInUse(8))));
        drop(second);
        first.listen().unwrap();
        assert!(matches!(PortLease::take(space, ONE, 8, true), Err(CmError::PortInUse(8))));
    }

    #[test]
    fn ephemeral_ports_differ() {
        let any = IpAddr::V6(Ipv6Addr::UNSPECIFIED);
        let leases: Vec<_> =
            (0..100).map(|_| PortLease::take(PortSpace::Ib, any, 0, false).unwrap()).collect();
        let mut ports: Vec<_> = leases.iter().map(PortLease::port).collect();
        ports.sort_unstable();
        ports.dedup();
        assert_eq!(ports.len(), 100);
        assert!(ports.iter().all(|port| EPHEMERAL.contains(port)));
    }
}
