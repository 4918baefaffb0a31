//! The program in an interpreter, against the frame parser; `tests/live/xdp.rs` has the kernel's
//! verifier.

use std::{
    cell::Cell,
    net::{Ipv4Addr, Ipv6Addr},
};

use proptest::prelude::*;
use rbpf::EbpfVmMbuff;

use roce_ethernet::{Frame, IpPacket, Packet, Prefix, Vlan};

use self::captured::captured;
use super::*;

#[path = "../../../../../../ethernet/src/tests/captured.rs"]
mod captured;

const MAC: MacAddr = MacAddr(2, 0, 0, 0, 0, 1);
const QUEUE_OF_FRAME: u64 = 3;
const MAP: i32 = 77;
const TAKEN: u64 = 4;
const WHOLE: FrameLimits = FrameLimits { max_len: 1518, multi_buffer: false, gso: false };
const MULTI_BUFFER: FrameLimits = FrameLimits { max_len: 9018, multi_buffer: true, gso: false };

thread_local! {
    static LENGTH: Cell<u64> = const { Cell::new(0) };
}

fn redirect(map: u64, queue: u64, otherwise: u64, _: u64, _: u64) -> u64 {
    assert_eq!((map, queue, otherwise), (MAP as u64, QUEUE_OF_FRAME, PASS as u64));
    TAKEN
}

fn frame_length(_: u64, _: u64, _: u64, _: u64, _: u64) -> u64 {
    LENGTH.get()
}

/// For the interpreter, context loads become 64-bit, as in the kernel.
fn bytes(program: &[Instruction]) -> Vec<u8> {
    const LOAD_LONG: u8 = 0x79;
    let loads = [(DATA, LOAD_LONG, 0), (DATA_END, LOAD_LONG, 8), (QUEUE, LOAD_LONG, 16)];
    let instructions = program.iter().flat_map(|it| {
        let mut it = *it;
        if it.code == LOAD_WORD && it.registers >> 4 == CONTEXT.0 {
            let (_, code, offset) = loads.into_iter().find(|load| load.0 == it.offset).unwrap();
            (it.code, it.offset) = (code, offset);
        }
        if it.code == LOAD_VALUE {
            it.registers &= 0x0F; // no map, but its number
        }
        let mut bytes = vec![it.code, it.registers];
        bytes.extend(it.offset.to_le_bytes());
        bytes.extend(it.value.to_le_bytes());
        bytes
    });
    instructions.collect()
}

/// A read outside the frame is an error.
fn takes(config: &StationConfig, frames: FrameLimits, frame: &[u8]) -> bool {
    let program = bytes(&of(config, frames, MAP));
    let mut machine = EbpfVmMbuff::new(Some(&program)).unwrap();
    machine.register_helper(REDIRECT as u32, redirect).unwrap();
    machine.register_helper(FRAME_LENGTH as u32, frame_length).unwrap();
    LENGTH.set(frame.len() as u64);
    let start = frame.as_ptr() as u64;
    let given = [start, start + frame.len() as u64, QUEUE_OF_FRAME].map(u64::to_ne_bytes).concat();
    match machine.execute_program(frame, &given).unwrap() {
        TAKEN => true,
        result => {
            assert_eq!(result, PASS as u64);
            false
        }
    }
}

fn config(addresses: &[&str]) -> StationConfig {
    let prefix = |text: &&str| Prefix { address: text.parse().unwrap(), length: 24 };
    StationConfig {
        mac: MAC,
        vlan: None,
        addresses: addresses.iter().map(prefix).collect(),
        gateways: Vec::new(),
        replies: true,
        roce_v1: false,
        dhcp: None,
        mbps: 10_000,
    }
}

fn frame(tags: &[[u8; 4]], ethertype: u16, packet: &[u8]) -> Vec<u8> {
    let mut frame = MAC.octets().to_vec();
    frame.extend([2, 0, 0, 0, 0, 9]);
    frame.extend(tags.concat());
    frame.extend(ethertype.to_be_bytes());
    frame.extend(packet);
    frame
}

