//! Frame fields that flows match; unreadable fields are absent.

use std::net::{Ipv4Addr, Ipv6Addr};

use super::filter::{EthFilter, Ipv4Filter, Ipv6Filter, PortFilter};

pub(super) const IPV4: u16 = 0x0800;
pub(super) const IPV6: u16 = 0x86DD;
pub(super) const TCP: u8 = 6;
pub(super) const UDP: u8 = 17;

const TAGS: [u16; 3] = [0x8100, 0x88A8, 0x9100];
const STACK: usize = 8;
const FRAGMENT: u8 = 44;

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Fields {
    eth: EthFilter,
    tagged: bool,
    ipv4: Option<Ipv4Filter>,
    ipv6: Option<Ipv6Filter>,
    /// Absent in later fragments.
    ports: Option<(u8, PortFilter)>,
}

impl Fields {
    /// `None`: too short.
    pub(super) fn of(frame: &[u8]) -> Option<Self> {
        let (dst, rest) = frame.split_first_chunk::<6>()?;
        let (src, rest) = rest.split_first_chunk::<6>()?;
        let mut fields = Self {
            eth: EthFilter { dst: *dst, src: *src, ..EthFilter::default() },
            ..Self::default()
        };
        let (mut kind, mut rest) = word(rest)?;
        for _ in 0..STACK {
            if !TAGS.contains(&kind) {
                break;
            }
            let Some((tag, behind)) = word(rest) else { break };
            let Some((inner, behind)) = word(behind) else { break };
            if !fields.tagged {
                (fields.tagged, fields.eth.vlan_tag) = (true, tag);
            }
            (kind, rest) = (inner, behind);
        }
        fields.eth.ether_type = kind;
        match kind {
            IPV4 => fields.read_ipv4(rest),
            IPV6 => fields.read_ipv6(rest),
            _ => None,
        };
        Some(fields)
    }

    fn read_ipv4(&mut self, bytes: &[u8]) -> Option<()> {
        let header = bytes.first_chunk::<20>()?;
        let length = usize::from(header[0] & 15) * 4;
        if header[0] >> 4 != 4 || length < 20 {
            return None;
        }
        let [.., a, b, c, d, e, f, g, h] = *header;
        self.ipv4 = Some(Ipv4Filter {
            src: Ipv4Addr::new(a, b, c, d),
            dst: Ipv4Addr::new(e, f, g, h),
            protocol: header[9],
            tos: header[1],
            ttl: header[8],
        });
        let is_later = u16::from_be_bytes([header[6], header[7]]) & 0x1FFF != 0;
        if is_later { None } else { self.read_ports(header[9], bytes.get(length..)?) }
    }

    fn read_ipv6(&mut self, bytes: &[u8]) -> Option<()> {
        let (header, mut rest) = bytes.split_first_chunk::<40>()?;
        let [a, b, c, d, ..] = *header;
        if a >> 4 != 6 {
            return None;
        }
        let address = |at: usize| {
            let octets: Option<&[u8; 16]> = header[at..].first_chunk();
            octets.map(|octets| Ipv6Addr::from(*octets))
        };
        let mut next = header[6];
        self.ipv6 = Some(Ipv6Filter {
            src: address(8)?,
            dst: address(24)?,
            flow_label: u32::from_be_bytes([0, b & 15, c, d]),
            next_header: next,
            traffic_class: a << 4 | b >> 4,
            hop_limit: header[7],
        });
        for _ in 0..STACK {
            let length = match next {
                0 | 43 | 60 => 8 + usize::from(*rest.get(1)?) * 8, // extension headers
                FRAGMENT => {
                    let offset = u16::from_be_bytes([*rest.get(2)?, *rest.get(3)?]) >> 3;
                    if offset != 0 {
                        return None;
                    }
                    8
                }
                protocol => return self.read_ports(protocol, rest),
            };
            next = *rest.first()?;
            rest = rest.get(length..)?;
        }
        None
    }

    fn read_ports(&mut self, protocol: u8, bytes: &[u8]) -> Option<()> {
        let (src, rest) = word(bytes)?;
        let (dst, _) = word(rest)?;
        self.ports = Some((protocol, PortFilter { dst, src }));
        Some(())
    }

    pub(super) const fn dst(&self) -> [u8; 6] {
        self.eth.dst
    }

    /// Broadcast included.
    pub(super) const fn is_to_group(&self) -> bool {
        self.eth.dst[0] & 1 == 1
    }

    pub(super) fn has_eth(&self, value: &EthFilter, mask: &EthFilter) -> bool {
        let same = |a: [u8; 6], b: [u8; 6], mask: [u8; 6]| {
            a.iter().zip(b).zip(mask).all(|((a, b), mask)| (a ^ b) & mask == 0)
        };
        same(self.eth.dst, value.dst, mask.dst)
            && same(self.eth.src, value.src, mask.src)
            && (self.eth.ether_type ^ value.ether_type) & mask.ether_type == 0
            && (mask.vlan_tag == 0 || self.tagged)
            && (self.eth.vlan_tag ^ value.vlan_tag) & mask.vlan_tag == 0
    }

    pub(super) fn has_ipv4(&self, value: &Ipv4Filter, mask: &Ipv4Filter) -> bool {
        let same = |a: Ipv4Addr, b: Ipv4Addr, mask: Ipv4Addr| {
            (a.to_bits() ^ b.to_bits()) & mask.to_bits() == 0
        };
        self.ipv4.is_some_and(|own| {
            same(own.src, value.src, mask.src)
                && same(own.dst, value.dst, mask.dst)
                && (own.protocol ^ value.protocol) & mask.protocol == 0
                && (own.tos ^ value.tos) & mask.tos == 0
                && (own.ttl ^ value.ttl) & mask.ttl == 0
        })
    }

    pub(super) fn has_ipv6(&self, value: &Ipv6Filter, mask: &Ipv6Filter) -> bool {
        let same = |a: Ipv6Addr, b: Ipv6Addr, mask: Ipv6Addr| {
            (a.to_bits() ^ b.to_bits()) & mask.to_bits() == 0
        };
        self.ipv6.is_some_and(|own| {
            same(own.src, value.src, mask.src)
                && same(own.dst, value.dst, mask.dst)
                && (own.flow_label ^ value.flow_label) & mask.flow_label == 0
                && (own.next_header ^ value.next_header) & mask.next_header == 0
                && (own.traffic_class ^ value.traffic_class) & mask.traffic_class == 0
                && (own.hop_limit ^ value.hop_limit) & mask.hop_limit == 0
        })
    }

    pub(super) fn has_ports(&self, protocol: u8, value: &PortFilter, mask: &PortFilter) -> bool {
        self.ports.is_some_and(|(of, own)| {
            of == protocol
                && (own.src ^ value.src) & mask.src == 0
                && (own.dst ^ value.dst) & mask.dst == 0
        })
    }
}

fn word(bytes: &[u8]) -> Option<(u16, &[u8])> {
    let (word, rest) = bytes.split_first_chunk()?;
    Some((u16::from_be_bytes(*word), rest))
}
