//! Port: attributes, GID table, interface changes.

use std::{
    fs, io,
    net::IpAddr,
    os::fd::{AsFd, BorrowedFd, OwnedFd},
    sync::Arc,
    time::Duration,
};

use derive_more::Display;
use pnet_datalink::NetworkInterface;
use roce_transport::{
    adapter::RoceV1,
    addr::{Gid, Mtu},
    time::Instant,
};
use rustix::{
    io::Errno,
    net::{AddressFamily, RecvFlags, SocketFlags, SocketType, bind, netlink, recv, socket_with},
};

use crate::{
    bind::{BindError, is_stopped},
    clock,
    sync::Mutex,
};

/// Check interval of stopped processes.
const CHECK_INTERVAL: Duration = Duration::from_secs(1);

pub(crate) const GID_TABLE_LEN: u16 = 256;

/// Port attributes (`ibv_port_attr`). Every device has one port, number 1.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
#[non_exhaustive]
pub struct PortAttr {
    /// `IBV_PORT_ACTIVE`: the interface is up with a carrier.
    pub active: bool,
    /// Largest payload per packet (`active_mtu`).
    pub active_mtu: Mtu,
    /// Largest payload of any port: 4,096 bytes (`max_mtu`).
    pub max_mtu: Mtu,
    /// Longest message in bytes (`max_msg_sz`).
    pub max_message: u32,
    /// Entries of the GID table (`gid_tbl_len`).
    pub gid_table_len: u16,
    /// Entries of the P_Key table (`pkey_tbl_len`).
    pub pkey_table_len: u16,
    /// Packets with a mismatched P_Key (`bad_pkey_cntr`).
    pub bad_pkeys: u64,
    /// Datagrams with a mismatched Q_Key (`qkey_viol_cntr`).
    pub qkey_violations: u64,
    /// Even GID entries are for RoCE v1, on raw devices or by [profile](crate::Profile).
    pub roce_v1: bool,
    /// `port_cap_flags` of a [profile](crate::Profile).
    pub cap_flags: Option<u32>,
    /// Code of the number of virtual lanes (`max_vl_num`), by default 1.
    pub max_vl_num: u8,
    /// Speed in Mbit/s (`active_speed`, `active_width`); `None`: unknown.
    pub speed: Option<u32>,
}

impl PortAttr {
    pub(crate) const fn new(active: bool, active_mtu: Mtu) -> Self {
        Self {
            active,
            active_mtu,
            max_mtu: Mtu::B4096,
            max_message: roce_transport::qp::MAX_MESSAGE,
            gid_table_len: GID_TABLE_LEN,
            pkey_table_len: 1,
            bad_pkeys: 0,
            qkey_violations: 0,
            roce_v1: false,
            cap_flags: None,
            max_vl_num: 1,
            speed: None,
        }
    }

    /// Packet type of a GID entry (`ibv_query_gid_type`).
    #[must_use]
    pub const fn gid_type(&self, index: u16) -> GidType {
        if self.roce_v1 && index.is_multiple_of(2) { GidType::RoceV1 } else { GidType::RoceV2 }
    }

    pub(crate) fn of(state: &InterfaceState) -> Self {
        Self { speed: state.speed, ..Self::new(state.up, state.active_mtu()) }
    }
}

/// Entry of a GID table (`ibv_gid_entry`).
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
#[non_exhaustive]
pub struct GidEntry {
    /// Device address.
    pub gid: Gid,
    /// Index for work requests and connections.
    pub index: u16,
    /// Port, always 1.
    pub port: u8,
    /// Packet type.
    pub gid_type: GidType,
    /// Interface index; 0: none.
    pub interface: u32,
}

/// Packet type of a GID (`ibv_gid_type`).
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Display)]
#[non_exhaustive]
pub enum GidType {
    /// Ethernet (`IBV_GID_TYPE_ROCE_V1`). Entries of [profiles](crate::Profile) are refused in use.
    #[display("RoCE v1")]
    RoceV1,
    /// UDP (`IBV_GID_TYPE_ROCE_V2`).
    #[display("RoCE v2")]
    RoceV2,
}