fn udp(port: u16) -> Vec<u8> {
    [&[0xC0, 1][..], &port.to_be_bytes(), &[0, 24, 0, 0], &[0x55; 16]].concat()
}

/// `options` in words; `fragment`: flags and offset.
fn ipv4(dst: Ipv4Addr, options: u8, fragment: u16, protocol: u8, payload: &[u8]) -> Vec<u8> {
    let length = 20 + u16::from(options) * 4 + payload.len() as u16;
    let mut packet = vec![0x45 + options, 0];
    packet.extend(length.to_be_bytes());
    packet.extend([0, 0]);
    packet.extend(fragment.to_be_bytes());
    packet.extend([64, protocol, 0, 0, 10, 0, 0, 9]);
    packet.extend(dst.octets());
    packet.extend(vec![1; usize::from(options) * 4]);
    packet.extend(payload);
    packet
}

fn ipv6(dst: Ipv6Addr, next: u8, payload: &[u8]) -> Vec<u8> {
    let mut packet = vec![0x60, 0, 0, 0];
    packet.extend((payload.len() as u16).to_be_bytes());
    packet.extend([next, 64]);
    packet.extend(Ipv6Addr::LOCALHOST.octets());
    packet.extend(dst.octets());
    packet.extend(payload);
    packet
}

const V4: Ipv4Addr = Ipv4Addr::new(10, 0, 0, 1);
const V6: Ipv6Addr = Ipv6Addr::new(0xFD00, 0, 0, 0, 0, 0, 0, 1);
const ADDRESSES: [&str; 4] = ["10.0.0.7", "10.0.0.1", "fd00::7", "fd00::1"];

#[test]
fn what_is_for_the_device_is_taken_and_nothing_else() {
    let config = config(&ADDRESSES);
    let roce = ipv4(V4, 0, 0x4000, 17, &udp(4791));
    let roce_v6 = ipv6(V6, 17, &udp(4791));
    for (wanted, what, frame) in [
        (true, "RoCEv2", frame(&[], 0x0800, &roce)),
        (
            true,
            "another address",
            frame(&[], 0x0800, &ipv4([10, 0, 0, 7].into(), 0, 0, 17, &udp(4791))),
        ),
        (false, "options", frame(&[], 0x0800, &ipv4(V4, 1, 0, 17, &udp(4791)))),
        (false, "all options", frame(&[], 0x0800, &ipv4(V4, 10, 0, 17, &udp(4791)))),
        (true, "IPv6", frame(&[], 0x86DD, &roce_v6)),
        (false, "another port", frame(&[], 0x0800, &ipv4(V4, 0, 0, 17, &udp(4790)))),
        (false, "the port behind the options", frame(&[], 0x0800, &ipv4(V4, 1, 0, 17, &udp(53)))),
        (false, "TCP", frame(&[], 0x0800, &ipv4(V4, 0, 0, 6, &udp(4791)))),
        (false, "a first fragment", frame(&[], 0x0800, &ipv4(V4, 0, 0x2000, 17, &udp(4791)))),
        (false, "a later fragment", frame(&[], 0x0800, &ipv4(V4, 0, 1, 17, &udp(4791)))),
        (
            false,
            "the kernel's address",
            frame(&[], 0x0800, &ipv4([10, 0, 0, 2].into(), 0, 0, 17, &udp(4791))),
        ),
        (false, "a group", frame(&[], 0x0800, &ipv4([239, 1, 1, 1].into(), 0, 0, 17, &udp(4791)))),
        (
            false,
            "a short header",
            frame(&[], 0x0800, &{
                let mut packet = roce.clone();
                packet[0] = 0x44;
                packet
            }),
        ),
        (
            false,
            "the kernel's IPv6 address",
            frame(&[], 0x86DD, &ipv6("fd00::2".parse().unwrap(), 17, &udp(4791))),
        ),
        (false, "IPv6, another port", frame(&[], 0x86DD, &ipv6(V6, 17, &udp(4790)))),
        (
            false,
            "an extension header",
            frame(
                &[],
                0x86DD,
                &ipv6(V6, 60, &[&[17, 0, 1, 4, 0, 0, 0, 0][..], &udp(4791)].concat()),
            ),
        ),
        (
            false,
            "a fragment of IPv6",
            frame(
                &[],
                0x86DD,
                &ipv6(V6, 44, &[&[17, 0, 0, 1, 0, 0, 0, 1][..], &udp(4791)].concat()),
            ),
        ),
        (false, "neighbour discovery", frame(&[], 0x86DD, &ipv6(V6, 58, &udp(4791)))),
        (false, "ARP", frame(&[], 0x0806, &[0; 46])),
        (false, "RoCE v1", frame(&[], 0x8915, &ipv6(V6, 27, &[0; 24]))),
        (false, "a tag", frame(&[[0x81, 0, 0, 100]], 0x0800, &roce)),
        (false, "a tag with a priority only", frame(&[[0x81, 0, 0x60, 0]], 0x0800, &roce)),
        (false, "another MAC address", {
            let mut frame = frame(&[], 0x0800, &roce);
            frame[5] = 2;
            frame
        }),
        (false, "a broadcast", {
            let mut frame = frame(&[], 0x0800, &roce);
            frame[..6].fill(0xFF);
            frame
        }),
    ] {
        for frames in [WHOLE, MULTI_BUFFER] {
            assert_eq!(takes(&config, frames, &frame), wanted, "{what}: {frame:02x?}");
        }
    }
}

