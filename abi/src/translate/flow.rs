//! `struct ibv_flow_attr` and its specs, as bytes.
//!
//! Spec: kind, size, value, mask; header fields in network byte order.

use roce_provider::{EthFilter, FlowAttr, FlowKind, FlowSpec, Ipv4Filter, Ipv6Filter, PortFilter};

use crate::prelude::*;

/// Size of `struct ibv_flow_attr`; the specs follow.
const ATTR: usize = 20;
/// Kind and size of a spec.
const HEAD: usize = 6;
/// Most specs, as in the kernel.
const SPECS: usize = 10;
/// Longest spec: IPv6.
const LONGEST: usize = 88;

const DONT_TRAP: u32 = 1 << 1;
const EGRESS: u32 = 1 << 2;

const ETH: u32 = 0x20;
const IPV4: u32 = 0x30;
const IPV6: u32 = 0x31;
const IPV4_EXT: u32 = 0x32;
const TCP: u32 = 0x40;
const UDP: u32 = 0x41;
const ACTION_TAG: u32 = 0x1000;
const ACTION_DROP: u32 = 0x1001;
/// ESP, tunnels, GRE, MPLS, actions; `INNER` marks inner headers.
const OTHERS: [u32; 6] = [0x34, 0x50, 0x51, 0x60, 0x1002, 0x1003];
const INNER: u32 = 0x100;

/// `copy` fills a buffer from an offset.
pub(crate) fn from_c(copy: impl Fn(usize, &mut [u8]) -> Result<()>) -> Result<FlowAttr> {
    let mut bytes = [0; ATTR];
    copy(0, &mut bytes)?;
    let (mut attr, specs) = attr(&bytes)?;
    let mut at = ATTR;
    for _ in 0..specs {
        let mut head = [0; HEAD];
        copy(at, &mut head)?;
        let size = size(&head);
        refuse_if(size < HEAD, Rule::Flow)?;
        let mut bytes = [0; LONGEST];
        let bytes = &mut bytes[..size.min(LONGEST)];
        copy(at, bytes)?;
        attr.specs.push(spec(bytes)?);
        at += size;
    }
    Ok(attr)
}

fn attr(bytes: &[u8; ATTR]) -> Result<(FlowAttr, usize)> {
    let [comp_mask, kind, _, _, flags] = words(bytes);
    let [priority_low, priority_high, specs, port] = [bytes[10], bytes[11], bytes[12], bytes[13]];
    refuse_if(comp_mask != 0, Rule::UnknownMask)?;
    refuse_if(port != 1, Rule::Port)?;
    refuse_if(flags & !(DONT_TRAP | EGRESS) != 0 || usize::from(specs) > SPECS, Rule::Flow)?;
    refuse_if(flags & EGRESS != 0, Rule::FlowKind)?;
    let kind = match kind {
        0 => FlowKind::Normal,
        1 => FlowKind::AllDefault,
        2 => FlowKind::McDefault,
        3 => FlowKind::Sniffer,
        _ => return Err(Errno::of(Rule::Flow)),
    };
    let priority = u16::from_ne_bytes([priority_low, priority_high]);
    let attr = FlowAttr { kind, priority, specs: Vec::new(), dont_trap: flags & DONT_TRAP != 0 };
    Ok((attr, specs.into()))
}

const fn size(head: &[u8; HEAD]) -> usize {
    u16::from_ne_bytes([head[4], head[5]]) as usize
}