#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct InterfaceState {
    pub(crate) up: bool,
    pub(crate) link_mtu: u32,
    pub(crate) speed: Option<u32>,
    /// Addresses in GID table order.
    pub(crate) addresses: Vec<IpAddr>,
}

impl InterfaceState {
    const GONE: Self = Self { up: false, link_mtu: 0, speed: None, addresses: Vec::new() };

    /// Unlisted loopback interface.
    pub(crate) const fn loopback() -> Self {
        Self { up: true, link_mtu: 65_536, speed: None, addresses: Vec::new() }
    }

    pub(crate) fn of(interface: &NetworkInterface) -> Self {
        let mut addresses: Vec<IpAddr> = interface.ips.iter().map(|network| network.ip()).collect();
        // the kernel's GID order
        addresses.sort_by_key(|address| match address {
            IpAddr::V6(v6) if v6.is_unicast_link_local() => 0,
            IpAddr::V4(_) => 1,
            IpAddr::V6(_) => 2,
        });
        let attribute = |name: &str| {
            fs::read_to_string(format!("/sys/class/net/{}/{name}", interface.name)).ok()
        };
        let number = |name: &str| attribute(name)?.trim().parse::<u32>().ok();
        Self {
            up: interface.is_up() && interface.is_running(),
            // Ethernet's default
            link_mtu: number("mtu").unwrap_or(1500),
            // virtual interfaces report -1 or impossible speeds
            speed: number("speed").filter(|&speed| speed > 0 && speed < 100_000_000),
            addresses,
        }
    }

    pub(crate) fn active_mtu(&self) -> Mtu {
        Mtu::fitting(self.link_mtu).unwrap_or(Mtu::B256)
    }
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Follows {
    All,
    /// This address, while the interface has it.
    Only(IpAddr),
    /// None: keeps the opening addresses; 127.0.0.0/8 works unlisted.
    State,
}

#[derive(PartialEq, Eq, Debug, Default)]
pub(crate) struct TableChange {
    pub(crate) gone: Vec<IpAddr>,
    pub(crate) new: Vec<IpAddr>,
}

impl Follows {
    pub(crate) fn compare(self, table: &[Gid], addresses: &[IpAddr]) -> TableChange {
        let is_new = |address: &IpAddr| !table.contains(&Gid::from(*address));
        let new = addresses.iter().copied().filter(is_new);
        let new: Vec<IpAddr> = match self {
            Self::All => new.collect(),
            Self::Only(only) => new.filter(|address| *address == only).collect(),
            Self::State => return TableChange::default(),
        };
        let used = table.iter().filter(|gid| !gid.is_zero()).map(|gid| gid.to_ip());
        let mut gone: Vec<IpAddr> = used.filter(|ip| !addresses.contains(ip)).collect();
        gone.dedup(); // an address may have adjacent entries
        TableChange { gone, new }
    }
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct GidLayout {
    pub(crate) len: u16,
    /// RoCE v1 entries: one per address, before the v2 entry.
    pub(crate) v1: RoceV1,
}

impl Default for GidLayout {
    fn default() -> Self {
        Self { len: GID_TABLE_LEN, v1: RoceV1::Absent }
    }
}

impl GidLayout {
    pub(crate) fn table(self, addresses: impl IntoIterator<Item = IpAddr>) -> Vec<Gid> {
        GidPlaces::new(self, Vec::new()).table(addresses)
    }

