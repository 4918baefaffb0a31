mod leasing;
mod membership;
mod receive;

use std::{
    collections::{BTreeMap, VecDeque},
    net::{IpAddr, Ipv4Addr, Ipv6Addr},
    time::Duration,
};

use pnet_datalink::MacAddr;
use roce_transport::{adapter::Transmit, time::Instant, wire::NetHeader};
use smoltcp::wire::{ArpOperation, Icmpv6Repr, NdiscNeighborFlags, NdiscRepr, RawHardwareAddress};

use super::{
    address::{PROBE_INTERVAL, PROBES, Prefix},
    build::Ethernet,
    counters::{
        FrameCounters, Handled, NOT_FOR_US, OTHER_PROTOCOL, OTHER_VLAN, VLAN_STACK, refuse_if,
    },
    dhcp::{Client, Lease},
    frame::{Frame, Packet, Vlan},
    groups::Groups,
    neighbors::{Hop, Neighbors},
    pauses::Pauses,
};

const OUTBOX: usize = 512;
const EVENTS: usize = 16;
/// `DEFEND_INTERVAL` (RFC 5227), between two announcements against others' claims.
const DEFEND: Duration = Duration::from_secs(10);
/// Reported paths, and the lifetime of a report (RFC 8201).
const PATHS: usize = 64;
const PATH_AGE: Duration = Duration::from_secs(600);
/// Least MTUs of IPv4 and IPv6.
const LEAST_MTU: [u32; 2] = [576, 1280];

const NO_MAC: MacAddr = MacAddr(0, 0, 0, 0, 0, 0);
const BROADCAST: MacAddr = MacAddr(255, 255, 255, 255, 255, 255);
/// Destination of pauses, which no switch forwards.
pub const PAUSE_GROUP: MacAddr = MacAddr(0x01, 0x80, 0xC2, 0, 0, 0x01);
const ALL_SYSTEMS: Ipv4Addr = Ipv4Addr::new(224, 0, 0, 1);
const ALL_NODES: Ipv6Addr = Ipv6Addr::new(0xFF02, 0, 0, 0, 0, 0, 0, 1);

/// Configuration of a [`Station`].
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub struct StationConfig {
    /// Its MAC address.
    pub mac: MacAddr,
    /// VLAN of its frames; `None`: untagged.
    pub vlan: Option<Vlan>,
    /// Its IP addresses.
    pub addresses: Vec<Prefix>,
    /// Gateways, at most one per family.
    pub gateways: Vec<IpAddr>,
    /// True: the station probes and defends its addresses. False: the kernel does both.
    pub replies: bool,
    /// RoCE v1 is sent and accepted.
    pub roce_v1: bool,
    /// Seed of DHCP for another IPv4 address.
    pub dhcp: Option<[u8; 32]>,
    /// Interface speed in Mbit/s: a pause quantum is 512 bit times.
    pub mbps: u32,
}

/// State of a station's addresses.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[allow(missing_docs, reason = "a state's comment describes its fields")]
pub enum Assignment {
    /// Probing, or waiting for a lease.
    Probing,
    /// All are usable.
    Assigned,
    /// Another host has an address: the holder's MAC address.
    Taken { address: IpAddr, mac: MacAddr },
}

/// An event for the user.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[allow(missing_docs, reason = "an event's comment describes its fields")]
pub enum StationEvent {
    /// Another host claims an address of this station: the claimant's MAC address.
    Conflict { address: IpAddr, mac: MacAddr },
    /// A router reports a narrow path to a destination: greatest IP packet length in bytes.
    PathMtu { to: IpAddr, mtu: u32 },
    /// A server leased this address.
    Leased { address: IpAddr, server: IpAddr },
    /// The lease of this address ended.
    LeaseLost { address: IpAddr },
}

/// An arrived RoCE packet.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Received<'a> {
    /// Network header fields.
    pub net: NetHeader,
    /// BTH to ICRC.
    pub bytes: &'a [u8],
}

