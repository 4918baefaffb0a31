use proptest::prelude::*;
use roce_transport::ids::Qpn;

use pnet_datalink::MacAddr;

use super::{attr::FLOW_LABEL, fields::Fields, *};

const OWN: MacAddr = MacAddr(2, 0, 0, 0, 0, 1);
const PEER: [u8; 6] = [2, 0, 0, 0, 0, 2];

#[derive(Clone, Debug)]
struct Made {
    eth: EthFilter,
    tagged: bool,
    ipv4: Option<Ipv4Filter>,
    ipv6: Option<Ipv6Filter>,
    ports: Option<PortFilter>,
}

impl Made {
    fn udp() -> Self {
        let ipv4 = Ipv4Filter {
            src: [10, 0, 0, 2].into(),
            dst: [10, 0, 0, 1].into(),
            protocol: 17,
            tos: 0x20,
            ttl: 64,
        };
        Self {
            eth: EthFilter { dst: OWN.octets(), src: PEER, ether_type: 0x0800, vlan_tag: 0 },
            tagged: false,
            ipv4: Some(ipv4),
            ipv6: None,
            ports: Some(PortFilter { dst: 5000, src: 6000 }),
        }
    }

    fn to(dst: [u8; 6]) -> Self {
        let mut made = Self::udp();
        made.eth.dst = dst;
        made
    }

    fn frame(&self) -> Vec<u8> {
        let mut frame = [self.eth.dst, self.eth.src].concat();
        if self.tagged {
            frame.extend([0x81, 0]);
            frame.extend(self.eth.vlan_tag.to_be_bytes());
        }
        frame.extend(self.eth.ether_type.to_be_bytes());
        if let Some(ip) = &self.ipv4 {
            frame.extend([0x46, ip.tos, 0, 40, 0, 0, 0x40, 0, ip.ttl, ip.protocol, 0, 0]);
            frame.extend(ip.src.octets());
            frame.extend(ip.dst.octets());
            frame.extend([1; 4]); // option
        }
        if let Some(ip) = &self.ipv6 {
            let first = 6 << 28 | u32::from(ip.traffic_class) << 20 | ip.flow_label;
            frame.extend(first.to_be_bytes());
            frame.extend([0, 16, ip.next_header, ip.hop_limit]);
            frame.extend(ip.src.octets());
            frame.extend(ip.dst.octets());
            if ip.next_header == 60 {
                frame.extend([17, 0, 1, 4, 0, 0, 0, 0]); // options, then UDP
            }
        }
        if let Some(ports) = &self.ports {
            frame.extend(ports.src.to_be_bytes());
            frame.extend(ports.dst.to_be_bytes());
            frame.extend([0; 16]);
        }
        frame
    }
}

fn normal(priority: u16, specs: impl Into<Vec<FlowSpec>>) -> FlowAttr {
    FlowAttr { priority, specs: specs.into(), ..FlowAttr::default() }
}

fn of_kind(kind: FlowKind) -> FlowAttr {
    FlowAttr { kind, ..FlowAttr::default() }
}

fn to_mac(dst: [u8; 6]) -> FlowSpec {
    let mask = EthFilter { dst: [255; 6], ..EthFilter::default() };
    FlowSpec::Eth { value: EthFilter { dst, ..EthFilter::default() }, mask }
}

fn to_port(dst: u16) -> FlowSpec {
    FlowSpec::Udp { value: PortFilter { dst, src: 0 }, mask: PortFilter { dst: u16::MAX, src: 0 } }
}

fn table(flows: &[(u32, FlowAttr)]) -> FlowTable {
    let mut table = FlowTable::new(OWN);
    for (qpn, attr) in flows {
        attr.check().unwrap();
        table.add(Qpn::new(*qpn), attr.clone());
    }
    table
}

fn steer(table: &FlowTable, frame: &[u8], is_taken: bool) -> Vec<u32> {
    let mut copies = Copies::default();
    table.steer(frame, is_taken, None, &mut copies);
    copies.to.iter().map(|(qpn, _)| qpn.get()).collect()
}