    /// Puts an address into the first unused slot; `false` if full.
    ///
    /// Kernel tables begin with a link-local and an IPv4 address: older programs use index 1.
    /// Without link-local, an IPv4 address takes both slots.
    pub(crate) fn insert(self, table: &mut Vec<Gid>, address: IpAddr) -> bool {
        let width = if self.v1 == RoceV1::Absent { 1 } else { 2 };
        let enter = |table: &mut Vec<Gid>, place: usize| {
            let entries = place * width..(place + 1) * width;
            if entries.end > usize::from(self.len) {
                return false;
            }
            table.resize(table.len().max(entries.end), Gid::default());
            table[entries].fill(address.into());
            true
        };
        let place = |table: &[Gid]| table.chunks(width).position(|gids| gids[0].is_zero());
        let unused = place(table).unwrap_or(table.len().div_ceil(width));
        let second_is_free = table.get(width).is_none_or(|gid| gid.is_zero());
        let entered = enter(table, unused);
        if unused == 0 && address.is_ipv4() && second_is_free {
            enter(table, 1);
        }
        entered
    }
}

/// Leaves the entry unused.
fn remove(table: &mut [Gid], address: IpAddr) {
    table.iter_mut().filter(|gid| **gid == address.into()).for_each(|gid| *gid = Gid::default());
}

/// GID indexes common to all shards, in any order of address changes.
#[derive(Clone, Debug, Default)]
pub(crate) struct GidPlaces {
    layout: GidLayout,
    taken: Arc<Mutex<Vec<Gid>>>,
}

impl GidPlaces {
    pub(crate) fn new(layout: GidLayout, table: Vec<Gid>) -> Self {
        Self { layout, taken: Arc::new(Mutex::new(table)) }
    }

    pub(crate) fn table(&self, addresses: impl IntoIterator<Item = IpAddr>) -> Vec<Gid> {
        let mut table = Vec::new();
        for address in addresses {
            self.insert(&mut table, address); // ignored if full
        }
        table
    }

    /// Inserts at the common index, or by [layout](GidLayout::insert); `false` if full.
    pub(crate) fn insert(&self, table: &mut Vec<Gid>, address: IpAddr) -> bool {
        let gid = Gid::from(address);
        let mut taken = self.taken.lock();
        if !taken.contains(&gid) && !self.layout.insert(&mut taken, address) {
            return false;
        }
        table.resize(table.len().max(taken.len()), Gid::default());
        let places = taken.iter().zip(table).filter(|(taken, _)| **taken == gid);
        places.for_each(|(_, entry)| *entry = gid);
        true
    }

    pub(crate) fn remove(&self, table: &mut [Gid], address: IpAddr) {
        remove(table, address);
        remove(&mut self.taken.lock(), address);
    }
}

/// Watch on interface changes. Netlink messages are not parsed: losses and new formats do no harm.
pub(crate) struct Watch {
    socket: OwnedFd,
    pub(crate) interface: u32,
    pub(crate) follows: Follows,
    /// Stopped holders of addresses, and the time of the next check.
    stopped: Mutex<Option<(Vec<u32>, Instant)>>,
}

/// Protocol 0.
const NETLINK_ROUTE: Option<rustix::net::Protocol> = None;

/// `RTMGRP_LINK`, `RTMGRP_IPV4_IFADDR`, `RTMGRP_IPV6_IFADDR`.
const GROUPS: u32 = 0x1 | 0x10 | 0x100;

impl Watch {
    /// Needs no privilege.
    pub(crate) fn new(interface: u32, follows: Follows) -> io::Result<Self> {
        let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
        let socket = socket_with(AddressFamily::NETLINK, SocketType::RAW, flags, NETLINK_ROUTE)?;
        bind(&socket, &netlink::SocketAddrNetlink::new(0, GROUPS))?;
        Ok(Self { socket, interface, follows, stopped: Mutex::default() })
    }

    /// Reports news when a stopped holder of the address resumes or ends.
    pub(crate) fn await_end_of(&self, error: &BindError) {
        let &BindError::Stopped { process, .. } = error else { return };
        let mut stopped = self.stopped.lock();
        let check_in = || (Vec::new(), clock::now().plus(CHECK_INTERVAL));
        stopped.get_or_insert_with(check_in).0.push(process);
    }