/// A host on an Ethernet network: frames and time go in, frames and RoCEv2 packets come out. Drain
/// [`poll_frame`](Self::poll_frame) after each call.
#[derive(Debug)]
pub struct Station {
    config: StationConfig,
    assignment: Assignment,
    /// Count sent; time of the next probe or of the verdict.
    probes: (u8, Instant),
    neighbors: Neighbors,
    groups: Groups,
    pauses: Pauses,
    outbox: VecDeque<Vec<u8>>,
    counters: FrameCounters,
    events: VecDeque<StationEvent>,
    defended: Option<Instant>,
    /// MTU and time of the report.
    paths: BTreeMap<IpAddr, (u32, Instant)>,
    dhcp: Option<Box<Client>>,
    lease: Option<Lease>,
    /// Source of the last DHCP message.
    server_mac: MacAddr,
}

impl Station {
    /// A station that starts probing its addresses.
    #[must_use]
    pub fn new(config: StationConfig, now: Instant) -> Self {
        let assignment = match config.replies && !config.addresses.is_empty() {
            true => Assignment::Probing,
            false => Assignment::Assigned,
        };
        let mut station = Self {
            groups: Groups::new(config.mac, config.replies),
            pauses: Pauses::new(config.mbps),
            dhcp: config.dhcp.map(|seed| Box::new(Client::new(config.mac, seed, now))),
            lease: None,
            server_mac: BROADCAST,
            config,
            assignment,
            probes: (0, now),
            neighbors: Neighbors::default(),
            outbox: VecDeque::new(),
            counters: FrameCounters::default(),
            events: VecDeque::new(),
            defended: None,
            paths: BTreeMap::new(),
        };
        station.join_own_groups(now);
        station.handle_timeout(now);
        station
    }

    /// Its configuration.
    #[must_use]
    pub const fn config(&self) -> &StationConfig {
        &self.config
    }

    /// State of the addresses.
    #[must_use]
    pub const fn assignment(&self) -> Assignment {
        match self.assignment {
            Assignment::Assigned if self.dhcp.is_some() && self.lease.is_none() => {
                Assignment::Probing
            }
            other => other,
        }
    }

    /// Frame counters.
    #[must_use]
    pub const fn counters(&self) -> &FrameCounters {
        &self.counters
    }

    /// Frame counters for the mover of frames.
    pub const fn counters_mut(&mut self) -> &mut FrameCounters {
        &mut self.counters
    }