#[test]
fn a_leased_address_may_be_any_of_its_family() {
    let leases = StationConfig { dhcp: Some([0; 32]), roce_v1: true, ..config(&["fd00::1"]) };
    let to = |address: [u8; 4]| ipv4(address.into(), 0, 0, 17, &udp(4791));
    let (other_v6, v1) = ("fd00::2".parse().unwrap(), ipv6(V6, 27, &[0; 24]));
    for (wanted, ethertype, packet) in [
        (true, 0x0800, to([10, 0, 0, 1])),
        (true, 0x0800, to([192, 0, 2, 1])),
        (false, 0x0800, ipv4(V4, 0, 0, 17, &udp(68))),
        (false, 0x0800, ipv4(V4, 0, 0x2000, 17, &udp(4791))),
        (true, 0x86DD, ipv6(V6, 17, &udp(4791))),
        (false, 0x86DD, ipv6(other_v6, 17, &udp(4791))),
        (true, 0x8915, v1.clone()),
    ] {
        for frames in [WHOLE, MULTI_BUFFER] {
            let frame = frame(&[], ethertype, &packet);
            assert_eq!(takes(&leases, frames, &frame), wanted, "{frame:02x?}");
        }
    }
    let only = StationConfig { roce_v1: false, ..leases };
    assert!(!takes(&only, WHOLE, &frame(&[], 0x8915, &v1)));
    let only = StationConfig { addresses: Vec::new(), ..only };
    assert!(takes(&only, WHOLE, &frame(&[], 0x0800, &to([10, 0, 0, 1]))));
    assert!(!takes(&only, WHOLE, &frame(&[], 0x86DD, &ipv6(V6, 17, &udp(4791)))));
}