    /// Delay until the next check of stopped processes.
    pub(crate) fn next_check_in(&self) -> Option<Duration> {
        let stopped = self.stopped.lock();
        stopped.as_ref().map(|(_, look_at)| look_at.since(clock::now()))
    }

    /// True if a stopped process resumed or ended.
    fn holder_resumed(&self) -> bool {
        let mut stopped = self.stopped.lock();
        let Some((processes, look_at)) = &mut *stopped else { return false };
        if clock::now() < *look_at {
            return false;
        }
        *look_at = clock::now().plus(CHECK_INTERVAL);
        let holder_resumed = !processes.iter().all(|&process| is_stopped(process));
        if holder_resumed {
            *stopped = None; // processes still stopped are found again
        }
        holder_resumed
    }

    /// True if an interface changed, or addresses may be free.
    pub(crate) fn has_changed(&self) -> bool {
        let mut changed = self.holder_resumed();
        // bounded against floods
        for _ in 0..1024 {
            let mut ignored = [0_u8; 64];
            match recv(&self.socket, &mut ignored, RecvFlags::TRUNC) {
                Ok(_) | Err(Errno::NOBUFS) => changed = true, // lost messages count too
                Err(Errno::INTR) => {}
                Err(_) => break,
            }
        }
        changed
    }

    pub(crate) fn state(&self) -> InterfaceState {
        let interfaces = pnet_datalink::interfaces();
        let interface = interfaces.iter().find(|interface| interface.index == self.interface);
        interface.map_or(InterfaceState::GONE, InterfaceState::of)
    }
}

impl AsFd for Watch {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.socket.as_fd()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ips(texts: &[&str]) -> Vec<IpAddr> {
        texts.iter().map(|text| text.parse().unwrap()).collect()
    }

    fn insert(table: &mut Vec<Gid>, address: IpAddr) -> bool {
        GidLayout::default().insert(table, address)
    }

    fn table(texts: &[&str]) -> Vec<Gid> {
        ips(texts).into_iter().map(Gid::from).collect()
    }

    #[test]
    fn indices_stay_when_addresses_come_and_go() {
        let mut gids = table(&["fe80::1", "10.0.0.1", "fd00::1"]);
        let now = ips(&["fe80::1", "10.0.0.2", "fd00::1"]);
        let change = Follows::All.compare(&gids, &now);
        assert_eq!(change, TableChange { gone: ips(&["10.0.0.1"]), new: ips(&["10.0.0.2"]) });
        remove(&mut gids, ips(&["fe80::1"])[0]);
        assert_eq!(gids, table(&["::", "10.0.0.1", "fd00::1"]));
        assert!(
            insert(&mut gids, ips(&["10.0.0.2"])[0]) && insert(&mut gids, ips(&["10.0.0.3"])[0])
        );
        assert_eq!(gids, table(&["10.0.0.2", "10.0.0.1", "fd00::1", "10.0.0.3"]));
    }

    #[test]
    fn shards_have_the_same_places() {
        let mut one = GidLayout::default().table(ips(&["10.0.0.1", "fd00::1"]));
        let places = GidPlaces::new(GidLayout::default(), one.clone());
        let mut other = places.table(ips(&["fd00::1", "10.0.0.1"]));
        assert_eq!((&one, &other), (&table(&["10.0.0.1", "10.0.0.1", "fd00::1"]), &one));
        for address in ips(&["10.0.0.3", "10.0.0.2"]) {
            assert!(places.insert(&mut one, address));
        }
        for address in ips(&["10.0.0.2", "10.0.0.3"]) {
            assert!(places.insert(&mut other, address));
        }
        assert_eq!(one, other);
        places.remove(&mut one, ips(&["fd00::1"])[0]);
        places.insert(&mut one, ips(&["fd00::2"])[0]);
        assert_eq!(one, table(&["10.0.0.1", "10.0.0.1", "fd00::2", "10.0.0.3", "10.0.0.2"]));
        places.remove(&mut other, ips(&["fd00::1"])[0]);
        places.insert(&mut other, ips(&["fd00::2"])[0]);
        assert_eq!(one, other);
    }

