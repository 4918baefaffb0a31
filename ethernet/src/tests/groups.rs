use super::{super::build::Ip, *};

const GROUPS: [&str; 2] = ["239.1.2.3", "ff15::77:1"];

fn hex(text: &str) -> Vec<u8> {
    let digits: Vec<_> = text.chars().filter(|c| !c.is_whitespace()).collect();
    let byte = |pair: &[char]| u8::from_str_radix(&String::from_iter(pair), 16).unwrap();
    digits.chunks(2).map(byte).collect()
}

fn group_message(group: Option<&str>, v6: bool, kind: u8, time: u16, rest: usize) -> Vec<u8> {
    let group = group.map(ip);
    let all = ip(if v6 { "ff02::1" } else { "224.0.0.1" });
    let mut message = vec![kind, 0, 0, 0];
    match group {
        _ if !v6 => message[1] = time as u8,
        _ => message.extend([time.to_be_bytes(), [0; 2]].concat()),
    }
    match group {
        Some(IpAddr::V4(v4)) => message.extend(v4.octets()),
        Some(IpAddr::V6(v6)) => message.extend(v6.octets()),
        None => message.extend(vec![0; if v6 { 16 } else { 4 }]),
    }
    message.extend(vec![0; rest]);
    let src = ip(if v6 { "fe80::99" } else { "10.0.0.99" });
    let dst = group.unwrap_or(all);
    let ip = Ip::new(src, dst, 1);
    let dst = group_mac(dst).unwrap();
    Ethernet { dst, src: MacAddr(2, 0, 0, 0, 0, 0x99), vlan: None }.membership(ip, message)
}

fn query(v6: bool, group: Option<&str>, older: bool) -> Vec<u8> {
    // 1 s: tenths, or milliseconds
    let (kind, time) = if v6 { (130, 1000) } else { (0x11, 10) };
    group_message(group, v6, kind, time, if older { 0 } else { 4 })
}

/// Message kind, and a report's records.
fn report_of(frame: &[u8]) -> (u8, Vec<(u8, IpAddr)>) {
    let Packet::Ip(packet) = Frame::parse(frame).unwrap().packet else { panic!("{frame:?}") };
    assert_eq!(packet.hop_limit, 1);
    let (message, v6) = (packet.payload, packet.src.is_ipv6());
    let address = |at: usize| match v6 {
        true => IpAddr::from(*message[at..].first_chunk::<16>().unwrap()),
        false => IpAddr::from(*message[at..].first_chunk::<4>().unwrap()),
    };
    if !matches!(message[0], 0x22 | 143) {
        return (message[0], vec![(0, address(if v6 { 8 } else { 4 }))]);
    }
    let count = usize::from(message[7]);
    let length = if v6 { 20 } else { 8 };
    let record = |at: usize| (message[at], address(at + 4));
    (message[0], (0..count).map(|index| record(8 + index * length)).collect())
}

impl Wire {
    fn reports_within(&mut self, time: Duration) -> Vec<(u8, Vec<(u8, IpAddr)>)> {
        self.seen.clear();
        self.advance(time);
        std::mem::take(&mut self.seen).iter().map(|frame| report_of(frame)).collect()
    }

    fn hear(&mut self, station: usize, frame: &[u8]) {
        assert!(self.stations[station].handle_frame(self.now, frame, false).is_none());
    }

    fn join(&mut self, station: usize, group: &str) {
        self.stations[station].join(self.now, ip(group));
    }

    fn leave(&mut self, station: usize, group: &str) {
        self.stations[station].leave(self.now, ip(group));
    }
}

#[test]
fn members_receive_and_others_do_not() {
    for (src, group) in [("10.0.0.1", GROUPS[0]), ("fd00::1", GROUPS[1])] {
        let mut wire = Wire::assigned([
            config(MACS[0], &["10.0.0.1/24", "fd00::1/64"]),
            config(MACS[1], &["10.0.0.2/24", "fd00::2/64"]),
            StationConfig { replies: false, ..config(MACS[2], &["10.0.0.3/24", "fd00::3/64"]) },
        ]);
        let hop = Hop::Known(group_mac(ip(group)).unwrap());
        assert_eq!(wire.send(0, src, group), hop, "a group is sent to without being asked for");
        assert_eq!(wire.arrived, []);
        wire.join(1, group);
        wire.join(2, group);
        wire.join(2, group);
        wire.send(0, src, group);
        let receivers: Vec<_> = wire.arrived.iter().map(|(to, net, _)| (*to, net.dst)).collect();
        assert_eq!(receivers, [(1, ip(group)), (2, ip(group))]);
        wire.leave(1, group);
        wire.send(0, src, group);
        assert_eq!(wire.arrived.len(), 3);
        // With borrowed addresses the kernel reports.
        wire.advance(2 * SECOND);
        assert_eq!(wire.counters(2).group_reports, 0);
        wire.leave(2, group);
        assert_eq!(wire.stations[2].poll_timeout(), None);
    }
}

/// RFC 3376 section 4.2, RFC 3810 section 5.2; checksums computed by hand.
#[test]
fn reports_as_hand_computed() {
    let golden = [
        "01005e000016 020000000001 0800
         46c00028 00004000 0102f9f8 0a000001 e0000016 94040000
         2200e8f9 00000001 04000000 ef010203 000000000000",
        "333300000016 020000000001 86dd
         60000000 00240001 00000000000000000000000000000000 ff020000000000000000000000000016
         3a00050200000100
         8f006e01 00000001 04000000 ff150000000000000000000000770001",
    ];
    for (group, golden) in GROUPS.into_iter().zip(golden) {
        let mut wire = Wire::pair();
        wire.join(0, group);
        assert_eq!(frames(&mut wire.stations[0]), [hex(golden)]);
    }
}

