use std::net::IpAddr;

use proptest::{collection::vec, prelude::*, sample::Index};
use roce_transport::{
    addr::{PKey, QKey},
    ids::{Qpn, RKey, SrqId},
    psn::{Msn, Psn},
    wire::{
        Aeth, AtomicAckEth, AtomicEth, Bth, Deth, Ext, Extension, Feth, FrameFields, GRH_LEN,
        HEADERS_MAX, Headers, ICRC_LEN, IcrcMatch, Ident, Immediate, InvalidateEth, NetHeader,
        Opcode, Operation, Packet, Reth, Service, Syndrome, XrcEth, checksum, grh, icrc, padding,
        verify_icrc,
    },
};

const SERVICES: [Service; 5] = [Service::Rc, Service::Uc, Service::Ud, Service::Cnp, Service::Xrc];

/// Congestion and reserved bits, outside the ICRC.
const MASKED: usize = 4;

const PAYLOAD_MAX: usize = 4096;

fn every_opcode() -> impl Iterator<Item = Opcode> {
    SERVICES.into_iter().flat_map(|service| {
        Operation::ALL.iter().filter_map(move |&operation| Opcode::new(service, operation))
    })
}

#[derive(Clone, Debug)]
struct Values {
    words: [u32; 6],
    longs: [u64; 3],
    bytes: [u8; 3],
    flags: [bool; 5],
}

impl Values {
    fn bth(&self, opcode: Opcode) -> Bth {
        let [solicited, mig_req, fecn, becn, ack_req] = self.flags;
        Bth {
            opcode,
            solicited,
            mig_req,
            pkey: PKey(self.words[0] as u16),
            fecn,
            becn,
            dest_qp: Qpn::new(self.words[1]),
            ack_req,
            psn: Psn::new(self.words[2]),
        }
    }

    fn ext(&self, extension: Extension) -> Ext {
        let [placement, selectivity, syndrome] = self.bytes;
        let immediate = Immediate(self.words[3].to_be_bytes());
        let aeth = Aeth { syndrome: Syndrome::from_wire(syndrome), msn: Msn::new(self.words[4]) };
        let reth = Reth {
            virtual_address: self.longs[0],
            rkey: RKey(self.words[4]),
            dma_length: self.words[5],
        };
        let deth = Deth { qkey: QKey(self.words[4]), source_qp: Qpn::new(self.words[5]) };
        let feth = Feth { placement: placement & 0x0F, selectivity: selectivity & 3 };
        match extension {
            Extension::None => Ext::None,
            Extension::Imm => Ext::Imm(immediate),
            Extension::Ieth => Ext::Ieth(InvalidateEth(RKey(self.words[3]))),
            Extension::Reth => Ext::Reth(reth),
            Extension::RethImm => Ext::RethImm(reth, immediate),
            Extension::Aeth => Ext::Aeth(aeth),
            Extension::AethAtomicAck => Ext::AethAtomicAck(aeth, AtomicAckEth(self.longs[1])),
            Extension::Atomic => Ext::Atomic(AtomicEth {
                virtual_address: self.longs[0],
                rkey: RKey(self.words[4]),
                swap_or_add: self.longs[1],
                compare: self.longs[2],
            }),
            Extension::FethReth => Ext::FethReth(feth, reth),
            Extension::Deth => Ext::Deth(deth),
            Extension::DethImm => Ext::DethImm(deth, immediate),
        }
    }

    fn headers(&self, opcode: Opcode) -> Headers {
        let (bth, ext) = (self.bth(opcode), self.ext(opcode.extension()));
        let headers = if opcode.has_xrceth() {
            Headers::xrc(bth, self.xrceth(), ext)
        } else {
            Headers::new(bth, ext)
        };
        headers.expect("the extension was made for the opcode")
    }

    fn xrceth(&self) -> XrcEth {
        XrcEth { srq: SrqId::new(self.words[5]) }
    }
}

fn values() -> impl Strategy<Value = Values> {
    any::<([u32; 6], [u64; 3], [u8; 3], [bool; 5])>()
        .prop_map(|(words, longs, bytes, flags)| Values { words, longs, bytes, flags })
}

fn opcode() -> impl Strategy<Value = Opcode> {
    any::<Index>().prop_map(|index| *index.get(&every_opcode().collect::<Vec<_>>()))
}

/// One repeated block: drawing each byte takes most of a test's time.
fn payload() -> impl Strategy<Value = Vec<u8>> {
    let length =
        prop_oneof![3 => 0..64_usize, 1 => 0..=PAYLOAD_MAX, 1 => PAYLOAD_MAX - 3..=PAYLOAD_MAX];
    (length, any::<[u8; 31]>())
        .prop_map(|(length, block)| block.into_iter().cycle().take(length).collect())
}