#[test]
fn of_vlans_only_its_own_is_taken() {
    let config =
        StationConfig { vlan: Some(Vlan { id: 0x123, priority: 3 }), ..config(&ADDRESSES) };
    for (ethertype, packet) in
        [(0x0800, ipv4(V4, 0, 0, 17, &udp(4791))), (0x86DD, ipv6(V6, 17, &udp(4791)))]
    {
        for (wanted, tags) in [
            (true, &[[0x81, 0, 0x01, 0x23]][..]),
            (true, &[[0x81, 0, 0xF1, 0x23]]), // whatever the priority
            (false, &[[0x81, 0, 0x01, 0x24]]),
            (false, &[[0x81, 0, 0x02, 0x23]]),
            (false, &[[0x88, 0xA8, 0x01, 0x23]]),
            (false, &[[0x81, 0, 0x01, 0x23], [0x81, 0, 0x01, 0x23]]),
            (false, &[]),
        ] {
            assert_eq!(
                takes(&config, WHOLE, &frame(tags, ethertype, &packet)),
                wanted,
                "{tags:02x?}"
            );
        }
    }
}

#[test]
fn roce_v1_is_taken_by_its_gids() {
    let config = StationConfig { roce_v1: true, ..config(&ADDRESSES) };
    for (wanted, next, gid) in [
        (true, 27, "fd00::1"),
        (true, 27, "fd00::7"),
        (true, 27, "::ffff:10.0.0.1"),
        (false, 27, "::10.0.0.1"),
        (false, 27, "::ffff:10.0.0.2"),
        (false, 17, "fd00::1"),
    ] {
        let frame = frame(&[], 0x8915, &ipv6(gid.parse().unwrap(), next, &[0; 24]));
        assert_eq!(takes(&config, WHOLE, &frame), wanted, "{next} {gid}");
    }
    assert!(takes(&config, WHOLE, &frame(&[], 0x0800, &ipv4(V4, 0, 0, 17, &udp(4791)))));
}

#[test]
fn where_runs_may_come_what_has_a_checksum_is_left_to_the_kernel() {
    let config = config(&ADDRESSES);
    for (mut frame, udp) in [
        (frame(&[], 0x0800, &ipv4(V4, 0, 0, 17, &udp(4791))), 14 + 20),
        (frame(&[], 0x86DD, &ipv6(V6, 17, &udp(4791))), 14 + 40),
    ] {
        let gso = FrameLimits { gso: true, ..WHOLE };
        assert!(takes(&config, WHOLE, &frame) && takes(&config, gso, &frame));
        for at in 6..8 {
            frame[udp + at] = 1;
            assert!(takes(&config, WHOLE, &frame) && !takes(&config, gso, &frame));
            frame[udp + at] = 0;
        }
    }
}

#[test]
fn what_is_cut_short_or_too_long_is_left_to_the_kernel() {
    let config = StationConfig { roce_v1: true, ..config(&ADDRESSES) };
    for (whole, needed) in [
        (frame(&[], 0x0800, &ipv4(V4, 0, 0, 17, &udp(4791))), 42),
        (frame(&[], 0x0800, &ipv4(V4, 0, 0x4000, 17, &udp(4791))), 42),
        (frame(&[], 0x86DD, &ipv6(V6, 17, &udp(4791))), 62),
        (frame(&[], 0x8915, &ipv6(V6, 27, &[0; 24])), 54),
    ] {
        for length in 0..=whole.len() {
            // a separate allocation, with nothing behind
            let cut = whole[..length].to_vec();
            for frames in [WHOLE, MULTI_BUFFER] {
                assert_eq!(takes(&config, frames, &cut), length >= needed, "{length}");
            }
        }
        for frames in [WHOLE, MULTI_BUFFER] {
            let mut long = whole.clone();
            long.resize(frames.max_len, 0);
            assert!(takes(&config, frames, &long));
            long.push(0);
            assert!(!takes(&config, frames, &long));
        }
    }
}

