use std::net::{IpAddr, Ipv6Addr};

use pnet_datalink::MacAddr;
use roce_transport::{
    addr::{ROCE_UDP_PORT, RoceVersion},
    time::Instant,
    wire::{FrameFields, NetHeader},
};
use smoltcp::{
    phy::ChecksumCapabilities,
    wire::{
        ArpOperation, ArpPacket, ArpRepr, Icmpv4Message, Icmpv4Packet, Icmpv4Repr, Icmpv6Message,
        Icmpv6Packet, Icmpv6Repr, NdiscNeighborFlags, NdiscRepr, RawHardwareAddress,
    },
};

use super::{
    super::{
        build::Ip,
        counters::{BAD_ARP, BAD_UDP, Handled, NOT_FOR_US, OTHER_PROTOCOL, refuse_if},
        frame::{IpPacket, UDP, chunk},
        neighbors::Claim,
    },
    ALL_NODES, Assignment, DEFEND, LEAST_MTU, NO_MAC, PATHS, Received, Station, StationEvent,
    membership::{MLD_QUERY, MLDV1_REPORT},
};

const ICMP: u8 = 1;
const IGMP: u8 = 2;
const ICMPV6: u8 = 58;

impl Station {
    pub(super) fn handle_arp(&mut self, now: Instant, message: &[u8]) -> Handled {
        let repr = ArpPacket::new_checked(message).and_then(|packet| ArpRepr::parse(&packet));
        let Ok(ArpRepr::EthernetIpv4 {
            operation,
            source_hardware_addr,
            source_protocol_addr: sender,
            target_protocol_addr: target,
            ..
        }) = repr
        else {
            return Err(BAD_ARP);
        };
        let mac = MacAddr::from(source_hardware_addr.0);
        let is_host = !sender.is_multicast() && !sender.is_broadcast();
        refuse_if(mac.0 & 1 == 1 || mac == NO_MAC || !is_host, BAD_ARP)?;
        if mac == self.config.mac {
            return Ok(()); // returned by a switch
        }
        let probe = sender.is_unspecified();
        let claimed = if probe { target } else { sender };
        if self.declines(now, claimed, mac) {
            return Ok(());
        }
        if self.is_own(claimed.into()) && (!probe || self.assignment == Assignment::Probing) {
            self.handle_conflict(now, claimed.into(), mac);
            return Ok(());
        }
        if !probe {
            let claim = match operation {
                ArpOperation::Reply if self.is_own(target.into()) => Claim::Reply,
                _ => Claim::Unsolicited,
            };
            self.learn(now, sender.into(), mac, claim);
        }
        let asked = operation == ArpOperation::Request && self.is_own(target.into());
        if asked && self.may_reply() {
            let reply =
                self.to(mac).arp(ArpOperation::Reply, (self.config.mac, target), (mac, sender));
            self.counters.answered += 1;
            self.put(reply);
        }
        Ok(())
    }

    fn may_reply(&self) -> bool {
        self.config.replies && self.assignment == Assignment::Assigned
    }

    fn handle_conflict(&mut self, now: Instant, address: IpAddr, mac: MacAddr) {
        self.counters.conflicts += 1;
        if !self.config.replies {
            return;
        }
        if self.assignment == Assignment::Probing {
            self.assignment = Assignment::Taken { address, mac };
        } else if self.defended.is_none_or(|last| now.since(last) >= DEFEND) {
            self.defended = Some(now);
            self.announce(address);
            self.push_event(StationEvent::Conflict { address, mac });
        }
    }

    fn learn(&mut self, now: Instant, address: IpAddr, mac: MacAddr, claim: Claim) {
        let released = self.neighbors.learn(now, address, mac, claim, &mut self.counters);
        for (priority, frame) in released {
            if !self.pauses.holds(now, priority) {
                self.put(frame);
            } else if !self.keep(priority, vec![frame]) {
                self.counters.waiting_lost += 1;
            }
        }
    }