/// At most [`LONGEST`] bytes.
fn spec(bytes: &[u8]) -> Result<FlowSpec> {
    let wrong = Errno::of(Rule::Flow);
    let Some(kind) = bytes.first_chunk::<4>() else { return Err(wrong) };
    let read = match u32::from_ne_bytes(*kind) {
        ETH => pair(bytes, 6, 16, eth).map(|(value, mask)| FlowSpec::Eth { value, mask }),
        IPV4 => pair(bytes, 8, 8, ipv4).map(|(value, mask)| FlowSpec::Ipv4 { value, mask }),
        IPV4_EXT => {
            if bytes.get(31).is_some_and(|flags| *flags != 0) {
                return Err(Errno::of(Rule::FlowKind)); // fragments are not distinguished
            }
            pair(bytes, 8, 12, ipv4).map(|(value, mask)| FlowSpec::Ipv4 { value, mask })
        }
        IPV6 => pair(bytes, 8, 40, ipv6).map(|(value, mask)| FlowSpec::Ipv6 { value, mask }),
        TCP => pair(bytes, 6, 4, ports).map(|(value, mask)| FlowSpec::Tcp { value, mask }),
        UDP => pair(bytes, 6, 4, ports).map(|(value, mask)| FlowSpec::Udp { value, mask }),
        ACTION_TAG => bytes
            .get(8..12)
            .and_then(|tag| tag.first_chunk())
            .map(|tag| FlowSpec::Tag(u32::from_ne_bytes(*tag))),
        ACTION_DROP => (bytes.len() >= 8).then_some(FlowSpec::Drop),
        other if OTHERS.contains(&(other & !INNER)) || is_inner(other) => {
            return Err(Errno::of(Rule::FlowKind));
        }
        _ => None,
    };
    read.ok_or(wrong)
}

fn is_inner(kind: u32) -> bool {
    kind & INNER != 0 && [ETH, IPV4, IPV6, IPV4_EXT, TCP, UDP].contains(&(kind & !INNER))
}

fn words(bytes: &[u8; ATTR]) -> [u32; 5] {
    let mut words = [0; 5];
    for (word, bytes) in words.iter_mut().zip(bytes.chunks(4)) {
        *word = bytes.first_chunk().map_or(0, |bytes| u32::from_ne_bytes(*bytes));
    }
    words
}

fn pair<T>(
    bytes: &[u8],
    start: usize,
    length: usize,
    read: fn(&[u8]) -> Option<T>,
) -> Option<(T, T)> {
    let value = bytes.get(start..start + length)?;
    let mask = bytes.get(start + length..start + 2 * length)?;
    Some((read(value)?, read(mask)?))
}

fn half(bytes: &[u8], at: usize) -> Option<u16> {
    Some(u16::from_be_bytes(*bytes.get(at..)?.first_chunk()?))
}

fn eth(bytes: &[u8]) -> Option<EthFilter> {
    Some(EthFilter {
        dst: *bytes.first_chunk()?,
        src: *bytes.get(6..)?.first_chunk()?,
        ether_type: half(bytes, 12)?,
        vlan_tag: half(bytes, 14)?,
    })
}

/// Both IPv4 kinds; missing bytes are 0.
fn ipv4(bytes: &[u8]) -> Option<Ipv4Filter> {
    let byte = |at: usize| bytes.get(at).copied().unwrap_or(0);
    Some(Ipv4Filter {
        src: (*bytes.first_chunk::<4>()?).into(),
        dst: (*bytes.get(4..)?.first_chunk::<4>()?).into(),
        protocol: byte(8),
        tos: byte(9),
        ttl: byte(10),
    })
}

fn ipv6(bytes: &[u8]) -> Option<Ipv6Filter> {
    Some(Ipv6Filter {
        src: (*bytes.first_chunk::<16>()?).into(),
        dst: (*bytes.get(16..)?.first_chunk::<16>()?).into(),
        flow_label: u32::from_be_bytes(*bytes.get(32..)?.first_chunk()?),
        next_header: *bytes.get(36)?,
        traffic_class: *bytes.get(37)?,
        hop_limit: *bytes.get(38)?,
    })
}