    #[test]
    fn an_ipv4_address_has_index_one() {
        let open = |addresses: &[&str]| GidLayout::default().table(ips(addresses));
        assert_eq!(open(&["fe80::1", "10.0.0.1"]), table(&["fe80::1", "10.0.0.1"]));
        assert_eq!(open(&["10.0.0.1"]), table(&["10.0.0.1", "10.0.0.1"]));
        assert_eq!(open(&["fd00::1"]), table(&["fd00::1"]));
        let mut gids = open(&["10.0.0.1", "10.0.0.2", "fd00::1"]);
        assert_eq!(gids, table(&["10.0.0.1", "10.0.0.1", "10.0.0.2", "fd00::1"]));
        let now = ips(&["10.0.0.2", "fd00::1"]);
        let change = Follows::All.compare(&gids, &now);
        assert_eq!(change, TableChange { gone: ips(&["10.0.0.1"]), new: vec![] });
        remove(&mut gids, ips(&["10.0.0.1"])[0]);
        assert_eq!(gids, table(&["::", "::", "10.0.0.2", "fd00::1"]));
        insert(&mut gids, ips(&["10.0.0.3"])[0]);
        assert_eq!(gids, table(&["10.0.0.3", "10.0.0.3", "10.0.0.2", "fd00::1"]));
    }

    #[test]
    fn an_address_has_entries_of_both_kinds() {
        let layout = GidLayout { len: 7, v1: RoceV1::Shown };
        let mut gids = layout.table(ips(&["fe80::1", "10.0.0.1"]));
        assert_eq!(gids, table(&["fe80::1", "fe80::1", "10.0.0.1", "10.0.0.1"]));
        assert!(layout.insert(&mut gids, ips(&["10.0.0.2"])[0]));
        assert!(!layout.insert(&mut gids, ips(&["10.0.0.3"])[0]), "one entry is left");
        remove(&mut gids, ips(&["10.0.0.1"])[0]);
        assert!(layout.insert(&mut gids, ips(&["10.0.0.4"])[0]));
        assert_eq!(gids[2..4], table(&["10.0.0.4", "10.0.0.4"]));
        assert_eq!(layout.table(ips(&["10.0.0.1"])), table(&["10.0.0.1"; 4]));
    }

    #[test]
    fn a_full_table_takes_no_more() {
        let mut gids = Vec::new();
        assert!(insert(&mut gids, ips(&["fe80::1"])[0]));
        for last in 1..=255 {
            assert!(insert(&mut gids, [10, 0, 0, last].into()));
        }
        assert!(!insert(&mut gids, [10, 0, 1, 0].into()));
        remove(&mut gids, [10, 0, 0, 77].into());
        assert!(insert(&mut gids, [10, 0, 1, 0].into()));
        assert_eq!(gids[77], IpAddr::from([10, 0, 1, 0]).into());
    }

    #[test]
    fn a_device_with_one_address_wants_no_other() {
        let only = Follows::Only([10, 0, 0, 1].into());
        let both = ips(&["10.0.0.1", "10.0.0.2"]);
        assert_eq!(only.compare(&table(&["10.0.0.1"]), &both), TableChange::default());
        assert_eq!(
            only.compare(&table(&["10.0.0.1"]), &both[1..]),
            TableChange { gone: ips(&["10.0.0.1"]), new: vec![] }
        );
        assert_eq!(
            only.compare(&table(&["::"]), &both),
            TableChange { gone: vec![], new: ips(&["10.0.0.1"]) }
        );
    }

    #[test]
    fn an_address_that_no_interface_lists_stays() {
        assert_eq!(
            Follows::State.compare(&table(&["127.0.0.7"]), &ips(&["127.0.0.1"])),
            TableChange::default()
        );
    }
}
