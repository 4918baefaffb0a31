use std::{
    net::{IpAddr, Ipv4Addr, Ipv6Addr},
    time::Duration,
};

use roce_transport::{time::Instant, wire::checksum};

use super::{
    super::{
        address::octets,
        build::{Ip, icmpv6_checksum},
        counters::{BAD_ARP, Handled, refuse_if},
        frame::IpPacket,
        groups::{Message, Record},
    },
    Station, group_mac, is_link_local, solicited_node,
};

const IGMP_QUERY: u8 = 0x11;
const IGMPV2_REPORT: u8 = 0x16;
const IGMPV2_LEAVE: u8 = 0x17;
const IGMPV3_REPORT: u8 = 0x22;
/// IGMPv3 reports, IGMPv2 leaves.
const IGMPV3_ROUTERS: Ipv4Addr = Ipv4Addr::new(224, 0, 0, 22);
const ROUTERS: Ipv4Addr = Ipv4Addr::new(224, 0, 0, 2);

pub(super) const MLD_QUERY: u8 = 130;
pub(super) const MLDV1_REPORT: u8 = 131;
const MLDV1_DONE: u8 = 132;
const MLDV2_REPORT: u8 = 143;
const MLDV2_ROUTERS: Ipv6Addr = Ipv6Addr::new(0xFF02, 0, 0, 0, 0, 0, 0, 0x16);
const ROUTERS_V6: Ipv6Addr = Ipv6Addr::new(0xFF02, 0, 0, 0, 0, 0, 0, 2);

impl Station {
    /// Joins a group.
    pub fn join(&mut self, now: Instant, group: IpAddr) {
        self.groups.join(now, group);
        self.handle_timeout(now);
    }

    /// Leaves a group, except its own solicited-node groups.
    pub fn leave(&mut self, now: Instant, group: IpAddr) {
        if !self.own_groups().any(|own| own == group) {
            self.groups.leave(now, group);
            self.handle_timeout(now);
        }
    }

    /// True for a member.
    #[must_use]
    pub fn is_member(&self, group: IpAddr) -> bool {
        self.groups.contains(group)
    }

    /// Switches hold back unjoined groups (RFC 4862, section 5.4.2).
    pub(super) fn join_own_groups(&mut self, now: Instant) {
        let groups: Vec<_> = self.own_groups().collect();
        groups.into_iter().for_each(|group| self.groups.join(now, group));
    }

    /// Solicited-node groups, if the station responds for its addresses.
    fn own_groups(&self) -> impl Iterator<Item = IpAddr> {
        let addresses = self.config.addresses.iter().filter(|_| self.config.replies);
        addresses.filter_map(|own| match own.address {
            IpAddr::V4(_) => None,
            IpAddr::V6(v6) => Some(solicited_node(v6).into()),
        })
    }

    pub(super) fn handle_igmp(&mut self, now: Instant, packet: &IpPacket<'_>) -> Handled {
        let message = packet.payload;
        let (header, rest) = message.split_first_chunk::<8>().ok_or(BAD_ARP)?;
        // RFC 3376, section 7.1: 8 bytes, or 12 and more
        let is_query = header[0] == IGMP_QUERY;
        let bad_query = is_query && (1..4).contains(&rest.len());
        refuse_if(checksum(message) != 0 || bad_query, BAD_ARP)?;
        let &[kind, code, _, _, a, b, c, d] = header;
        let group = Ipv4Addr::new(a, b, c, d);
        match kind {
            IGMP_QUERY => {
                let older = rest.is_empty();
                // Version 1 has no time: 10 s.
                let tenths = match (older, code) {
                    (true, 0) => 100,
                    (true, _) => u32::from(code),
                    (false, _) => floating(code.into(), 4),
                };
                let within = Duration::from_millis(100) * tenths;
                self.handle_query(now, older, group.into(), within);
            }
            IGMPV2_REPORT => self.groups.handle_report(now, group.into()),
            _ => {} // for routers
        }
        Ok(())
    }

