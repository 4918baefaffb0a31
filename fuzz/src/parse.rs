//! Target: one packet.

use std::net::IpAddr;

use roce_transport::wire::{
    FrameFields, GRH_LEN, HEADERS_MAX, ICRC_LEN, IcrcMatch, Ident, NetHeader, Packet, grh, icrc,
    padding, verify_icrc,
};

use crate::input::Input;

/// A packet is written back equal; an ICRC made for it verifies, even without the IPv4
/// identification.
pub fn parse(data: &[u8]) {
    if let Ok(packet) = Packet::parse(data) {
        round_trip(&packet, data.len());
        let opcode = packet.headers.bth().opcode;
        assert!(!opcode.to_string().is_empty() && !format!("{packet:?}").is_empty());
    }
    for v6 in [false, true] {
        let net = net_header(data, v6);
        let _either = verify_icrc(&net, data);
        let _either = verify_icrc(&NetHeader { ident: Ident::Likely(net.src_port), ..net }, data);
        assert_eq!(grh(&net, data.len()).len(), GRH_LEN);
        sealed(&net, data);
    }
}

fn round_trip(packet: &Packet<'_>, length: usize) {
    let mut out =
        vec![0xAA; HEADERS_MAX + packet.payload.len() + padding(packet.payload.len()) + ICRC_LEN];
    let written = packet.encode(&mut out);
    assert_eq!(written, length, "written back with another length");
    assert_eq!(Packet::parse(&out[..written]), Ok(*packet), "written back as another packet");
}

/// `data` as the ICRC-covered part of a packet.
fn sealed(net: &NetHeader, data: &[u8]) {
    let Ident::Known { id, dont_fragment } = net.ident else { return };
    let bytes = [data, &icrc(net, data).to_le_bytes()].concat();
    assert_eq!(verify_icrc(net, &bytes), Some(IcrcMatch::Exact));
    let guess = id ^ 0x1234;
    let found = verify_icrc(&NetHeader { ident: Ident::Likely(guess), ..*net }, &bytes);
    // solved for only in valid packets: whole words of a possible length
    if net.src.is_ipv6() {
        assert_eq!(found, Some(IcrcMatch::Exact));
    } else if data.len().is_multiple_of(4) && data.len() <= HEADERS_MAX + 4096 {
        assert_eq!(found, Some(IcrcMatch::Solved { id, dont_fragment }));
    }
}

/// Derived from the bytes, which all stay available for the packet.
fn net_header(data: &[u8], v6: bool) -> NetHeader {
    let mut input = Input::new(data);
    let (src, dst) = if v6 {
        (IpAddr::from(input.array::<16>()), IpAddr::from(input.array::<16>()))
    } else {
        (IpAddr::from(input.array::<4>()), IpAddr::from(input.array::<4>()))
    };
    let [port_high, port_low, id_high, id_low, traffic_class, hop_limit, flags] = input.array();
    NetHeader {
        src,
        dst,
        src_port: u16::from_be_bytes([port_high, port_low]),
        traffic_class,
        hop_limit,
        ident: Ident::Known {
            id: u16::from_be_bytes([id_high, id_low]),
            dont_fragment: flags & 1 != 0,
        },
        frame: FrameFields::default(),
    }
}
