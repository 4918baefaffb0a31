//! The port of a device: its attributes, its GID table, and how it follows its network interface.

use std::{
    fs, io,
    net::IpAddr,
    os::fd::{AsFd, BorrowedFd, OwnedFd},
    sync::Arc,
    time::Duration,
};

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

/// Time between two looks at processes that are stopped.
const LOOK: Duration = Duration::from_secs(1);

/// Greatest number of entries of a GID table.
pub(crate) const GID_TABLE_LEN: u16 = 256;

/// A device's port (`ibv_port_attr`); every device has one, number 1.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
#[non_exhaustive]
pub struct PortAttr {
    /// True if its interface is up and has a carrier: `IBV_PORT_ACTIVE`, else `IBV_PORT_DOWN`.
    pub active: bool,
    /// The most payload per packet that its interface carries (`active_mtu`).
    pub active_mtu: Mtu,
    /// The most that any port carries: 4,096 bytes (`max_mtu`).
    pub max_mtu: Mtu,
    /// The longest message in bytes (`max_msg_sz`).
    pub max_message: u32,
    /// Entries that the GID table can have (`gid_tbl_len`).
    pub gid_table_len: u16,
    /// Entries of the P_Key table (`pkey_tbl_len`).
    pub pkey_table_len: u16,
    /// Packets with a P_Key that did not match (`bad_pkey_cntr`).
    pub bad_pkeys: u64,
    /// Datagrams with a Q_Key that did not match (`qkey_viol_cntr`).
    pub qkey_violations: u64,
    /// Even entries of the GID table are for RoCE v1: of a raw device that sends it, and shown, as
    /// with a [profile](crate::Profile) of an adapter that has them.
    pub roce_v1: bool,
    /// `port_cap_flags` of a [profile](crate::Profile).
    pub cap_flags: Option<u32>,
    /// Code of the number of virtual lanes (`max_vl_num`): 1, or that of a profile.
    pub max_vl_num: u8,
    /// Speed of its interface in Mbit/s (`active_speed`, `active_width`). `None`: an interface that
    /// has no speed.
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

    /// The kind of packets that an entry of its GID table is for (`ibv_query_gid_type`).
    #[must_use]
    pub const fn gid_type(&self, index: u16) -> GidType {
        if self.roce_v1 && index.is_multiple_of(2) { GidType::RoceV1 } else { GidType::RoceV2 }
    }

    /// The port that a device has on an interface in this state.
    pub(crate) fn of(state: &InterfaceState) -> Self {
        Self { speed: state.speed, ..Self::new(state.up, state.active_mtu()) }
    }
}

/// An entry of a GID table (`ibv_gid_entry`).
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
#[non_exhaustive]
pub struct GidEntry {
    /// The GID: an address of the device.
    pub gid: Gid,
    /// Its index, which work requests and connections name.
    pub index: u16,
    /// The port, always 1.
    pub port: u8,
    /// The kind of packets that it is for.
    pub gid_type: GidType,
    /// Index of the network interface; 0: none.
    pub interface: u32,
}

/// The kind of packets that a GID is for (`ibv_gid_type`).
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
#[non_exhaustive]
pub enum GidType {
    /// Over Ethernet (`IBV_GID_TYPE_ROCE_V1`): shown by devices with a [profile](crate::Profile) of
    /// an adapter that has such entries, and refused where one is used.
    RoceV1,
    /// Over UDP (`IBV_GID_TYPE_ROCE_V2`).
    RoceV2,
}

impl std::fmt::Display for GidType {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::RoceV1 => f.write_str("RoCE v1"),
            Self::RoceV2 => f.write_str("RoCE v2"),
        }
    }
}

/// State of an interface at one moment, as the system reports it.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct InterfaceState {
    pub(crate) up: bool,
    pub(crate) link_mtu: u32,
    pub(crate) speed: Option<u32>,
    /// Addresses in the order of a GID table.
    pub(crate) addresses: Vec<IpAddr>,
}

impl InterfaceState {
    /// An interface that does not exist (any more).
    const GONE: Self = Self { up: false, link_mtu: 0, speed: None, addresses: Vec::new() };

