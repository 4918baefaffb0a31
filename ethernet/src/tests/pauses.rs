//! At 10 Gbit/s a quantum is 51.2 ns.

use smoltcp::wire::ArpOperation;

use super::*;

fn pause(message: &[u16]) -> Vec<u8> {
    let mut frame = vec![0x01, 0x80, 0xC2, 0, 0, 0x01, 2, 0, 0, 0, 0, 9, 0x88, 0x08];
    frame.extend(message.iter().flat_map(|field| field.to_be_bytes()));
    frame.resize(60, 0);
    frame
}

fn of(service_level: u8, payload: &[u8]) -> Transmit {
    let frame = FrameFields::new(RoceVersion::V2, service_level, 0);
    Transmit { frame, traffic_class: 0, ..run("10.0.0.1", "10.0.0.2", payload) }
}

fn held(station: &Station, now: Instant) -> Vec<u8> {
    (0..8).filter(|&level| station.holds(now, &of(level, b"x"))).collect()
}

/// Service levels from 1 have their own priority, 0 the VLAN's.
fn station() -> (Station, Instant) {
    let config = StationConfig {
        vlan: Some(Vlan { id: 100, priority: 2 }),
        replies: false,
        ..config(MACS[0], &["10.0.0.1/24"])
    };
    let now = Instant::ZERO.plus(SECOND);
    (Station::new(config, now), now)
}

#[test]
fn a_pause_lasts_as_long_as_it_says() {
    let (mut station, now) = station();
    assert_eq!(held(&station, now), [0_u8; 0]);
    // priorities 2 and 5; priority 3 is not enabled
    let message = [0x0101, 0b10_0100, 9, 9, 100, 65_535, 9, 1000, 9, 9];
    assert!(station.handle_frame(now, &pause(&message), false).is_none());
    assert_eq!(station.counters().pauses, 1);
    let after = |nanos| now.plus(Duration::from_nanos(nanos));
    assert_eq!(held(&station, now), [0, 2, 5], "0 has the priority of the device");
    assert_eq!(held(&station, after(5_119)), [0, 2, 5]);
    assert_eq!(held(&station, after(5_120)), [5]);
    assert_eq!(held(&station, after(51_199)), [5]);
    assert_eq!(held(&station, after(51_200)), [0_u8; 0]);
    // zero ends a pause
    for (quanta, expected) in [(1000, &[5][..]), (2000, &[5]), (0, &[])] {
        let message = [0x0101, 0b10_0000, 0, 0, 0, 0, 0, quanta, 0, 0];
        station.handle_frame(after(60_000), &pause(&message), false);
        assert_eq!(held(&station, after(60_000)), expected);
    }
    // global
    station.handle_frame(after(70_000), &pause(&[1, 10]), false);
    assert_eq!(held(&station, after(70_000)), [0, 1, 2, 3, 4, 5, 6, 7]);
    assert_eq!(held(&station, after(70_512)), [0_u8; 0]);
}

#[test]
fn what_is_held_leaves_when_the_pause_is_over() {
    let (mut station, now) = station();
    station.handle_frame(now, &pause(&[0x0101, 1 << 3, 0, 0, 0, 1000, 0, 0, 0, 0]), false);
    for byte in 0..3 {
        let run = of(3, &[byte; 20]);
        assert!(station.holds(now, &run) && station.hold(MACS[1], &run, &[byte; 20]));
    }
    assert!(!station.holds(now, &of(4, b"x")));
    let over = now.plus(Duration::from_nanos(51_200));
    assert_eq!((station.released(now), station.has_waiting()), (None, true));
    assert_eq!(station.poll_timeout(), Some(over));
    assert!(station.holds(over, &of(3, b"x")));
    for byte in 0..3 {
        let frame = station.released(over).unwrap();
        assert_eq!(frame[..6], MACS[1].octets());
        assert_eq!((frame[14] >> 5, frame[46]), (3, byte), "the priority, and the payload");
        station.pop_released(over);
    }
    assert_eq!((station.released(over), station.has_waiting()), (None, false));
    assert!(!station.holds(over, &of(3, b"x")));
    assert_eq!((station.counters().paused, station.poll_timeout()), (3, None));
}

/// Frames queued for address resolution obey a pause.
#[test]
fn a_response_ends_no_pause() {
    let (mut station, now) = station();
    for level in [3, 4] {
        let Hop::Resolving(hop) = station.route(now, ip("10.0.0.2")) else {
            panic!("it is not known")
        };
        station.wait(hop, &of(level, &[level; 20]), &[level; 20]);
    }
    station.handle_frame(now, &pause(&[0x0101, 1 << 3, 0, 0, 0, 1000, 0, 0, 0, 0]), false);
    while station.poll_frame().is_some() {}
    let [to, from] = [MACS[0], MACS[1]];
    let vlan = station.config().vlan;
    let [target, sender] = ["10.0.0.1", "10.0.0.2"].map(|text| text.parse().unwrap());
    let reply = Ethernet { dst: to, src: from, vlan }.arp(
        ArpOperation::Reply,
        (from, sender),
        (to, target),
    );
    assert!(station.handle_frame(now, &reply, false).is_none());
    let sent: Vec<_> = std::iter::from_fn(|| station.poll_frame()).map(|it| it[14] >> 5).collect();
    assert_eq!((sent, station.released(now)), (vec![4], None));
    let frame = station.released(now.plus(Duration::from_nanos(51_200))).unwrap();
    assert_eq!((&frame[..6], frame[14] >> 5), (&from.octets()[..], 3));
    assert_eq!(station.counters().paused, 1);
}