    /// Handles a frame, and returns its RoCE packet.
    ///
    /// `untagged`: the receiver removed a tag of the station's VLAN.
    pub fn handle_frame<'a>(
        &mut self,
        now: Instant,
        bytes: &'a [u8],
        untagged: bool,
    ) -> Option<Received<'a>> {
        self.handle(now, bytes, untagged).unwrap_or_else(|unused| {
            *unused(&mut self.counters) += 1;
            None
        })
    }

    fn handle<'a>(
        &mut self,
        now: Instant,
        bytes: &'a [u8],
        untagged: bool,
    ) -> Handled<Option<Received<'a>>> {
        let frame = Frame::parse(bytes)?;
        if let (None, Packet::MacControl(message)) = (frame.vlan, &frame.packet) {
            return self.handle_mac_control(now, frame.dst, message).map(|()| None);
        }
        let own_vlan = self.config.vlan.map_or(0, |vlan| vlan.id);
        match frame.vlan {
            Some(_) if untagged => return Err(VLAN_STACK),
            None if untagged => {}
            tag if tag.unwrap_or(0) == own_vlan => {}
            _ => return Err(OTHER_VLAN),
        }
        let group = frame.dst.0 & 1 == 1;
        let is_own = |mac: MacAddr| mac == self.config.mac;
        refuse_if(!is_own(frame.dst) && !group || is_own(frame.src), NOT_FOR_US)?;
        match frame.packet {
            Packet::Arp(message) => self.handle_arp(now, message).map(|()| None),
            Packet::Ip(packet) => self.handle_ip(now, frame.src, packet),
            Packet::RoceV1(packet) if self.config.roce_v1 => self.handle_roce_v1(&packet).map(Some),
            Packet::RoceV1(_) | Packet::MacControl(_) | Packet::Other(_) => Err(OTHER_PROTOCOL),
        }
    }

    /// True if a tagged frame is a RoCE packet for this station.
    #[must_use]
    pub fn takes(&self, bytes: &[u8]) -> bool {
        let Ok(frame) = Frame::parse(bytes) else { return false };
        let own_vlan = self.config.vlan.map_or(0, |vlan| vlan.id);
        let packet = match frame.packet {
            Packet::Ip(packet) if packet.is_roce() => packet,
            Packet::RoceV1(packet) if self.config.roce_v1 => packet,
            _ => return false,
        };
        let is_here = frame.dst == self.config.mac || frame.dst.0 & 1 == 1;
        is_here
            && frame.vlan.unwrap_or(0) == own_vlan
            && (self.is_own(packet.dst) || self.is_member(packet.dst))
    }

    fn handle_mac_control(&mut self, now: Instant, dst: MacAddr, message: &[u8]) -> Handled {
        // Bridges forward pauses to a station's address: any host could send them.
        refuse_if(dst != PAUSE_GROUP, NOT_FOR_US)?;
        self.pauses.take(now, message)?;
        self.counters.pauses += 1;
        Ok(())
    }

    /// True if a run is paused or behind others of its priority.
    #[must_use]
    pub fn holds(&self, now: Instant, run: &Transmit) -> bool {
        self.pauses.holds(now, self.priority(&run.net_header(0)))
    }

    /// Queues a paused run; `false`: full.
    pub fn hold(&mut self, mac: MacAddr, run: &Transmit, bytes: &[u8]) -> bool {
        let priority = self.priority(&run.net_header(0));
        let datagrams = run.datagrams(bytes);
        let frame =
            |(net, payload): (NetHeader, &[u8])| self.of_flow(mac, &net).roce(&net, payload);
        self.keep(priority, datagrams.map(frame).collect())
    }

    /// `false`: full.
    fn keep(&mut self, priority: u8, frames: Vec<Vec<u8>>) -> bool {
        let count = frames.len() as u64;
        let held = self.pauses.hold(priority, frames.into_iter());
        self.counters.paused += if held { count } else { 0 };
        held
    }

    /// Queues a program's paused frame. `None`: not paused; `Some(false)`: full.
    pub fn hold_frame(&mut self, now: Instant, frame: &[u8]) -> Option<bool> {
        let priority = frame_priority(frame);
        let waits = self.pauses.holds(now, priority);
        waits.then(|| self.keep(priority, vec![frame.to_vec()]))
    }

    /// Next frame whose pause has ended; [pop](Self::pop_released) it once sent.
    #[must_use]
    pub fn released(&self, now: Instant) -> Option<&[u8]> {
        self.pauses.released(now)
    }

    /// Removes the [released](Self::released) frame.
    pub fn pop_released(&mut self, now: Instant) {
        self.pauses.pop_released(now);
    }

    /// Next hop towards an address.
    pub fn route(&mut self, now: Instant, to: IpAddr) -> Hop {
        if self.is_own(to) {
            return Hop::Own;
        }
        if let Some(mac) = group_mac(to) {
            return Hop::Known(mac);
        }
        let near = is_link_local(to) || self.config.addresses.iter().any(|own| own.contains(to));
        let Some(hop) = (if near { Some(to) } else { self.gateway(to) }) else {
            self.counters.no_route += 1;
            return Hop::None;
        };
        let hop = self.neighbors.lookup(now, hop, &mut self.counters);
        self.send_solicitations();
        hop
    }

    /// Queues a run's datagrams until the hop resolves. The run's range indexes `bytes`.
    pub fn wait(&mut self, hop: IpAddr, run: &Transmit, bytes: &[u8]) {
        for (net, payload) in run.datagrams(bytes) {
            let frame = self.of_flow(NO_MAC, &net).roce(&net, payload);
            self.neighbors.wait(hop, (self.priority(&net), frame), &mut self.counters);
        }
    }

    /// Headers of a run's first datagram, from the Ethernet header on.
    #[must_use]
    pub fn headers(&self, mac: MacAddr, run: &Transmit, payload: usize) -> Vec<u8> {
        let net = run.net_header(0);
        self.of_flow(mac, &net).roce_headers(&net, payload)
    }

    /// Next frame to send.
    pub fn poll_frame(&mut self) -> Option<Vec<u8>> {
        self.outbox.pop_front()
    }

    /// Next event.
    pub fn poll_event(&mut self) -> Option<StationEvent> {
        self.events.pop_front()
    }

    /// True if datagrams wait for resolution or a pause.
    #[must_use]
    pub fn has_waiting(&self) -> bool {
        self.neighbors.has_waiting() || self.pauses.has_held()
    }

    /// Time of [`handle_timeout`](Self::handle_timeout) and of [released](Self::released) frames.
    #[must_use]
    pub fn poll_timeout(&self) -> Option<Instant> {
        let probing = (self.assignment == Assignment::Probing).then_some(self.probes.1);
        let groups = self.groups.poll_timeout();
        let pauses = self.pauses.poll_timeout();
        let dhcp = self.dhcp.as_ref().map(|dhcp| dhcp.poll_timeout());
        Instant::earliest([probing, self.neighbors.poll_timeout(), groups, pauses, dhcp])
    }

    /// Acts on due timers.
    pub fn handle_timeout(&mut self, now: Instant) {
        let (sent, due) = self.probes;
        if self.assignment == Assignment::Probing && due <= now {
            if sent < PROBES {
                self.probes = (sent + 1, now.plus(PROBE_INTERVAL));
                self.each_address(Self::probe);
            } else {
                self.assignment = Assignment::Assigned;
                self.each_address(Self::announce);
            }
        }
        self.poll_dhcp(now);
        self.neighbors.handle_timeout(now, &mut self.counters);
        self.send_solicitations();
        self.send_reports(now);
    }

    /// Path MTU of a router's recent report.
    #[must_use]
    pub fn path_mtu(&self, now: Instant, to: IpAddr) -> Option<u32> {
        let &(mtu, at) = self.paths.get(&to)?;
        (now.since(at) < PATH_AGE).then_some(mtu)
    }

    /// True for its own address.
    #[must_use]
    pub fn is_own(&self, address: IpAddr) -> bool {
        self.config.addresses.iter().any(|own| own.address == address)
    }

    fn to(&self, dst: MacAddr) -> Ethernet {
        Ethernet { dst, src: self.config.mac, vlan: self.config.vlan }
    }

    /// Low three bits of the service level, else the VLAN's priority, without a VLAN the class of
    /// the DSCP.
    fn priority(&self, net: &NetHeader) -> u8 {
        match (net.frame.service_level() & 7, self.config.vlan) {
            (0, Some(vlan)) => vlan.priority,
            (0, None) => net.traffic_class >> 5,
            (priority, _) => priority,
        }
    }

    fn of_flow(&self, dst: MacAddr, net: &NetHeader) -> Ethernet {
        let priority = self.priority(net);
        let vlan = self.config.vlan.map(|vlan| Vlan { priority, ..vlan });
        Ethernet { vlan, ..self.to(dst) }
    }

    fn put(&mut self, frame: Vec<u8>) {
        if self.outbox.len() < OUTBOX {
            self.outbox.push_back(frame);
        }
    }

    fn push_event(&mut self, event: StationEvent) {
        if self.events.len() < EVENTS {
            self.events.push_back(event);
        }
    }

    fn each_address(&mut self, act: fn(&mut Self, IpAddr)) {
        let addresses: Vec<_> = self.config.addresses.iter().map(|own| own.address).collect();
        addresses.into_iter().for_each(|address| act(self, address));
    }

    /// From the unspecified address (RFC 5227, RFC 4862).
    fn probe(&mut self, address: IpAddr) {
        let frame = match address {
            IpAddr::V4(v4) => self.arp_request(None, Ipv4Addr::UNSPECIFIED, v4),
            IpAddr::V6(v6) => self.solicit(None, Ipv6Addr::UNSPECIFIED, v6),
        };
        self.put(frame);
    }

    fn announce(&mut self, address: IpAddr) {
        let frame = match address {
            IpAddr::V4(v4) => self.arp_request(None, v4, v4),
            IpAddr::V6(v6) => self.advertise(None, v6, ALL_NODES),
        };
        self.put(frame);
    }

    fn send_solicitations(&mut self) {
        while let Some((target, to)) = self.neighbors.poll_solicitation() {
            let Some(own) = self.source_for(target) else { continue };
            let frame = match (own, target) {
                (IpAddr::V4(own), IpAddr::V4(target)) => self.arp_request(to, own, target),
                (IpAddr::V6(own), IpAddr::V6(target)) => self.solicit(to, own, target),
                _ => continue,
            };
            self.put(frame);
        }
    }

    fn source_for(&self, target: IpAddr) -> Option<IpAddr> {
        let own = &self.config.addresses;
        let near = own.iter().find(|own| own.contains(target));
        let of_family = || own.iter().find(|own| own.address.is_ipv4() == target.is_ipv4());
        near.or_else(of_family).map(|own| own.address)
    }

    fn arp_request(&self, to: Option<MacAddr>, own: Ipv4Addr, target: Ipv4Addr) -> Vec<u8> {
        let sender = (self.config.mac, own);
        self.to(to.unwrap_or(BROADCAST)).arp(ArpOperation::Request, sender, (NO_MAC, target))
    }

    fn solicit(&self, to: Option<MacAddr>, own: Ipv6Addr, target: Ipv6Addr) -> Vec<u8> {
        let lladdr = (!own.is_unspecified()).then(|| raw(self.config.mac));
        let repr = Icmpv6Repr::Ndisc(NdiscRepr::NeighborSolicit { target_addr: target, lladdr });
        let group = solicited_node(target);
        let (mac, dst) = match to {
            Some(mac) => (mac, target),
            None => (group_mac(group.into()).unwrap_or(BROADCAST), group),
        };
        self.to(mac).icmpv6(own, dst, 255, &repr)
    }

    fn advertise(&self, to: Option<MacAddr>, own: Ipv6Addr, dst: Ipv6Addr) -> Vec<u8> {
        let solicited = match to {
            Some(_) => NdiscNeighborFlags::SOLICITED,
            None => NdiscNeighborFlags::empty(),
        };
        let repr = Icmpv6Repr::Ndisc(NdiscRepr::NeighborAdvert {
            flags: NdiscNeighborFlags::OVERRIDE | solicited,
            target_addr: own,
            lladdr: Some(raw(self.config.mac)),
        });
        let mac = to.or_else(|| group_mac(dst.into())).unwrap_or(BROADCAST);
        self.to(mac).icmpv6(own, dst, 255, &repr)
    }
}