    /// The loopback interface, where the system does not list it.
    pub(crate) const fn loopback() -> Self {
        Self { up: true, link_mtu: 65_536, speed: None, addresses: Vec::new() }
    }

    pub(crate) fn of(interface: &NetworkInterface) -> Self {
        let mut addresses: Vec<IpAddr> = interface.ips.iter().map(|network| network.ip()).collect();
        // as the kernel orders a GID table: the link-local address first, then IPv4, then the rest
        // of IPv6
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
            // what Ethernet has, where the system does not tell
            link_mtu: number("mtu").unwrap_or(1500),
            // virtual interfaces say -1, or what no interface can do
            speed: number("speed").filter(|&speed| speed > 0 && speed < 100_000_000),
            addresses,
        }
    }

    pub(crate) fn active_mtu(&self) -> Mtu {
        Mtu::fitting(self.link_mtu).unwrap_or(Mtu::B256)
    }
}

/// Selection of the interface's addresses that a device has.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Follows {
    /// All addresses, as they come and go.
    All,
    /// This address only, while the interface has it.
    Only(IpAddr),
    /// The addresses that it was opened with, whatever the interface has: any address of
    /// 127.0.0.0/8 can be used without being listed.
    State,
}

/// Changes by which a GID table fits the interface's addresses again.
#[derive(PartialEq, Eq, Debug, Default)]
pub(crate) struct TableChange {
    pub(crate) gone: Vec<IpAddr>,
    pub(crate) new: Vec<IpAddr>,
}

impl Follows {
    /// Compares a table with the addresses that its interface has now.
    pub(crate) fn compare(self, table: &[Gid], addresses: &[IpAddr]) -> TableChange {
        let wanted = |address: &IpAddr| match self {
            Self::All => true,
            Self::Only(only) => *address == only,
            Self::State => false,
        };
        if self == Self::State {
            return TableChange::default();
        }
        let has = |address: &&IpAddr| !table.contains(&Gid::from(**address));
        let new = addresses.iter().filter(|address| wanted(address)).filter(has).copied().collect();
        let used = table.iter().filter(|gid| !gid.is_zero()).map(|gid| gid.to_ip());
        let mut gone: Vec<IpAddr> = used.filter(|ip| !addresses.contains(ip)).collect();
        gone.dedup(); // the entries next to each other may be one address
        TableChange { gone, new }
    }
}

/// Size of a GID table, and kinds of its entries.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct GidLayout {
    /// Greatest number of entries.
    pub(crate) len: u16,
    /// Entries for RoCE v1: every address has one, before the other.
    pub(crate) v1: RoceV1,
}

impl Default for GidLayout {
    fn default() -> Self {
        Self { len: GID_TABLE_LEN, v1: RoceV1::Absent }
    }
}

impl GidLayout {
    /// The table of a device that is opened with these addresses.
    pub(crate) fn table(self, addresses: impl IntoIterator<Item = IpAddr>) -> Vec<Gid> {
        let mut table = Vec::new();
        for address in addresses {
            self.insert(&mut table, address); // more than a table holds are left out
        }
        table
    }

    /// Puts an address into a table: at its first unused place, so that all others keep their
    /// index. `false`: the table is full.
    ///
    /// In the kernel's tables a link-local address is the first, and the IPv4 address the second,
    /// where programs that were made for them look. Where there is no link-local address, the IPv4
    /// address has both places.
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

/// Takes an address out of a table and leaves its entry unused.
fn remove(table: &mut [Gid], address: IpAddr) {
    table.iter_mut().filter(|gid| **gid == address.into()).for_each(|gid| *gid = Gid::default());
}

/// The places of addresses in the GID table of a device. Shards of one device have them in common,
/// so that an index means the same address in each, in whatever order they hear of addresses.
#[derive(Clone, Debug, Default)]
pub(crate) struct GidPlaces {
    layout: GidLayout,
    taken: Arc<Mutex<Vec<Gid>>>,
}

impl GidPlaces {
    /// Those of a table that has been laid out so.
    pub(crate) fn new(layout: GidLayout, table: Vec<Gid>) -> Self {
        Self { layout, taken: Arc::new(Mutex::new(table)) }
    }