#[test]
fn the_best_priority_takes_a_frame_and_the_oldest_of_the_same() {
    let flows = table(&[
        (1, normal(2, [to_mac(OWN.octets())])),
        (2, normal(1, [to_port(5000)])),
        (3, normal(1, [to_mac(OWN.octets()), to_port(5000)])),
        (4, normal(1, [to_port(5000)])), // equals 2
    ]);
    assert_eq!(steer(&flows, &Made::udp().frame(), false), [2, 4]);
    let mut other = Made::udp();
    other.ports = Some(PortFilter { dst: 5001, src: 1 });
    assert_eq!(steer(&flows, &other.frame(), false), [1]);
    assert_eq!(steer(&flows, &Made::to(PEER).frame(), false), [0; 0], "of another host");
}

#[test]
fn a_flow_that_does_not_trap_leaves_the_frame_to_lower_ones() {
    let passing = FlowAttr { dont_trap: true, ..normal(0, [to_port(5000)]) };
    let flows = table(&[
        (1, passing),
        (2, normal(1, [to_mac(OWN.octets())])),
        (3, normal(2, [to_mac(OWN.octets())])),
    ]);
    assert_eq!(steer(&flows, &Made::udp().frame(), false), [1, 2]);
}

#[test]
fn default_flows_get_what_is_left_and_sniffers_a_copy_of_all() {
    let flows = table(&[
        (1, of_kind(FlowKind::AllDefault)),
        (2, of_kind(FlowKind::McDefault)),
        (3, of_kind(FlowKind::Sniffer)),
        (4, normal(0, [to_port(5000)])),
    ]);
    let mut group = Made::to([1, 0, 0x5E, 1, 2, 3]);
    group.ports = Some(PortFilter { dst: 1, src: 1 });
    assert_eq!(steer(&flows, &Made::udp().frame(), false), [3, 4]);
    assert_eq!(steer(&flows, &group.frame(), false), [3, 2]);
    assert_eq!(steer(&flows, &Made::to(PEER).frame(), false), [3, 1], "of another host");
    assert_eq!(steer(&flows, &Made::udp().frame(), true), [3], "the transport takes it");
    assert_eq!(steer(&flows, &[0; 13], false), [0; 0], "no frame");
}

#[test]
fn a_queue_pair_gets_one_copy_and_none_of_its_own() {
    let flows = table(&[
        (1, normal(0, [to_mac(OWN.octets())])),
        (1, normal(0, [to_mac(OWN.octets())])),
        (2, normal(0, [to_mac(OWN.octets())])),
        (3, of_kind(FlowKind::Sniffer)),
    ]);
    let mut copies = Copies::default();
    flows.steer(&Made::udp().frame(), false, Some(Qpn::new(2)), &mut copies);
    assert_eq!(copies.to, [(Qpn::new(1), 0)]);
    // A frame from this device suits flows to any address.
    let flows = table(&[(1, normal(0, [to_port(5000)]))]);
    flows.steer(&Made::to(PEER).frame(), false, Some(Qpn::new(2)), &mut copies);
    assert_eq!(copies.to, [(Qpn::new(1), 0)]);
    flows.steer(&Made::to(PEER).frame(), false, None, &mut copies);
    assert_eq!(copies.to, []);
}

#[test]
fn a_drop_is_for_those_behind_it_and_a_tag_goes_with_the_copy() {
    let mut flows = table(&[(1, normal(0, [to_port(5000), FlowSpec::Tag(77)]))]);
    let dropping = flows.add(Qpn::new(2), normal(1, [to_mac(OWN.octets()), FlowSpec::Drop]));
    flows.add(Qpn::new(3), normal(2, [to_mac(OWN.octets())]));
    let mut copies = Copies::default();
    flows.steer(&Made::udp().frame(), false, None, &mut copies);
    assert_eq!((copies.to.as_slice(), copies.dropped), (&[(Qpn::new(1), 77)][..], false));
    let mut other = Made::udp();
    other.ports = None;
    flows.steer(&other.frame(), false, None, &mut copies);
    assert_eq!((copies.to.len(), copies.dropped), (0, true));
    flows.remove(dropping);
    assert_eq!((steer(&flows, &other.frame(), false), flows.len()), (vec![3], 2));
}

#[test]
fn later_fragments_have_no_ports() {
    let mut frame = Made::udp().frame();
    frame[14 + 6..14 + 8].copy_from_slice(&[0x20, 0]); // first fragment
    assert_eq!(steer(&table(&[(1, normal(0, [to_port(5000)]))]), &frame, false), [1]);
    frame[14 + 6..14 + 8].copy_from_slice(&[0, 1]);
    assert_eq!(steer(&table(&[(1, normal(0, [to_port(5000)]))]), &frame, false), [0; 0]);
}