/// The tag's priority, or the class of the DSCP.
const fn frame_priority(frame: &[u8]) -> u8 {
    match frame {
        [_, _, _, _, _, _, _, _, _, _, _, _, 0x81, 0, tag, ..] => *tag >> 5,
        [_, _, _, _, _, _, _, _, _, _, _, _, 0x08, 0, _, tos, ..] => *tos >> 5,
        [_, _, _, _, _, _, _, _, _, _, _, _, 0x86, 0xDD, class, ..] => (*class & 0x0F) >> 1,
        _ => 0,
    }
}

fn raw(mac: MacAddr) -> RawHardwareAddress {
    RawHardwareAddress::from_bytes(&mac.octets())
}

/// RFC 4291, section 2.7.1.
const fn solicited_node(address: Ipv6Addr) -> Ipv6Addr {
    let [.., high, low] = address.segments();
    Ipv6Addr::new(0xFF02, 0, 0, 0, 0, 1, 0xFF00 | (high & 0xFF), low)
}

/// MAC address of a multicast group or broadcast (RFC 1112, RFC 2464).
pub fn group_mac(address: IpAddr) -> Option<MacAddr> {
    match address {
        IpAddr::V4(v4) if v4.is_broadcast() => Some(BROADCAST),
        IpAddr::V4(v4) if v4.is_multicast() => {
            let [_, a, b, c] = v4.octets();
            Some(MacAddr(1, 0, 0x5E, a & 0x7F, b, c))
        }
        IpAddr::V6(v6) if v6.is_multicast() => {
            let [.., a, b, c, d] = v6.octets();
            Some(MacAddr(0x33, 0x33, a, b, c, d))
        }
        _ => None,
    }
}

/// MAC addresses to accept besides broadcast.
pub fn memberships(config: &StationConfig) -> Vec<MacAddr> {
    if !config.replies {
        return vec![PAUSE_GROUP]; // the kernel has joined the rest
    }
    let groups = config.addresses.iter().flat_map(|own| match own.address {
        IpAddr::V4(_) => vec![ALL_SYSTEMS.into()],
        IpAddr::V6(v6) => vec![ALL_NODES.into(), solicited_node(v6).into()],
    });
    let groups = groups.chain(config.dhcp.map(|_| ALL_SYSTEMS.into()));
    [config.mac, PAUSE_GROUP].into_iter().chain(groups.filter_map(group_mac)).collect()
}

fn is_link_local(address: IpAddr) -> bool {
    match address {
        IpAddr::V4(v4) => v4.is_link_local(),
        IpAddr::V6(v6) => v6.is_unicast_link_local(),
    }
}
