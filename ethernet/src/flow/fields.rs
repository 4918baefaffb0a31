//! Frame fields that flows match; unreadable fields are absent.

use smoltcp::wire::{Ipv4Packet, Ipv6Packet};

pub(super) use super::super::frame::{ETHERTYPE_IPV4 as IPV4, ETHERTYPE_IPV6 as IPV6, UDP};
use super::{
    super::frame::{TAGS, word},
    filter::{EthFilter, Ipv4Filter, Ipv6Filter, PortFilter},
};

pub(super) const TCP: u8 = 6;
const STACK: usize = 8;
const FRAGMENT: u8 = 44;

/// True if members are equal in the mask's bits.
macro_rules! alike {
    ($own:expr, $value:ident, $mask:ident: $($member:ident)*) => {
        $($own.$member & $mask.$member == $value.$member & $mask.$member)&&*
    };
}

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
        let header = Ipv4Packet::new_unchecked(bytes.get(..20)?);
        let length = usize::from(header.header_len());
        if header.version() != 4 || length < 20 {
            return None;
        }
        let (protocol, tos) = (header.next_header().into(), header.dscp() << 2 | header.ecn());
        let (src, dst, ttl) = (header.src_addr(), header.dst_addr(), header.hop_limit());
        self.ipv4 = Some(Ipv4Filter { src, dst, protocol, tos, ttl });
        let is_later = header.frag_offset() != 0;
        if is_later { None } else { self.read_ports(protocol, bytes.get(length..)?) }
    }

    fn read_ipv6(&mut self, bytes: &[u8]) -> Option<()> {
        let (header, mut rest) = bytes.split_at_checked(40)?;
        let header = Ipv6Packet::new_unchecked(header);
        if header.version() != 6 {
            return None;
        }
        let mut next = header.next_header().into();
        self.ipv6 = Some(Ipv6Filter {
            src: header.src_addr(),
            dst: header.dst_addr(),
            flow_label: header.flow_label(),
            next_header: next,
            traffic_class: header.traffic_class(),
            hop_limit: header.hop_limit(),
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
            && (mask.vlan_tag == 0 || self.tagged)
            && alike!(self.eth, value, mask: ether_type vlan_tag)
    }

    pub(super) fn has_ipv4(&self, value: &Ipv4Filter, mask: &Ipv4Filter) -> bool {
        self.ipv4.is_some_and(|own| alike!(own, value, mask: src dst protocol tos ttl))
    }

    pub(super) fn has_ipv6(&self, value: &Ipv6Filter, mask: &Ipv6Filter) -> bool {
        self.ipv6.is_some_and(
            |own| alike!(own, value, mask: src dst flow_label next_header traffic_class hop_limit),
        )
    }

    pub(super) fn has_ports(&self, protocol: u8, value: &PortFilter, mask: &PortFilter) -> bool {
        self.ports.is_some_and(|(of, own)| of == protocol && alike!(own, value, mask: src dst))
    }
}