fn ports(bytes: &[u8]) -> Option<PortFilter> {
    Some(PortFilter { dst: half(bytes, 0)?, src: half(bytes, 2)? })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn head(kind: u32, size: u16) -> Vec<u8> {
        [&kind.to_ne_bytes()[..], &size.to_ne_bytes()].concat()
    }

    #[test]
    fn specs_as_they_lie_in_memory() {
        let mut bytes = head(ETH, 40);
        bytes.extend([2, 0, 0, 0, 0, 9, 2, 0, 0, 0, 0, 1, 0x08, 0, 0x30, 0x64]);
        bytes.extend([[255; 12].as_slice(), &[255, 255, 0x0F, 0xFF], &[0; 2]].concat());
        let value = EthFilter {
            dst: [2, 0, 0, 0, 0, 9],
            src: [2, 0, 0, 0, 0, 1],
            ether_type: 0x0800,
            vlan_tag: 0x3064,
        };
        let mask = EthFilter { dst: [255; 6], src: [255; 6], ether_type: 0xFFFF, vlan_tag: 0x0FFF };
        assert_eq!(spec(&bytes).unwrap(), FlowSpec::Eth { value, mask });
        assert!(spec(&bytes[..37]).is_err(), "it ends too early");

        let mut bytes = head(IPV4_EXT, 32);
        bytes.extend([0, 0, 10, 0, 0, 1, 10, 0, 0, 2, 17, 0x20, 64, 0]);
        bytes.extend([255; 11]);
        bytes.push(0);
        let value = Ipv4Filter {
            src: [10, 0, 0, 1].into(),
            dst: [10, 0, 0, 2].into(),
            protocol: 17,
            tos: 0x20,
            ttl: 64,
        };
        let mask = Ipv4Filter {
            src: [255; 4].into(),
            dst: [255; 4].into(),
            protocol: 255,
            tos: 255,
            ttl: 255,
        };
        assert_eq!(spec(&bytes).unwrap(), FlowSpec::Ipv4 { value, mask });
        bytes[31] = 2;
        assert_eq!(spec(&bytes).unwrap_err().number(), libc::EOPNOTSUPP);

        let mut bytes = head(UDP, 16);
        bytes.extend([0x13, 0x88, 0x17, 0x70, 255, 255, 0, 0, 0, 0]);
        let (value, mask) =
            (PortFilter { dst: 5000, src: 6000 }, PortFilter { dst: u16::MAX, src: 0 });
        assert_eq!(spec(&bytes).unwrap(), FlowSpec::Udp { value, mask });

        let mut bytes = head(IPV6, 88);
        bytes.extend([0; 2]);
        bytes.extend([0; 32]);
        bytes.extend([0, 0x0F, 1, 2, 17, 5, 6, 0]);
        bytes.extend([0; 40]);
        let value = Ipv6Filter {
            flow_label: 0xF0102,
            next_header: 17,
            traffic_class: 5,
            hop_limit: 6,
            ..Ipv6Filter::default()
        };
        assert_eq!(spec(&bytes).unwrap(), FlowSpec::Ipv6 { value, mask: Ipv6Filter::default() });

        let mut bytes = head(ACTION_TAG, 12);
        bytes.extend([0, 0]);
        bytes.extend(77_u32.to_ne_bytes());
        assert_eq!(spec(&bytes).unwrap(), FlowSpec::Tag(77));
        for (kind, errno) in [
            (0x34, libc::EOPNOTSUPP),
            (0x120, libc::EOPNOTSUPP),
            (0x1003, libc::EOPNOTSUPP),
            (0x99, libc::EINVAL),
            (0, libc::EINVAL),
        ] {
            let mut bytes = head(kind, 88);
            bytes.resize(88, 0);
            assert_eq!(spec(&bytes).unwrap_err().number(), errno, "{kind:#x}");
        }
    }

    #[test]
    fn attributes_as_they_lie_in_memory() {
        let mut bytes = [0; ATTR];
        (bytes[12], bytes[13]) = (2, 1);
        bytes[16..].copy_from_slice(&DONT_TRAP.to_ne_bytes());
        bytes[10..12].copy_from_slice(&7_u16.to_ne_bytes());
        let expected = FlowAttr { priority: 7, dont_trap: true, ..FlowAttr::default() };
        assert_eq!(attr(&bytes).unwrap(), (expected, 2));
        for (at, value) in [(0, 1), (4, 4), (12, 11), (13, 2), (16, 1)] {
            let mut bytes = bytes;
            bytes[at..at + 1].fill(value);
            assert!(attr(&bytes).is_err(), "{value} at {at}");
        }
    }
}