    pub(super) fn handle_mld(&mut self, now: Instant, packet: &IpPacket<'_>) -> Handled {
        let (header, rest) = packet.payload.split_first_chunk::<24>().ok_or(BAD_ARP)?;
        // RFC 3810, section 6.2: link-local source
        let is_near = matches!(packet.src, IpAddr::V6(src) if src.is_unicast_link_local());
        // section 8.1: 24 bytes, or 28 and more
        let is_query = header[0] == MLD_QUERY;
        let bad_query = is_query && (!is_near || (1..4).contains(&rest.len()));
        let checksum = icmpv6_checksum(packet.src, packet.dst, packet.payload);
        refuse_if(checksum != 0 || packet.hop_limit != 1 || bad_query, BAD_ARP)?;
        let [_, _, _, _, high, low, _, _, group @ ..] = *header;
        let group = IpAddr::from(group);
        if is_query {
            let code = u16::from_be_bytes([high, low]);
            let older = rest.is_empty();
            let milliseconds = if older { code.into() } else { floating(code, 12) };
            let within = Duration::from_millis(milliseconds.into());
            self.handle_query(now, older, group, within);
        } else {
            self.groups.handle_report(now, group);
        }
        Ok(())
    }

    fn handle_query(&mut self, now: Instant, older: bool, group: IpAddr, within: Duration) {
        self.counters.group_queries += 1;
        self.groups.handle_query(now, group, older, within);
    }

    pub(super) fn send_reports(&mut self, now: Instant) {
        for message in self.groups.handle_timeout(now) {
            let frame = match message {
                Message::Old { group, leaves } => self.older_message(group, leaves),
                Message::Report(records) => self.report(&records),
            };
            self.counters.group_reports += 1;
            self.put(frame);
        }
    }

    fn older_message(&self, group: IpAddr, leaves: bool) -> Vec<u8> {
        let (kind, to, header) = match (group, leaves) {
            (IpAddr::V4(_), false) => (IGMPV2_REPORT, group, 4),
            (IpAddr::V4(_), true) => (IGMPV2_LEAVE, ROUTERS.into(), 4),
            (IpAddr::V6(_), false) => (MLDV1_REPORT, group, 8),
            (IpAddr::V6(_), true) => (MLDV1_DONE, ROUTERS_V6.into(), 8),
        };
        let mut message = vec![0; header];
        message[0] = kind;
        message.extend(octets(group));
        self.membership(to, message)
    }

    fn report(&self, records: &[(Record, IpAddr)]) -> Vec<u8> {
        let v4 = records.iter().any(|(_, group)| group.is_ipv4());
        let (kind, to) = match v4 {
            true => (IGMPV3_REPORT, IpAddr::from(IGMPV3_ROUTERS)),
            false => (MLDV2_REPORT, IpAddr::from(MLDV2_ROUTERS)),
        };
        let mut message = vec![kind, 0, 0, 0, 0, 0];
        message.extend((records.len() as u16).to_be_bytes());
        for (record, group) in records {
            message.extend([*record as u8, 0, 0, 0]); // no sources
            message.extend(octets(*group));
        }
        self.membership(to, message)
    }

    /// MLD uses the link-local address, else the unspecified address, which routers ignore but
    /// switches do not (RFC 3810, section 5.2.13).
    fn membership(&self, to: IpAddr, message: Vec<u8>) -> Vec<u8> {
        let own = || self.config.addresses.iter().map(|own| own.address);
        let src = match to {
            IpAddr::V4(_) => own().find(IpAddr::is_ipv4).unwrap_or(Ipv4Addr::UNSPECIFIED.into()),
            IpAddr::V6(_) => own()
                .find(|own| own.is_ipv6() && is_link_local(*own))
                .unwrap_or(Ipv6Addr::UNSPECIFIED.into()),
        };
        // Internetwork control, as from Linux.
        let traffic_class = if to.is_ipv4() { 0xC0 } else { 0 };
        let ip = Ip { traffic_class, ..Ip::new(src, to, 1) };
        self.to(group_mac(to).unwrap_or(super::BROADCAST)).membership(ip, message)
    }
}

/// Maximum response code: a number, or a mantissa with a three-bit exponent (RFC 3376 section
/// 4.1.1, RFC 3810 section 5.1.3).
fn floating(code: u16, mantissa_bits: u32) -> u32 {
    let code = u32::from(code);
    if code >> (mantissa_bits + 3) == 0 {
        return code;
    }
    let mantissa = code & ((1 << mantissa_bits) - 1) | 1 << mantissa_bits;
    mantissa << ((code >> mantissa_bits & 7) + 3)
}