#[test]
fn a_change_is_reported_twice_within_a_second() {
    for (group, report) in GROUPS.into_iter().zip([0x22, 143]) {
        let mut wire = Wire::pair();
        wire.join(0, group);
        assert_eq!(wire.reports_within(2 * SECOND), vec![(report, vec![(4, ip(group))]); 2]);
        wire.leave(0, group);
        assert_eq!(wire.reports_within(2 * SECOND), vec![(report, vec![(3, ip(group))]); 2]);
        assert_eq!(wire.stations[0].poll_timeout(), None);
        wire.join(0, group);
        wire.leave(0, group);
        wire.join(0, group);
        let last = wire.reports_within(2 * SECOND).pop().unwrap();
        assert_eq!(last, (report, vec![(4, ip(group))]));
    }
}

#[test]
fn the_groups_of_own_addresses_are_reported_before_these_are_probed() {
    let mut wire = Wire::new([config(MACS[0], &["10.0.0.1/24", "fd00::ab:cdef/64"])]);
    let first = frames(&mut wire.stations[0]);
    let mine = ip("ff02::1:ffab:cdef");
    let reports: Vec<_> =
        first.iter().filter(|frame| frame[5] == 0x16).map(|frame| report_of(frame)).collect();
    assert_eq!(reports, [(143, vec![(4, mine)])]);
    // A program cannot leave them.
    wire.advance(2 * SECOND);
    wire.join(0, "ff02::1:ffab:cdef");
    wire.leave(0, "ff02::1:ffab:cdef");
    assert!(wire.stations[0].is_member(mine));
    assert_eq!(wire.reports_within(2 * SECOND), []);
}

#[test]
fn queries_get_responses_in_their_time() {
    for (index, group) in GROUPS.into_iter().enumerate() {
        let v6 = index == 1;
        let report = [0x22, 143][index];
        let mut wire = Wire::pair();
        // all-hosts groups are not reported
        for group in [group, "224.0.0.1", "ff02::1"] {
            wire.join(0, group);
        }
        wire.advance(2 * SECOND);
        for asked in [None, Some(group)] {
            wire.hear(0, &query(v6, asked, false));
            wire.hear(0, &query(v6, asked, false));
            let due = wire.stations[0].poll_timeout().unwrap().since(wire.now);
            assert!((Duration::from_millis(100)..=SECOND).contains(&due), "{due:?}");
            let replies = wire.reports_within(SECOND);
            assert!(replies.iter().all(|(kind, _)| *kind == report));
            let records: Vec<_> = replies.into_iter().flat_map(|(_, records)| records).collect();
            assert!(records.contains(&(2, ip(group))), "{records:?}");
            // the solicited-node group
            assert_eq!(records.len(), if v6 && asked.is_none() { 2 } else { 1 }, "{records:?}");
        }
        // another group, another family
        wire.hear(0, &query(v6, Some(if v6 { "ff15::9" } else { "239.9.9.9" }), false));
        assert_eq!(wire.reports_within(2 * SECOND), []);
        // a flood
        let before = wire.counters(0).group_reports;
        for _ in 0..1000 {
            wire.hear(0, &group_message(Some(group), v6, if v6 { 130 } else { 0x11 }, 0, 4));
            wire.advance(Duration::from_millis(1));
        }
        assert!(wire.counters(0).group_reports - before <= 10);
    }
}

#[test]
fn routers_of_the_older_version_are_understood() {
    for (group, (v6, report, leave)) in
        GROUPS.into_iter().zip([(false, 0x16, 0x17), (true, 131, 132)])
    {
        let mut wire = Wire::pair();
        wire.join(0, group);
        wire.advance(2 * SECOND);
        wire.hear(0, &query(v6, Some(group), true));
        assert_eq!(wire.reports_within(SECOND), [(report, vec![(0, ip(group))])]);
        wire.hear(0, &query(v6, Some(group), true));
        wire.hear(0, &group_message(Some(group), v6, report, 0, 0));
        assert_eq!(wire.reports_within(SECOND), []);
        // The last reporter sends the leave.
        wire.leave(0, group);
        assert_eq!(wire.reports_within(2 * SECOND), []);
        wire.join(0, group);
        assert_eq!(wire.reports_within(2 * SECOND), vec![(report, vec![(0, ip(group))]); 2]);
        wire.leave(0, group);
        assert_eq!(wire.reports_within(2 * SECOND), [(leave, vec![(0, ip(group))])]);
        wire.advance(Duration::from_secs(260));
        wire.join(0, group);
        let [(kind, _), _] = &wire.reports_within(2 * SECOND)[..] else { panic!() };
        assert_eq!(*kind, if v6 { 143 } else { 0x22 });
    }
}

#[test]
fn questions_for_groups_that_break_a_rule_are_counted() {
    for (index, group) in GROUPS.into_iter().enumerate() {
        let v6 = index == 1;
        let mut wire = Wire::pair();
        wire.join(0, group);
        wire.advance(2 * SECOND);
        let kind = if v6 { 130 } else { 0x11 };
        // a length between the versions, a wrong checksum
        wire.hear(0, &group_message(None, v6, kind, 10, 2));
        let mut broken = query(v6, None, false);
        let last = if v6 { broken.len() } else { 14 + 24 + 12 };
        broken[last - 1] ^= 1;
        wire.hear(0, &broken);
        assert_eq!(wire.counters(0).bad_arp, 2, "{group}");
        assert_eq!(wire.reports_within(2 * SECOND), []);
    }
}