    /// The table of a further shard with these addresses.
    pub(crate) fn table(&self, addresses: impl IntoIterator<Item = IpAddr>) -> Vec<Gid> {
        let mut table = Vec::new();
        for address in addresses {
            self.insert(&mut table, address); // more than a table holds are left out
        }
        table
    }

    /// Puts an address into the table of a shard, where others have it, or else where the
    /// [layout](GidLayout::insert) does. `false`: the table is full.
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

    /// Takes an address out of the table of a shard; it has gone for the others, too.
    pub(crate) fn remove(&self, table: &mut [Gid], address: IpAddr) {
        remove(table, address);
        remove(&mut self.taken.lock(), address);
    }
}

/// Notices that interfaces have changed. A routing socket only tells *that* something has changed.
/// The state is read again, so a lost message, or a future format, does no harm.
pub(crate) struct Watch {
    socket: OwnedFd,
    interface: u32,
    pub(crate) follows: Follows,
    /// Processes that are stopped and have addresses of the interface, and the time of the next
    /// look at them.
    stopped: Mutex<Option<(Vec<u32>, Instant)>>,
}

/// The protocol has number 0, which is the default.
const NETLINK_ROUTE: Option<rustix::net::Protocol> = None;

/// Groups of messages: links, and addresses of both families (`RTMGRP_LINK`, `RTMGRP_IPV4_IFADDR`,
/// `RTMGRP_IPV6_IFADDR`).
const GROUPS: u32 = 0x1 | 0x10 | 0x100;

impl Watch {
    /// Watches the interface with this index. Needs no privilege.
    pub(crate) fn new(interface: u32, follows: Follows) -> io::Result<Self> {
        let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
        let socket = socket_with(AddressFamily::NETLINK, SocketType::RAW, flags, NETLINK_ROUTE)?;
        bind(&socket, &netlink::SocketAddrNetlink::new(0, GROUPS))?;
        Ok(Self { socket, interface, follows, stopped: Mutex::default() })
    }

    /// An address cannot be used. If a process has it that is stopped, there is news when that goes
    /// on, or ends.
    pub(crate) fn await_end_of(&self, error: &BindError) {
        let &BindError::Stopped { process, .. } = error else { return };
        let mut stopped = self.stopped.lock();
        stopped.get_or_insert_with(|| (Vec::new(), clock::now().plus(LOOK))).0.push(process);
    }

    /// Time after which there may be news although its descriptor is not readable.
    pub(crate) fn looks_after(&self) -> Option<Duration> {
        let stopped = self.stopped.lock();
        stopped.as_ref().map(|(_, look_at)| look_at.since(clock::now()))
    }

    /// True if one of those that were stopped is not any more.
    fn goes_on(&self) -> bool {
        let mut stopped = self.stopped.lock();
        let Some((processes, look_at)) = &mut *stopped else { return false };
        if clock::now() < *look_at {
            return false;
        }
        *look_at = clock::now().plus(LOOK);
        let goes_on = !processes.iter().all(|&process| is_stopped(process));
        if goes_on {
            *stopped = None; // those that still are stopped are found again
        }
        goes_on
    }

    /// True if any interface has changed since the last call, or addresses may be free now.
    pub(crate) fn has_news(&self) -> bool {
        let mut news = self.goes_on();
        // bounded, so that a flood of messages does not keep its reader for ever
        for _ in 0..1024 {
            let mut ignored = [0_u8; 64];
            match recv(&self.socket, &mut ignored, RecvFlags::TRUNC) {
                Ok(_) | Err(Errno::NOBUFS) => news = true, // messages that found no room are news too
                Err(Errno::INTR) => {}
                Err(_) => break,
            }
        }
        news
    }

    /// Present state of the interface.
    pub(crate) fn state(&self) -> InterfaceState {
        let interfaces = pnet_datalink::interfaces();
        let interface = interfaces.iter().find(|interface| interface.index == self.interface);
        interface.map_or(InterfaceState::GONE, InterfaceState::of)
    }

    pub(crate) const fn interface(&self) -> u32 {
        self.interface
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
        // both entries come and go together
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