/// A run counts each of its datagrams.
#[test]
fn no_more_than_a_thousand_frames_wait() {
    let (mut station, now) = station();
    station.handle_frame(now, &pause(&[1, 65_535]), false);
    let bytes = [7; 64 * 100];
    let many = Transmit { segment: 100, range: 0..bytes.len(), ..of(3, &[]) };
    let taken = (0..100).filter(|_| station.hold(MACS[1], &many, &bytes)).count();
    assert_eq!((taken, station.counters().paused), (16, 1024));
    assert!(station.hold(MACS[1], &of(4, b"x"), b"x"), "of another priority");
}

#[test]
fn without_a_vlan_the_dscp_is_the_priority() {
    let now = Instant::ZERO;
    let mut station =
        Station::new(StationConfig { replies: false, ..config(MACS[0], &["10.0.0.1/24"]) }, now);
    station.handle_frame(now, &pause(&[0x0101, 1 << 3, 0, 0, 0, 1000, 0, 0, 0, 0]), false);
    let holds = |traffic_class, service_level| {
        station.holds(now, &Transmit { traffic_class, ..of(service_level, b"x") })
    };
    assert!(holds(26 << 2, 0) && holds(0, 3), "DSCP 26 is of class 3");
    assert!(!holds(0, 0) && !holds(46 << 2, 0) && !holds(26 << 2, 1));
}

/// Bridges forward it, from any host.
#[test]
fn a_pause_to_the_own_address_is_not_obeyed() {
    let (mut station, now) = station();
    let mut frame = pause(&[1, 65_535]);
    frame[..6].copy_from_slice(&MACS[0].octets());
    assert!(station.handle_frame(now, &frame, true).is_none());
    assert_eq!((station.counters().pauses, station.counters().not_for_us), (0, 1));
    assert_eq!(held(&station, now), [0_u8; 0]);
}

#[test]
fn what_is_no_pause_changes_nothing() {
    let (mut station, now) = station();
    let whole = pause(&[0x0101, 0xFF, 9, 9, 9, 9, 9, 9, 9, 9]);
    let mut for_another = whole.clone();
    for_another[5] = 2;
    let short = &pause(&[0x0101, 0xFF, 9])[..32];
    for frame in [&for_another[..], short, &whole[..15], &pause(&[2, 9])] {
        assert!(station.handle_frame(now, frame, false).is_none());
    }
    let FrameCounters { pauses, truncated, not_for_us, other_protocol, .. } = *station.counters();
    assert_eq!((pauses, not_for_us, truncated, other_protocol), (0, 1, 2, 1));
    assert_eq!(held(&station, now), [0_u8; 0]);
    let mut tagged = whole.clone();
    tagged.splice(12..12, [0x81, 0, 0, 100]);
    station.handle_frame(now, &tagged, false);
    assert_eq!((station.counters().pauses, held(&station, now).len()), (0, 0), "it has no tag");
    station.handle_frame(now, &whole, true);
    assert_eq!((station.counters().pauses, held(&station, now).len()), (1, 8));
}

#[test]
fn raw_packets_wait_like_datagrams() {
    let (mut station, now) = station();
    station.handle_frame(now, &pause(&[0x0101, 1 << 3, 0, 0, 0, 1000, 0, 0, 0, 0]), false);
    let frame = |behind: &[u8]| [&[2, 0, 0, 0, 0, 2, 2, 0, 0, 0, 0, 1][..], behind].concat();
    let tagged = frame(&[0x81, 0, 3 << 5, 7, 8, 0, 0x45, 0]);
    for held in [&tagged, &frame(&[8, 0, 0x45, 26 << 2]), &frame(&[0x86, 0xDD, 0x66, 0x80])] {
        assert_eq!(station.hold_frame(now, held), Some(true), "{held:02x?}");
    }
    for free in [
        frame(&[0x81, 0, 4 << 5, 7, 8, 0, 0x45, 26 << 2]),
        frame(&[8, 0, 0x45, 0]),
        frame(&[0x86, 0xDD, 0x68, 0]),
        frame(&[0x12, 0x34, 0xFF, 0xFF]),
        frame(&[]),
        Vec::new(),
    ] {
        assert_eq!(station.hold_frame(now, &free), None, "{free:02x?}");
    }
    // the transport's frames queue behind them
    assert!(station.hold(MACS[1], &of(3, b"x"), b"x"));
    let over = now.plus(Duration::from_nanos(51_200));
    assert_eq!(station.released(over), Some(&tagged[..]));
    assert_eq!(station.counters().paused, 4);
    let taken = (0..2000).filter(|_| station.hold_frame(now, &tagged) == Some(true)).count();
    assert_eq!((taken, station.hold_frame(now, &tagged)), (1020, Some(false)));
}