    pub(super) fn handle_ip<'a>(
        &mut self,
        now: Instant,
        mac: MacAddr,
        packet: IpPacket<'a>,
    ) -> Handled<Option<Received<'a>>> {
        if packet.protocol == ICMPV6 {
            return self.handle_icmpv6(now, mac, &packet).map(|()| None);
        }
        let group = packet.dst.is_ipv4() && packet.dst.is_multicast();
        if packet.protocol == IGMP && group {
            return self.handle_igmp(now, &packet).map(|()| None);
        }
        if packet.protocol == UDP && self.handle_dhcp(now, mac, &packet) {
            return Ok(None);
        }
        self.expect_here(packet.dst)?;
        match packet.protocol {
            UDP => self.handle_udp(&packet).map(Some),
            ICMP if packet.dst.is_ipv4() && !group => {
                self.handle_icmpv4(now, mac, &packet).map(|()| None)
            }
            _ => Err(OTHER_PROTOCOL),
        }
    }

    fn expect_here(&self, dst: IpAddr) -> Handled {
        if self.is_own(dst) || self.is_member(dst) { Ok(()) } else { Err(NOT_FOR_US) }
    }

    fn handle_udp<'a>(&self, packet: &IpPacket<'a>) -> Handled<Received<'a>> {
        let (header, _) = packet.payload.split_first_chunk::<8>().ok_or(BAD_UDP)?;
        let field = |at: usize| u16::from_be_bytes([header[at], header[at + 1]]);
        refuse_if(field(2) != ROCE_UDP_PORT, OTHER_PROTOCOL)?;
        let bytes = packet.payload.get(8..usize::from(field(4)));
        // An IPv4-mapped address would be another host's GID.
        let bytes = bytes.filter(|_| packet.src.to_canonical() == packet.src);
        self.receive(packet, RoceVersion::V2, field(0), bytes)
    }

    pub(super) fn handle_roce_v1<'a>(&self, packet: &IpPacket<'a>) -> Handled<Received<'a>> {
        self.expect_here(packet.dst)?;
        self.receive(packet, RoceVersion::V1, 0, Some(packet.payload))
    }

    fn receive<'a>(
        &self,
        packet: &IpPacket<'a>,
        version: RoceVersion,
        src_port: u16,
        bytes: Option<&'a [u8]>,
    ) -> Handled<Received<'a>> {
        let &IpPacket { src, dst, traffic_class, hop_limit, flow_label, ident, .. } = packet;
        let is_host = !src.is_multicast() && !src.is_unspecified();
        let bytes = bytes.filter(|_| is_host).ok_or(BAD_UDP)?;
        refuse_if(self.assignment != Assignment::Assigned, NOT_FOR_US)?;
        let frame = FrameFields::new(version, 0, flow_label);
        let net = NetHeader { src, dst, src_port, traffic_class, hop_limit, ident, frame };
        Ok(Received { net, bytes })
    }

    fn handle_icmpv4(&mut self, now: Instant, mac: MacAddr, packet: &IpPacket<'_>) -> Handled {
        let (IpAddr::V4(src), IpAddr::V4(dst)) = (packet.src, packet.dst) else { return Ok(()) };
        let message = Icmpv4Packet::new_checked(packet.payload);
        let message = message.ok().filter(Icmpv4Packet::verify_checksum).ok_or(BAD_ARP)?;
        match (message.msg_type(), message.msg_code()) {
            (Icmpv4Message::EchoRequest, 0) => {
                if !self.may_reply() || src.is_multicast() || src.is_unspecified() {
                    return Ok(());
                }
                let reply = Icmpv4Repr::EchoReply {
                    ident: message.echo_ident(),
                    seq_no: message.echo_seq_no(),
                    data: message.data(),
                };
                let traffic_class = packet.traffic_class & !3;
                let ip = Ip { traffic_class, ..Ip::new(dst.into(), src.into(), 64) };
                let frame = self.to(mac).icmpv4(ip, &reply);
                self.counters.answered += 1;
                self.put(frame);
            }
            // Fragmentation needed (RFC 1191).
            (Icmpv4Message::DstUnreachable, 4) => {
                let mtu = chunk(packet.payload, 6).map_or(0, u16::from_be_bytes);
                // The quoted packet may be cut.
                let quoted = packet.payload.get(8..).unwrap_or_default();
                let header = usize::from(quoted.first().map_or(0, |byte| byte & 15)) * 4;
                let address = |at| chunk::<4>(quoted, at).map(IpAddr::from);
                if quoted.get(9) == Some(&UDP) {
                    self.advise(now, mtu.into(), address(12), address(16), quoted.get(header..));
                }
            }
            _ => return Err(OTHER_PROTOCOL),
        }
        Ok(())
    }

    fn handle_icmpv6(&mut self, now: Instant, mac: MacAddr, packet: &IpPacket<'_>) -> Handled {
        let (IpAddr::V6(src), IpAddr::V6(dst)) = (packet.src, packet.dst) else { return Ok(()) };
        refuse_if(!self.is_own(dst.into()) && !dst.is_multicast(), NOT_FOR_US)?;
        // smoltcp knows MLDv2 only.
        if matches!(packet.payload.first(), Some(&(MLD_QUERY | MLDV1_REPORT))) {
            return self.handle_mld(now, packet);
        }
        let message = Icmpv6Packet::new_checked(packet.payload);
        let message = message.ok().filter(|message| message.verify_checksum(&src, &dst));
        let message = message.ok_or(BAD_ARP)?;
        let caps = ChecksumCapabilities::ignored();
        match message.msg_type() {
            Icmpv6Message::NeighborSolicit | Icmpv6Message::NeighborAdvert => {
                // RFC 4861, sections 7.1.1 and 7.1.2: not from beyond a router.
                let parsed = (packet.hop_limit == 255 && message.msg_code() == 0)
                    .then(|| Icmpv6Repr::parse(&src, &dst, &message, &caps));
                let Some(Ok(Icmpv6Repr::Ndisc(ndisc))) = parsed else { return Err(BAD_ARP) };
                self.handle_ndisc(now, mac, (src, dst), &ndisc)?;
            }
            Icmpv6Message::EchoRequest => {
                if !self.may_reply() || dst.is_multicast() || src.is_unspecified() {
                    return Ok(());
                }
                let reply = Icmpv6Repr::EchoReply {
                    ident: message.echo_ident(),
                    seq_no: message.echo_seq_no(),
                    data: message.payload(),
                };
                let frame = self.to(mac).icmpv6(dst, src, 64, &reply);
                self.counters.answered += 1;
                self.put(frame);
            }
            Icmpv6Message::PktTooBig => {
                let mtu = chunk(packet.payload, 4).map_or(0, u32::from_be_bytes);
                let quoted = packet.payload.get(8..).unwrap_or_default();
                let address = |at| chunk::<16>(quoted, at).map(IpAddr::from);
                if quoted.get(6) == Some(&UDP) {
                    self.advise(now, mtu, address(8), address(24), quoted.get(40..));
                }
            }
            _ => return Err(OTHER_PROTOCOL),
        }
        Ok(())
    }

    fn handle_ndisc(
        &mut self,
        now: Instant,
        mac: MacAddr,
        (src, dst): (Ipv6Addr, Ipv6Addr),
        message: &NdiscRepr<'_>,
    ) -> Handled {
        let given = |lladdr: &Option<RawHardwareAddress>| {
            let octets = lladdr.as_ref()?.as_bytes().first_chunk::<6>().copied()?;
            Some(MacAddr::from(octets)).filter(|mac| mac.0 & 1 == 0)
        };
        match message {
            NdiscRepr::NeighborSolicit { target_addr: target, lladdr } => {
                let probe = src.is_unspecified();
                let bad_probe = probe && (lladdr.is_some() || !dst.is_multicast());
                refuse_if(bad_probe || target.is_multicast(), BAD_ARP)?;
                if let Some(mac) = given(lladdr).filter(|_| !probe) {
                    self.learn(now, src.into(), mac, Claim::Unsolicited);
                }
                if !self.is_own((*target).into()) {
                    return Ok(());
                }
                if probe && self.assignment == Assignment::Probing {
                    self.handle_conflict(now, (*target).into(), mac);
                } else if self.may_reply() {
                    let to = given(lladdr).unwrap_or(mac);
                    let frame = match probe {
                        true => self.advertise(None, *target, ALL_NODES),
                        false => self.advertise(Some(to), *target, src),
                    };
                    self.counters.answered += 1;
                    self.put(frame);
                }
            }
            NdiscRepr::NeighborAdvert { flags, target_addr: target, lladdr } => {
                let solicited = flags.contains(NdiscNeighborFlags::SOLICITED);
                refuse_if(target.is_multicast() || solicited && dst.is_multicast(), BAD_ARP)?;
                if self.is_own((*target).into()) {
                    let from = given(lladdr).unwrap_or(mac);
                    if from != self.config.mac {
                        self.handle_conflict(now, (*target).into(), from);
                    }
                } else {
                    let overrides = flags.contains(NdiscNeighborFlags::OVERRIDE);
                    let claim = match (solicited, overrides) {
                        (_, false) => Claim::NoOverride,
                        (true, true) => Claim::Reply,
                        (false, true) => Claim::Unsolicited,
                    };
                    self.learn(now, (*target).into(), given(lladdr).unwrap_or(mac), claim);
                }
            }
            _ => return Err(OTHER_PROTOCOL),
        }
        Ok(())
    }

    /// A router's report is advice only: the program chooses a queue pair's path MTU.
    fn advise(
        &mut self,
        now: Instant,
        mtu: u32,
        src: Option<IpAddr>,
        dst: Option<IpAddr>,
        udp: Option<&[u8]>,
    ) {
        let (Some(src), Some(to)) = (src, dst) else { return };
        let port = udp.and_then(|udp| chunk(udp, 2)).map(u16::from_be_bytes);
        let ours = self.is_own(src) && port == Some(ROCE_UDP_PORT);
        if !ours || mtu < LEAST_MTU[usize::from(to.is_ipv6())] {
            return;
        }
        self.counters.path_mtu += 1;
        let known = self.path_mtu(now, to);
        if known.is_none() && self.paths.len() >= PATHS {
            let oldest = self.paths.iter().min_by_key(|(_, (_, at))| *at).map(|(&to, _)| to);
            oldest.and_then(|oldest| self.paths.remove(&oldest));
        }
        self.paths.insert(to, (mtu, now));
        if known != Some(mtu) {
            self.push_event(StationEvent::PathMtu { to, mtu });
        }
    }
}