fn net(ident: impl Strategy<Value = Ident>) -> impl Strategy<Value = NetHeader> {
    let v4 =
        any::<([u8; 4], [u8; 4])>().prop_map(|(src, dst)| (IpAddr::from(src), IpAddr::from(dst)));
    let v6 =
        any::<([u8; 16], [u8; 16])>().prop_map(|(src, dst)| (IpAddr::from(src), IpAddr::from(dst)));
    (prop_oneof![v4, v6], any::<u16>(), any::<u8>(), any::<u8>(), ident).prop_map(
        |((src, dst), src_port, traffic_class, hop_limit, ident)| NetHeader {
            src,
            dst,
            src_port,
            traffic_class,
            hop_limit,
            ident,
            frame: FrameFields::default(),
        },
    )
}

/// Distance of two PSNs, often near a limit.
fn distance() -> impl Strategy<Value = u32> {
    const HALF: u32 = 1 << 23;
    prop_oneof![any::<u32>(), HALF - 2..HALF + 3, 0..3_u32, 2 * HALF - 2..=2 * HALF]
}

fn known() -> impl Strategy<Value = Ident> {
    any::<(u16, bool)>().prop_map(|(id, dont_fragment)| Ident::Known { id, dont_fragment })
}

fn encode(packet: &Packet<'_>) -> Vec<u8> {
    let payload = packet.payload.len();
    let mut out = vec![0xAA; HEADERS_MAX + payload + padding(payload) + ICRC_LEN];
    let length = packet.encode(&mut out);
    out.truncate(length);
    out
}

fn sealed(net: &NetHeader, headers: Headers, payload: &[u8]) -> Vec<u8> {
    let mut bytes = encode(&Packet { headers, payload, icrc: 0 });
    seal(net, &mut bytes);
    bytes
}

fn seal(net: &NetHeader, bytes: &mut [u8]) {
    let (body, tail) = bytes.split_at_mut(bytes.len() - ICRC_LEN);
    tail.copy_from_slice(&icrc(net, body).to_le_bytes());
}