#[test]
fn what_no_frame_can_have_is_refused() {
    let v4 = FlowSpec::Ipv4 { value: Ipv4Filter::default(), mask: Ipv4Filter::default() };
    let v6 = |flow_label| FlowSpec::Ipv6 {
        value: Ipv6Filter::default(),
        mask: Ipv6Filter { flow_label, ..Ipv6Filter::default() },
    };
    let tcp = FlowSpec::Tcp { value: PortFilter::default(), mask: PortFilter::default() };
    let kind = |ether_type| FlowSpec::Eth {
        value: EthFilter { ether_type, ..EthFilter::default() },
        mask: EthFilter { ether_type: u16::MAX, ..EthFilter::default() },
    };
    let refused = |specs: &[FlowSpec]| normal(0, specs).check().unwrap_err();
    let impossible = |specs: &[FlowSpec]| {
        assert!(matches!(refused(specs), FlowSpecError::Impossible(_)), "{specs:?}");
    };
    impossible(&[v4, v6(0)]);
    impossible(&[tcp, to_port(1)]);
    impossible(&[kind(0x86DD), v4]);
    impossible(&[kind(0x0800), v6(0)]);
    impossible(&[kind(0x0806), tcp]);
    normal(0, [kind(0x0800), v4, tcp]).check().unwrap();
    normal(0, [kind(0x86DD), v6(0xF_FFFF), tcp]).check().unwrap();
    assert_eq!(refused(&[v6(0x10_0000)]), FlowSpecError::Mask);
    assert_eq!(refused(&[v4; 11]), FlowSpecError::TooMany);
    for kind in [FlowKind::AllDefault, FlowKind::McDefault, FlowKind::Sniffer] {
        let with_specs = FlowAttr { kind, ..normal(0, [v4]) };
        assert_eq!(with_specs.check(), Err(FlowSpecError::OnlyNormal));
        let passing = FlowAttr { dont_trap: true, ..of_kind(kind) };
        assert_eq!(passing.check().is_ok(), kind == FlowKind::Sniffer);
    }
    let dropping = FlowAttr { dont_trap: true, ..normal(0, [FlowSpec::Drop]) };
    assert_eq!(dropping.check(), Err(FlowSpecError::DropThatPasses));
}

#[test]
fn the_interface_is_asked_for_what_does_not_come_by_itself() {
    let group = MacAddr(1, 0, 0x5E, 0, 0, 1);
    let asked = |attr: FlowAttr| attr.membership(OWN);
    assert_eq!(asked(normal(0, [to_port(1)])), None);
    assert_eq!(asked(normal(0, [to_mac(OWN.octets())])), None);
    assert_eq!(asked(normal(0, [to_mac([255; 6])])), None);
    let foreign = MacAddr::from(PEER);
    assert_eq!(asked(normal(0, [to_mac(PEER)])), Some(Membership::Address(foreign)));
    assert_eq!(asked(normal(0, [to_mac(group.octets())])), Some(Membership::Address(group)));
    let some = |dst| FlowSpec::Eth {
        value: EthFilter { dst, ..EthFilter::default() },
        mask: EthFilter { dst, ..EthFilter::default() },
    };
    assert_eq!(asked(normal(0, [some([1, 0, 0, 0, 0, 0])])), Some(Membership::Groups));
    assert_eq!(asked(normal(0, [some([2, 0, 0, 0, 0, 0])])), Some(Membership::Everything));
    assert_eq!(asked(of_kind(FlowKind::AllDefault)), Some(Membership::Everything));
    assert_eq!(asked(of_kind(FlowKind::Sniffer)), Some(Membership::Everything));
    assert_eq!(asked(of_kind(FlowKind::McDefault)), Some(Membership::Groups));
}

prop_compose! {
    fn eth()(dst: [u8; 6], src: [u8; 6], ether_type: u16, vlan_tag: u16) -> EthFilter {
        EthFilter { dst, src, ether_type, vlan_tag }
    }
}

prop_compose! {
    fn ipv4()(src: u32, dst: u32, protocol: u8, tos: u8, ttl: u8) -> Ipv4Filter {
        Ipv4Filter { src: src.into(), dst: dst.into(), protocol, tos, ttl }
    }
}

