//! Target: a script of Ethernet frames, datagrams and time for a host.
//!
//! An operation is a byte and operands: a raw frame, another host's frame with changed bytes and a
//! valid checksum, time, or a datagram to send.

use std::{collections::VecDeque, net::IpAddr, time::Duration};

use roce_ethernet::{
    Assignment, Frame, FrameCounters, Hop, MacAddr, Packet, Prefix, Station, StationConfig, Vlan,
};
use roce_transport::{adapter::Transmit, addr::RoceVersion, time::Instant, wire::FrameFields};

use crate::input::Input;

const OWN: MacAddr = MacAddr(2, 0, 0, 0, 0, 1);
const PEER: MacAddr = MacAddr(2, 0, 0, 0, 0, 2);
/// Of unmodified frames.
const LONGEST: usize = 255;

/// Coverage of a script.
#[derive(Default, Debug)]
pub struct Seen {
    /// RoCEv2 packets handed over.
    pub received: u64,
    /// The host's counters.
    pub counters: FrameCounters,
}

/// Panics if a frame for another host is handed over, or the host sends invalid, foreign or
/// unbounded frames.
pub fn frames(bytes: &[u8]) -> Seen {
    let mut input = Input::new(bytes);
    let setting = input.byte();
    let vlan = (setting & 1 == 1).then_some(Vlan { id: 100, priority: 3 });
    let mut now = Instant::from_nanos(1);
    let leases = setting & 16 != 0;
    let mut own = config(OWN, 1, vlan, setting & 2 == 0 || leases);
    if leases {
        own.dhcp = Some([setting; 32]);
        own.addresses.remove(0);
    }
    let mut station = Station::new(own, now);
    // with the same or other addresses
    let last = if setting & 8 == 0 { 2 } else { 1 };
    let mut peer = Station::new(config(PEER, last, vlan, true), now);
    let mut of_peer = VecDeque::new();
    let mut asked = None;
    let mut seen = Seen::default();
    while !input.is_empty() {
        match input.byte() % if leases { 5 } else { 4 } {
            0 => {
                let length = usize::from(input.byte()).min(LONGEST);
                let frame = input.bytes(length).to_vec();
                seen.received += u64::from(take(&mut station, now, &frame, false));
            }
            1 => {
                peer.handle_timeout(now);
                let datagram = ask(&mut peer, now, input.byte());
                of_peer.extend(datagram);
                of_peer.extend(std::iter::from_fn(|| peer.poll_frame()).take(8));
                if let Some(mut frame) = of_peer.pop_front() {
                    let changes = input.byte() % 8;
                    for _ in 0..changes {
                        let at = usize::from(input.byte()) % frame.len();
                        frame[at] = input.byte();
                    }
                    seal(&mut frame);
                    seen.received += u64::from(take(&mut station, now, &frame, setting & 4 != 0));
                }
            }
            2 => {
                now = now.plus(Duration::from_millis(u64::from(input.byte()) * 100));
                station.handle_timeout(now);
                let due = station.poll_timeout();
                assert!(due.is_none_or(|due| due > now), "what was due has been done");
            }
            4 => {
                if let Some(frame) = response(asked.as_deref(), &mut input) {
                    seen.received += u64::from(take(&mut station, now, &frame, false));
                }
            }
            _ => {
                let datagram = ask(&mut station, now, input.byte());
                datagram.iter().for_each(|frame| check_sent(frame, vlan));
            }
        }
        let mut sent = 0;
        while let Some(frame) = station.poll_frame() {
            sent += 1;
            check_sent(&frame, vlan);
            peer.handle_frame(now, &frame, false);
            if is_of_dhcp(&frame) {
                asked = Some(frame);
            }
        }
        assert!(sent <= 512, "{sent} frames at once");
        while station.poll_event().is_some() {}
    }
    seen.counters = *station.counters();
    seen
}

fn config(mac: MacAddr, last: u8, vlan: Option<Vlan>, replies: bool) -> StationConfig {
    StationConfig {
        mac,
        vlan,
        addresses: vec![
            Prefix { address: address(0, last), length: 24 },
            Prefix { address: address(1, last), length: 64 },
        ],
        gateways: vec![address(0, 7), address(1, 7)],
        replies,
        roce_v1: true,
        dhcp: None,
        mbps: 10_000,
    }
}

fn address(family: u8, last: u8) -> IpAddr {
    if family == 0 {
        [10, 0, 0, last].into()
    } else {
        [0xFD00, 0, 0, 0, 0, 0, 0, last.into()].into()
    }
}