proptest! {
    #[test]
    fn every_packet_survives_the_way_over_the_wire(values in values(), payload in payload(), icrc: u32) {
        for opcode in every_opcode() {
            for cut in 0..4 {
                let payload = &payload[..payload.len().saturating_sub(cut)];
                let packet = Packet { headers: values.headers(opcode), payload, icrc };
                let bytes = encode(&packet);
                prop_assert_eq!(bytes.len() % 4, 0);
                prop_assert_eq!(bytes[0], opcode.to_wire());
                prop_assert_eq!(Packet::parse(&bytes), Ok(packet), "{}", opcode);
            }
        }
    }

    #[test]
    fn any_bytes_are_a_packet_or_an_error(mut bytes in vec(any::<u8>(), 0..256), opcode in opcode(), plausible: bool) {
        if plausible && let [first, second, ..] = &mut bytes[..] {
            *first = opcode.to_wire();
            *second &= 0xF0;
        }
        if let Ok(packet) = Packet::parse(&bytes) {
            let written = encode(&packet);
            prop_assert_eq!(written.len(), bytes.len());
            prop_assert_eq!(Packet::parse(&written), Ok(packet));
        }
    }

    #[test]
    fn a_packet_cut_short_is_an_error_or_another_packet(values in values(), opcode in opcode(), payload in vec(any::<u8>(), 0..32)) {
        let bytes = encode(&Packet { headers: values.headers(opcode), payload: &payload, icrc: 0 });
        for length in 0..bytes.len() {
            match Packet::parse(&bytes[..length]) {
                Ok(packet) => prop_assert!(length % 4 == 0 && packet.payload.len() < payload.len()),
                Err(_) => prop_assert!(length % 4 != 0 || length <= bytes.len() - payload.len() - padding(payload.len())),
            }
        }
    }

    #[test]
    fn headers_fit_their_opcode_or_are_none(values in values()) {
        let extensions: Vec<_> = every_opcode().map(Opcode::extension).collect();
        for opcode in every_opcode() {
            for &extension in &extensions {
                let (bth, ext) = (values.bth(opcode), values.ext(extension));
                let (plain, xrc) = (Headers::new(bth, ext), Headers::xrc(bth, values.xrceth(), ext));
                let fits = opcode.extension() == extension;
                prop_assert_eq!(plain.is_some(), fits && !opcode.has_xrceth(), "{} with {:?}", opcode, extension);
                prop_assert_eq!(xrc.is_some(), fits && opcode.has_xrceth(), "{} with {:?}", opcode, extension);
            }
        }
    }

    #[test]
    fn corruption_is_refused(
        net in net(known()),
        values in values(),
        opcode in opcode(),
        payload in payload(),
        flips in vec(any::<Index>(), 1..12),
    ) {
        let sent = sealed(&net, values.headers(opcode), &payload);
        prop_assert_eq!(verify_icrc(&net, &sent), Some(IcrcMatch::Exact));
        let mut bytes = sent.clone();
        for flip in flips {
            let bit = flip.index((bytes.len() - 1) * 8);
            let byte = bit / 8 + usize::from(bit / 8 >= MASKED);
            bytes[byte] ^= 1 << (bit % 8);
        }
        if bytes != sent {
            prop_assert_eq!(verify_icrc(&net, &bytes), None);
        }
    }

    #[test]
    fn another_length_is_refused(
        net in net(known()),
        values in values(),
        opcode in opcode(),
        payload in payload(),
        more in vec(any::<u8>(), 1..8),
        cut in 1_usize..16,
    ) {
        let mut bytes = sealed(&net, values.headers(opcode), &payload);
        prop_assert_eq!(verify_icrc(&net, &bytes[..bytes.len() - cut]), None);
        bytes.extend(more);
        prop_assert_eq!(verify_icrc(&net, &bytes), None);
    }

    #[test]
    fn what_routers_write_is_not_covered(
        net in net(known()),
        values in values(),
        opcode in opcode(),
        payload in payload(),
        congestion: u8,
        traffic_class: u8,
        hop_limit: u8,
    ) {
        let mut bytes = sealed(&net, values.headers(opcode), &payload);
        bytes[MASKED] = congestion;
        prop_assert_eq!(verify_icrc(&NetHeader { traffic_class, hop_limit, ..net }, &bytes), Some(IcrcMatch::Exact));
    }

    #[test]
    fn what_routers_do_not_write_is_covered(
        sent in net(known()),
        other in net(known()),
        values in values(),
        opcode in opcode(),
        payload in payload(),
    ) {
        let bytes = sealed(&sent, values.headers(opcode), &payload);
        let changed = [
            NetHeader { src: other.src, ..sent },
            NetHeader { dst: other.dst, ..sent },
            NetHeader { src_port: other.src_port, ..sent },
            NetHeader { ident: other.ident, ..sent },
        ];
        for net in changed {
            // a link mixes no families, and IPv6 has no identification
            let comparable = net.src.is_ipv4() == sent.src.is_ipv4() && net.dst.is_ipv4() == sent.dst.is_ipv4();
            let same = net == sent || net.src.is_ipv6() && NetHeader { ident: sent.ident, ..net } == sent;
            if comparable && !same {
                prop_assert_eq!(verify_icrc(&net, &bytes), None);
            }
        }
    }

    #[test]
    fn an_unknown_identification_is_solved(
        sent in net(known()),
        values in values(),
        opcode in opcode(),
        payload in payload(),
        guess: u16,
    ) {
        let bytes = sealed(&sent, values.headers(opcode), &payload);
        let Ident::Known { id, dont_fragment } = sent.ident else { unreachable!() };
        let known = IcrcMatch::Solved { id, dont_fragment };
        for guess in [guess, 0, id] {
            let expected = if sent.src.is_ipv6() || (guess, true) == (id, dont_fragment) { IcrcMatch::Exact } else { known };
            prop_assert_eq!(verify_icrc(&NetHeader { ident: Ident::Likely(guess), ..sent }, &bytes), Some(expected));
        }
    }

    #[test]
    fn the_icrc_is_total(net in net(known()), length in prop_oneof![0..20_usize, 65_500..65_600_usize], fill: u8) {
        let bytes = vec![fill; length];
        let with_icrc = [&bytes[..], &icrc(&net, &bytes).to_le_bytes()].concat();
        prop_assert_eq!(verify_icrc(&net, &with_icrc), Some(IcrcMatch::Exact));
        let likely = NetHeader { ident: Ident::Likely(0), ..net };
        let _either = verify_icrc(&likely, &with_icrc);
        prop_assert_eq!(grh(&net, bytes.len()).len(), GRH_LEN);
    }

    #[test]
    fn the_grh_area_tells_the_families_apart(net in net(known()), length in 0_usize..5000) {
        let area = grh(&net, length);
        if net.src.is_ipv4() {
            prop_assert_eq!(&area[..20], &[0; 20]);
            prop_assert_eq!(area[20], 0x45);
            prop_assert_eq!(checksum(&area[20..]), 0);
            prop_assert_eq!(usize::from(u16::from_be_bytes([area[22], area[23]])), length + 28);
        } else {
            prop_assert_eq!(area[0] >> 4, 6);
            prop_assert_eq!(usize::from(u16::from_be_bytes([area[4], area[5]])), length + 8);
        }
    }

    #[test]
    fn adding_to_a_psn_and_measuring_are_inverse(base: u32, distance in 0_u32..1 << 23) {
        let base = Psn::new(base);
        prop_assert_eq!(base.plus(distance).after(base), Some(distance));
        prop_assert!(!base.plus(distance).is_before(base));
        prop_assert_eq!(base.plus(distance).plus((1 << 24) - distance), base);
        prop_assert_eq!(base.plus(distance + (1 << 24)), base.plus(distance));
    }

    #[test]
    fn of_two_psns_one_is_before_the_other(a: u32, distance in distance()) {
        let a = Psn::new(a);
        let b = a.plus(distance);
        prop_assert_eq!(a.is_before(b), a.after(b).is_none());
        // exactly half the space apart, each is before the other
        let opposite = a.plus(1 << 23) == b;
        prop_assert_eq!(a.is_before(b) && b.is_before(a), opposite);
        prop_assert_eq!(!a.is_before(b) && !b.is_before(a), a == b);
        if let Some(distance) = a.after(b) {
            prop_assert_eq!(b.plus(distance), a);
        }
    }

    #[test]
    fn psns_wrap_at_24_bits(value: u32, n: u32) {
        let psn = Psn::new(value);
        prop_assert_eq!(psn.get(), value & 0xFF_FFFF);
        prop_assert_eq!(psn.plus(n).get(), value.wrapping_add(n) & 0xFF_FFFF);
        prop_assert_eq!(psn.plus(1).previous(), psn);
        prop_assert_eq!(psn.previous().plus(1), psn);
        prop_assert!(psn.previous().is_before(psn));
        prop_assert_eq!(Msn::new(value).next().get(), psn.plus(1).get());
    }
}