prop_compose! {
    fn ipv6()(
        src: u128,
        dst: u128,
        flow_label in 0..=FLOW_LABEL,
        next_header: u8,
        traffic_class: u8,
        hop_limit: u8,
    ) -> Ipv6Filter {
        Ipv6Filter { src: src.into(), dst: dst.into(), flow_label, next_header, traffic_class, hop_limit }
    }
}

prop_compose! {
    fn ports()(dst: u16, src: u16) -> PortFilter {
        PortFilter { dst, src }
    }
}

fn made() -> impl Strategy<Value = Made> {
    (eth(), any::<bool>(), ipv4(), ipv6(), ports(), any::<bool>(), any::<bool>()).prop_map(
        |(eth, tagged, v4, v6, ports, is_v4, options)| {
            let kind = if is_v4 { 0x0800 } else { 0x86DD };
            Made {
                eth: EthFilter {
                    ether_type: kind,
                    vlan_tag: if tagged { eth.vlan_tag } else { 0 },
                    ..eth
                },
                tagged,
                ipv4: is_v4.then_some(Ipv4Filter { protocol: 17, ..v4 }),
                ipv6: (!is_v4)
                    .then_some(Ipv6Filter { next_header: if options { 60 } else { 17 }, ..v6 }),
                ports: Some(ports),
            }
        },
    )
}

fn masks() -> impl Strategy<Value = (EthFilter, Ipv4Filter, Ipv6Filter, PortFilter)> {
    (eth(), ipv4(), ipv6(), ports())
}

fn flip(bytes: &mut [u8], bit: usize) {
    bytes[bit / 8] ^= 0x80 >> (bit % 8);
}

proptest! {
    /// Flipping one bit of a matching value matters only inside the mask.
    #[test]
    fn bits_count_that_the_mask_has(
        made in made(),
        (eth_mask, v4_mask, v6_mask, port_mask) in masks(),
        which in 0_usize..3,
        bit in 0_usize..64,
    ) {
        let fields = Fields::of(&made.frame()).unwrap();
        let vlan_counts = |mask: EthFilter| EthFilter {
            vlan_tag: if made.tagged { mask.vlan_tag } else { 0 },
            ..mask
        };
        let mask = vlan_counts(eth_mask);
        let (mut eth, mut v4, mut v6) = (made.eth, made.ipv4, made.ipv6);
        let mut ports = made.ports.unwrap();
        let counts = match which {
            0 => {
                let at = bit % 48;
                flip(&mut eth.dst, at);
                mask.dst[at / 8] & 0x80 >> (at % 8) != 0
            }
            1 => {
                let at = bit % 32;
                let one = 1 << at;
                if let Some(v4) = &mut v4 {
                    v4.dst = (v4.dst.to_bits() ^ one).into();
                    v4_mask.dst.to_bits() & one != 0
                } else {
                    let v6 = v6.as_mut().unwrap();
                    v6.src = (v6.src.to_bits() ^ u128::from(one)).into();
                    v6_mask.src.to_bits() & u128::from(one) != 0
                }
            }
            _ => {
                let one = 1 << (bit % 16);
                ports.src ^= one;
                port_mask.src & one != 0
            }
        };
        let mut specs = vec![
            FlowSpec::Eth { value: eth, mask },
            FlowSpec::Udp { value: ports, mask: port_mask },
        ];
        specs.extend(v4.map(|value| FlowSpec::Ipv4 { value, mask: v4_mask }));
        specs.extend(v6.map(|value| FlowSpec::Ipv6 { value, mask: v6_mask }));
        let matched = specs.iter().all(|spec| spec.matches(&fields));
        prop_assert_eq!(matched, !counts);
    }

    #[test]
    fn anything_is_steered(frame in proptest::collection::vec(any::<u8>(), 0..120), cut: usize, made in made()) {
        let flows = table(&[
            (1, of_kind(FlowKind::Sniffer)),
            (2, of_kind(FlowKind::AllDefault)),
            (3, normal(0, [to_port(1)])),
        ]);
        let whole = made.frame();
        for frame in [&frame[..], &whole[..cut % whole.len()]] {
            let to = steer(&flows, frame, false);
            prop_assert_eq!(to.len(), if frame.len() < 14 { 0 } else { 2 });
        }
    }
}
