//! Target: a flow's attributes (`struct ibv_flow_attr`) and specs.

use roce_abi::read_flow;
use roce_ethernet::{EthFilter, Ipv4Filter, Ipv6Filter, PortFilter};
use roce_provider::{FlowAttr, FlowKind, FlowSpec};

/// Covers any read beyond a spec's end.
const BEHIND: [u8; 128] = [0xA5; 128];

/// Panics on reads beyond the end, or if a flow is not written back equal. Returns whether the flow
/// is possible.
pub fn flows(bytes: &[u8]) -> Option<bool> {
    let read = read_flow(bytes);
    if read != Err(libc::EFAULT) {
        let behind = read_flow(&[bytes, &BEHIND].concat());
        assert_eq!(behind, read, "what is behind it changes nothing");
    }
    let attr = read.ok()?;
    let written = write(&attr);
    assert_eq!(read_flow(&written).as_ref(), Ok(&attr), "{written:02x?}");
    for length in (0..written.len()).filter(|length| length % 7 == 0) {
        assert_eq!(read_flow(&written[..length]), Err(libc::EFAULT), "cut off at {length}");
    }
    Some(attr.check().is_ok())
}

fn write(attr: &FlowAttr) -> Vec<u8> {
    let kind: u32 = match attr.kind {
        FlowKind::Normal => 0,
        FlowKind::AllDefault => 1,
        FlowKind::McDefault => 2,
        FlowKind::Sniffer => 3,
    };
    let mut bytes = vec![0; 4];
    bytes.extend(kind.to_ne_bytes());
    bytes.extend([0; 2]);
    bytes.extend(attr.priority.to_ne_bytes());
    bytes.extend([attr.specs.len() as u8, 1, 0, 0]);
    bytes.extend((u32::from(attr.dont_trap) << 1).to_ne_bytes());
    for spec in &attr.specs {
        let (kind, size, start, parts) = fields(spec);
        let mut spec = vec![0; size];
        spec[..4].copy_from_slice(&kind.to_ne_bytes());
        spec[4..6].copy_from_slice(&(size as u16).to_ne_bytes());
        let parts = parts.concat();
        spec[start..start + parts.len()].copy_from_slice(&parts);
        bytes.extend(spec);
    }
    bytes
}

/// Kind, size, offset, value and mask.
fn fields(spec: &FlowSpec) -> (u32, usize, usize, Vec<Vec<u8>>) {
    match spec {
        FlowSpec::Eth { value, mask } => (0x20, 40, 6, [value, mask].map(eth).into()),
        FlowSpec::Ipv4 { value, mask } => (0x32, 32, 8, [value, mask].map(ipv4).into()),
        FlowSpec::Ipv6 { value, mask } => (0x31, 88, 8, [value, mask].map(ipv6).into()),
        FlowSpec::Tcp { value, mask } => (0x40, 16, 6, [value, mask].map(ports).into()),
        FlowSpec::Udp { value, mask } => (0x41, 16, 6, [value, mask].map(ports).into()),
        FlowSpec::Tag(tag) => (0x1000, 12, 8, vec![tag.to_ne_bytes().into()]),
        FlowSpec::Drop => (0x1001, 8, 8, Vec::new()),
    }
}

fn eth(filter: &EthFilter) -> Vec<u8> {
    let EthFilter { dst, src, ether_type, vlan_tag } = filter;
    [&dst[..], src, &ether_type.to_be_bytes(), &vlan_tag.to_be_bytes()].concat()
}

fn ipv4(filter: &Ipv4Filter) -> Vec<u8> {
    let Ipv4Filter { src, dst, protocol, tos, ttl } = filter;
    [&src.octets()[..], &dst.octets(), &[*protocol, *tos, *ttl, 0]].concat()
}

fn ipv6(filter: &Ipv6Filter) -> Vec<u8> {
    let Ipv6Filter { src, dst, flow_label, next_header, traffic_class, hop_limit } = filter;
    let rest = [*next_header, *traffic_class, *hop_limit, 0];
    [&src.octets()[..], &dst.octets(), &flow_label.to_be_bytes(), &rest].concat()
}

fn ports(filter: &PortFilter) -> Vec<u8> {
    [filter.dst.to_be_bytes(), filter.src.to_be_bytes()].concat()
}