#[test]
fn credits_of_acknowledgements() {
    let granted = |credits| Syndrome::Ack { credits }.granted();
    let counts = [0, 1, 2, 3, 4, 6, 8, 12, 16, 24, 32, 48, 64, 96, 128, 192];
    for (code, count) in counts.into_iter().enumerate() {
        assert_eq!(granted(code as u8), Some(count), "{code}");
    }
    assert_eq!((granted(29), granted(30), granted(31)), (Some(24_576), Some(32_768), None));
    assert_eq!(Syndrome::RnrNak { timer: 1 }.granted(), None);
}

#[test]
fn every_syndrome_byte_reads_back() {
    for byte in 0..=u8::MAX {
        let syndrome = Syndrome::from_wire(byte);
        assert_eq!(syndrome.to_wire(), byte, "{syndrome:?}");
        let aeth = Aeth::parse(&[byte, 0x12, 0x34, 0x56]);
        assert_eq!(aeth, Aeth { syndrome, msn: Msn::new(0x12_3456) });
        assert_eq!(aeth.encode(), [byte, 0x12, 0x34, 0x56]);
    }
}

#[test]
fn every_service_has_its_operations_and_no_others() {
    let counts =
        SERVICES.map(|service| every_opcode().filter(|opcode| opcode.service() == service).count());
    assert_eq!(counts, [25, 12, 2, 1, 25]);
    for opcode in every_opcode() {
        assert_eq!(Opcode::from_wire(opcode.to_wire()), Some(opcode));
    }
}

/// With an unknown identification, one corrupted packet in 2^15 passes.
#[test]
fn few_corrupted_packets_pass_for_others() {
    const TRIES: u32 = 1 << 18;
    let net = NetHeader {
        src: [10, 0, 0, 1].into(),
        dst: [10, 0, 0, 2].into(),
        src_port: 49152,
        traffic_class: 0,
        hop_limit: 64,
        ident: Ident::Likely(0),
        frame: FrameFields::default(),
    };
    let headers =
        Headers::new(Bth::new(Opcode::CNP, Qpn::new(17), Psn::new(0)), Ext::None).unwrap();
    let mut bytes = sealed(&net, headers, &[0; 16]);
    let mut passed = 0;
    for n in 1..=TRIES {
        bytes[16..20].copy_from_slice(&n.wrapping_mul(0x9E37_79B9).to_be_bytes());
        match verify_icrc(&net, &bytes) {
            None => {}
            Some(IcrcMatch::Exact) => {
                panic!("four bytes in a row cannot change without changing the CRC")
            }
            Some(IcrcMatch::Solved { id, dont_fragment }) => {
                passed += 1;
                let solved = NetHeader { ident: Ident::Known { id, dont_fragment }, ..net };
                assert_eq!(verify_icrc(&solved, &bytes), Some(IcrcMatch::Exact));
            }
        }
    }
    assert!((1..=TRIES >> 14).contains(&passed), "{passed} of {TRIES}");
}