/// Sends a datagram, perhaps after resolution: to the peer, to nobody, beyond the gateway.
fn ask(station: &mut Station, now: Instant, choice: u8) -> Option<Vec<u8>> {
    let mut own = station.config().addresses.iter().map(|own| own.address);
    let own = own.find(|own| own.is_ipv6() == (choice & 1 == 1))?;
    let dst = match choice >> 1 & 3 {
        3 if own.is_ipv4() => [192, 0, 2, choice].into(),
        3 => [0x2001, 0xDB8, 0, 0, 0, 0, 0, choice.into()].into(),
        _ => address(choice & 1, choice >> 1 & 31),
    };
    let payload = [choice; 20];
    let run = Transmit {
        src: own,
        dst,
        src_port: 0xC000,
        traffic_class: choice,
        hop_limit: 64,
        segment: 20,
        range: 0..20,
        frame: FrameFields::new(
            if choice & 0x80 == 0 { RoceVersion::V2 } else { RoceVersion::V1 },
            choice,
            u32::from(choice) << 12,
        ),
    };
    match station.route(now, dst) {
        Hop::Resolving(hop) => station.wait(hop, &run, &payload),
        Hop::Known(mac) => {
            return Some([&station.headers(mac, &run, payload.len())[..], &payload].concat());
        }
        Hop::Own | Hop::None => {}
    }
    None
}

fn is_of_dhcp(frame: &[u8]) -> bool {
    matches!(Frame::parse(frame).map(|frame| frame.packet), Ok(Packet::Ip(packet))
        if packet.protocol == 17 && packet.payload.get(2..4) == Some(&[0, 67]))
}

/// A DHCP response to the last message; the script gives kind, address, options.
fn response(asked: Option<&[u8]>, input: &mut Input<'_>) -> Option<Vec<u8>> {
    let mut frame = asked?.to_vec();
    let ip = if frame[12..14] == [0x81, 0] { 18 } else { 14 };
    let message = ip + 28;
    let kind = [2, 5, 6][usize::from(input.byte() % 3)];
    let address = address(0, input.byte());
    frame[..6].copy_from_slice(&OWN.octets());
    frame[6..12].copy_from_slice(&PEER.octets());
    frame[ip + 20..ip + 24].copy_from_slice(&[0, 67, 0, 68]);
    frame[ip + 26..ip + 28].fill(0); // no checksum
    frame[message] = 2;
    let IpAddr::V4(v4) = address else { return None };
    frame[message + 16..message + 20].copy_from_slice(&v4.octets());
    frame.truncate(message + 240);
    frame.extend([53, 1, kind, 54, 4, 10, 0, 0, 7, 1, 4, 255, 255, 255, 0]);
    frame.extend([51, 4, 0, 0, input.byte(), input.byte()]);
    let length = usize::from(input.byte() % 64);
    frame.extend(input.bytes(length));
    frame.push(255);
    let length = (frame.len() - ip) as u16;
    frame[ip + 2..ip + 4].copy_from_slice(&length.to_be_bytes());
    frame[ip + 24..ip + 26].copy_from_slice(&(length - 20).to_be_bytes());
    seal(&mut frame);
    Some(frame)
}

fn take(station: &mut Station, now: Instant, frame: &[u8], untagged: bool) -> bool {
    // a host with an assigned address uses it while leasing another
    let leases = station.config().dhcp.is_some();
    let assigned = leases || station.assignment() == Assignment::Assigned;
    let Some(received) = station.handle_frame(now, frame, untagged) else { return false };
    assert!(assigned, "an address is used that is not the own one yet");
    let own = &station.config().addresses;
    assert!(own.iter().any(|own| own.address == received.net.dst), "{received:?}");
    assert!(!received.net.src.is_multicast() && received.bytes.len() < frame.len());
    true
}

fn check_sent(frame: &[u8], vlan: Option<Vlan>) {
    let read = Frame::parse(frame).expect("a frame that can be read");
    assert!(frame.len() >= 60 && read.src.0 & 1 == 0, "{read:?}");
    assert_eq!(read.vlan, vlan.map(|vlan| vlan.id));
    assert!(!matches!(read.packet, Packet::Other(_)));
}

fn seal(frame: &mut [u8]) {
    let start = if frame[12..14] == [0x81, 0] { 18 } else { 14 };
    let kind = [frame[start - 2], frame[start - 1]];
    let Some(ip) = frame.get_mut(start..) else { return };
    if kind == [8, 0] && ip.len() >= 20 {
        let header = usize::from(ip[0] & 15) * 4;
        if header >= 20 && header <= ip.len() {
            ip[10..12].fill(0);
            let sum = checksum(0, &ip[..header]);
            ip[10..12].copy_from_slice(&sum.to_be_bytes());
        }
    } else if kind == [0x86, 0xDD] && ip.len() >= 44 && ip[6] == 58 {
        let length = usize::from(u16::from_be_bytes([ip[4], ip[5]]));
        let (header, rest) = ip.split_at_mut(40);
        if let Some(message) = rest.get_mut(..length).filter(|message| message.len() >= 4) {
            message[2..4].fill(0);
            let pseudo = u32::from(!checksum(length as u32 + 58, &header[8..40]));
            let sum = checksum(pseudo, message);
            message[2..4].copy_from_slice(&sum.to_be_bytes());
        }
    }
}

/// RFC 1071.
fn checksum(start: u32, bytes: &[u8]) -> u16 {
    let word = |pair: &[u8]| u32::from(pair[0]) << 8 | u32::from(pair.get(1).copied().unwrap_or(0));
    let mut sum = start + bytes.chunks(2).map(word).sum::<u32>();
    while sum > 0xFFFF {
        sum = (sum & 0xFFFF) + (sum >> 16);
    }
    !(sum as u16)
}