#[test]
fn captured_frames_are_taken_by_whom_they_are_for() {
    let mut count = [0, 0];
    for (path, bytes) in captured() {
        let frame = Frame::parse(&bytes).unwrap();
        let Packet::Ip(packet) = frame.packet else { continue };
        let is_group = frame.dst.0 & 1 == 1;
        let is_roce = packet.protocol == 17 && packet.payload[2..4] == 4791_u16.to_be_bytes();
        let addressed = |mac, address| StationConfig {
            mac,
            addresses: vec![Prefix { address, length: 24 }],
            ..config(&[])
        };
        let limits = FrameLimits { max_len: 4200, ..WHOLE };
        let wanted = is_roce && !is_group;
        let own = if is_group { MAC } else { frame.dst };
        assert_eq!(takes(&addressed(own, packet.dst), limits, &bytes), wanted, "{path:?}");
        assert!(!takes(&addressed(frame.dst, packet.src), limits, &bytes), "{path:?}");
        assert!(!takes(&addressed(frame.src, packet.dst), limits, &bytes), "{path:?}");
        count[usize::from(packet.dst.is_ipv6())] += usize::from(wanted);
    }
    assert_eq!(count, [359, 12]);
}

proptest! {
    /// With any bytes, the program reads nothing outside and takes exactly the parser's RoCE
    /// packets.
    #[test]
    fn it_agrees_with_the_reader_of_frames(
        kind in 0_usize..3,
        tagged: bool,
        tag in any::<bool>(),
        changes in prop::collection::vec((0_usize..100, any::<u8>()), 0..3),
        length in 0_usize..120,
    ) {
        let vlan = tagged.then_some(Vlan { id: 0x123, priority: 0 });
        let config = StationConfig { vlan, roce_v1: true, ..config(&ADDRESSES) };
        let tags = [[0x81, 0, 0x01, 0x23]];
        let tags = if tag { &tags[..] } else { &[] };
        let mut bytes = match kind {
            0 => frame(tags, 0x0800, &ipv4(V4, 0, 0, 17, &udp(4791))),
            1 => frame(tags, 0x86DD, &ipv6(V6, 17, &udp(4791))),
            _ => frame(tags, 0x8915, &ipv6(V4.to_ipv6_mapped(), 27, &[0; 24])),
        };
        for (at, byte) in changes {
            if let Some(place) = bytes.get_mut(at) {
                *place = byte;
            }
        }
        bytes.truncate(length.max(1));
        let bytes = bytes.into_boxed_slice();
        let taken = takes(&config, WHOLE, &bytes);
        // only the parser checks the header checksum
        let mut sealed = bytes.to_vec();
        let ip = if tag { 18 } else { 14 };
        if sealed.len() >= ip + 20 && sealed[ip - 2..ip] == [8, 0] {
            let end = ip + usize::from(sealed[ip] & 15) * 4;
            if end >= ip + 20 && end <= sealed.len() {
                smoltcp::wire::Ipv4Packet::new_unchecked(&mut sealed[ip..end]).fill_checksum();
            }
        }
        let Ok(frame) = Frame::parse(&sealed) else { return Ok(()) };
        // only the parser checks lengths
        if matches!(&frame.packet, Packet::Ip(packet) if packet.payload.len() < 8) {
            return Ok(());
        }
        let is_own = |packet: &IpPacket<'_>| {
            config.addresses.iter().any(|own| own.address == packet.dst)
        };
        let port = 4791_u16.to_be_bytes();
        let is_roce = match &frame.packet {
            Packet::Ip(packet) => {
                let is_extended = frame_has_extensions(&sealed, ip);
                packet.protocol == 17 && is_own(packet) && !is_extended
                    && packet.payload.get(2..4) == Some(&port[..])
            }
            Packet::RoceV1(packet) => is_own(packet),
            _ => false,
        };
        let wanted = frame.dst == MAC && frame.vlan == vlan.map(|vlan| vlan.id) && is_roce;
        prop_assert_eq!(taken, wanted, "{:02x?}", sealed);
    }
}

/// IPv4 options, or an IPv6 next header other than UDP.
fn frame_has_extensions(frame: &[u8], ip: usize) -> bool {
    match frame[ip - 2..ip] {
        [0x86, 0xDD] => frame[ip + 6] != 17,
        _ => frame[ip] != 0x45,
    }
}
