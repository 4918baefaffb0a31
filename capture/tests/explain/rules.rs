use std::time::Duration;

use roce_capture::explain::{Explained, Explanation, FindingKind};
use roce_transport::{
    event::DropReason,
    mem::RKey,
    work::{Remote, SendWr},
};

use super::forms;
use crate::common::{End, Options, Pair, Side};

fn recorded(plan: &str, options: Options) -> (Pair, End) {
    let network = roce_fabric::Network::with_plan(plan.parse().unwrap(), 1);
    let mut pair = Pair::with_network(network).recorded();
    pair.allow_all(DropReason::ALL);
    let (a, _) = pair.connect(options);
    (pair, a)
}

fn explained(pair: &Pair, side: Side) -> Explained {
    Explained::of_file(&forms::of_datagrams(&pair.seen[side as usize])).unwrap()
}

fn kinds(explained: &Explained) -> Vec<&'static str> {
    explained.findings.iter().map(|finding| finding.kind.name()).collect()
}

fn write(pair: &mut Pair, a: &End, times: u64, length: usize) {
    let (near, far) = (pair.a.buffer(length), pair.b.buffer(length));
    for id in 0..times {
        pair.post_send(a, &SendWr::write(id, far.remote(0), near.all()));
    }
    pair.run();
}

#[test]
fn a_clean_run_has_no_findings() {
    let (mut pair, a) = recorded("delay 5us", Options::default());
    write(&mut pair, &a, 20, 5000);
    for side in [Side::A, Side::B] {
        assert_eq!(kinds(&explained(&pair, side)), Vec::<&str>::new());
    }
}

#[test]
fn a_nak_is_no_fault_by_itself_and_what_it_causes_is_said() {
    let (mut pair, a) = recorded("delay 5us, drop write middle nth 2", Options::default());
    write(&mut pair, &a, 1, 5000);
    let explained = explained(&pair, Side::A);
    assert_eq!(kinds(&explained), Vec::<&str>::new());
    let repeats: Vec<_> = explained
        .packets
        .iter()
        .filter(|packet| matches!(packet.why, Explanation::Retransmit(_)))
        .map(|packet| packet.why.to_string())
        .collect();
    assert_eq!(repeats, ["retransmitted: NAK"; 3]);
    assert_eq!(explained.connections[0].summaries[0].repeated, 3);
    assert_eq!(explained.connections[0].summaries[1].sequence_naks, 1);
}

#[test]
fn the_same_from_the_other_side_shows_the_gap() {
    let (mut pair, a) = recorded("delay 5us, drop write middle nth 2", Options::default());
    write(&mut pair, &a, 1, 5000);
    assert_eq!(kinds(&explained(&pair, Side::B)), ["psn_jump"]);
}

/// Possibly another connection: nothing is missing or late.
#[test]
fn a_psn_that_is_far_from_the_others() {
    for far in [100_000, 0xFF_FFFF - 100_000] {
        let (mut pair, a) = recorded("delay 5us", Options::default());
        write(&mut pair, &a, 2, 2000);
        let first = pair.seen[0].len() / 2;
        for (_, net, bytes) in &mut pair.seen[0][first..] {
            let psn = u32::from_be_bytes([0, bytes[9], bytes[10], bytes[11]]) + far;
            bytes[9..12].copy_from_slice(&psn.to_be_bytes()[1..]);
            let body = bytes.len() - 4;
            let icrc = roce_transport::wire::icrc(net, &bytes[..body]).to_le_bytes();
            bytes[body..].copy_from_slice(&icrc);
        }
        let explained = explained(&pair, Side::A);
        assert_eq!(explained.packets[first].why, Explanation::Jump);
        assert_eq!(explained.findings, []);
        let last = explained.packets.last().unwrap().why;
        assert!(matches!(last, Explanation::Acknowledges { packets: 2, .. }), "{last:?}");
    }
}

/// The packet that the NAK names never reached the capture.
#[test]
fn a_nak_is_the_reason_at_the_receiver_too() {
    let (mut pair, a) = recorded("delay 200us, drop write first once", Options::default());
    write(&mut pair, &a, 1, 5000);
    let explained = explained(&pair, Side::B);
    let whys: Vec<_> = explained.packets.iter().map(|packet| packet.why.to_string()).collect();
    let psn = explained.packets[0].headers.unwrap().bth().psn.get() - 1;
    assert_eq!(
        whys,
        [
            "first captured packet".into(),
            "next of its message".into(),
            "next of its message".into(),
            "next of its message".into(),
            format!("NAK for the gap at {psn}"),
            "late: reordered, or lost and retransmitted".into(),
            "retransmitted: NAK".into(),
            "retransmitted: NAK".into(),
            "acknowledges 3 packets".into(),
            "retransmitted: NAK".into(),
            "retransmitted: NAK".into(),
            "acknowledges 2 packets".into(),
        ]
    );
}

#[test]
fn a_final_nak() {
    let (mut pair, a) = recorded("delay 5us", Options::default());
    let near = pair.a.buffer(8);
    let wrong = Remote { address: 0, rkey: RKey(0xBAD) };
    pair.post_send(&a, &SendWr::write(1, wrong, near.all()));
    pair.run();
    assert_eq!(kinds(&explained(&pair, Side::A)), ["fatal_nak"]);
}

#[test]
fn a_peer_that_stays_silent() {
    let options = Options { timeout: 14, ..Options::default() };
    let (mut pair, a) = recorded("delay 5us", options);
    write(&mut pair, &a, 1, 8);
    pair.fault("drop 100%");
    write(&mut pair, &a, 1, 8);
    let found = kinds(&explained(&pair, Side::A));
    assert!(found.contains(&"retransmission_storm"), "{found:?}");
}

/// Without the path MTU the PSNs of a READ are unknown.
#[test]
fn a_state_that_cannot_be_known_is_not_shown() {
    for (length, known) in [(256, true), (2000, false)] {
        let (mut pair, a) = recorded("delay 5us, drop 100% read-response", Options::default());
        let (near, far) = (pair.a.buffer(2000), pair.b.buffer(2000));
        pair.post_send(&a, &SendWr::read(1, far.remote(0), near.sge(0, length)));
        pair.run();
        let explained = explained(&pair, Side::A);
        let requester = explained.packets[0].requesters[0];
        let shown = requester.map(|it| (it.oldest_unacked, it.next_psn.get()));
        let first = explained.packets[0].headers.unwrap().bth().psn;
        let expected = known.then(|| (Some(first), first.plus(1).get()));
        assert_eq!(shown, expected, "{length}");
    }
}

/// Only a middle packet of a message has the path MTU.
#[test]
fn the_path_mtu_is_known_by_long_messages() {
    for (length, at_least, mtu) in [(7, true, 256), (1024, true, 1024), (1025, false, 1024)] {
        let (mut pair, a) = recorded("delay 5us", Options::default());
        let (near, far) = (pair.a.buffer(2000), pair.b.buffer(2000));
        pair.post_send(&a, &SendWr::read(1, far.remote(0), near.sge(0, length)));
        pair.run();
        let explained = explained(&pair, Side::A);
        let connection = &explained.connections[0];
        assert_eq!((connection.mtu, connection.mtu_at_least), (Some(mtu), at_least), "{length}");
    }
}

/// Neither after a gap nor a retransmission.
#[test]
fn what_comes_behind_a_read_of_unknown_span() {
    // requests alone, or also each response's last packet
    for kept in [&[0x0C, 0x0A][..], &[0x0C, 0x0A, 0x0F]] {
        let (mut pair, a) = recorded("delay 5us", Options::default());
        let (near, far) = (pair.a.buffer(2000), pair.b.buffer(2000));
        for id in 0..2 {
            pair.post_send(&a, &SendWr::read(id, far.remote(0), near.sge(0, 2000)));
            pair.post_send(&a, &SendWr::write(id, far.remote(0), near.sge(0, 8)));
        }
        pair.run();
        pair.seen[0].retain(|(.., bytes)| kept.contains(&bytes[0]));
        assert_eq!(pair.seen[0].len(), 4 + if kept.len() == 3 { 2 } else { 0 });
        let explained = explained(&pair, Side::A);
        let is_wrong = |why: Explanation| {
            matches!(why, Explanation::AfterGap(_) | Explanation::Retransmit(_) | Explanation::Late)
        };
        assert!(explained.connections[0].mtu_at_least);
        assert!(!explained.packets.iter().any(|packet| is_wrong(packet.why)), "{explained:?}");
    }
}

#[test]
fn many_repeats() {
    let (mut pair, a) = recorded("delay 5us, drop 15% tx", Options::default());
    write(&mut pair, &a, 20, 5000);
    let found = kinds(&explained(&pair, Side::A));
    assert!(found.contains(&"many_retransmissions"), "{found:?}");
}

/// As in a capture of all interfaces.
#[test]
fn copies_are_not_sent_again() {
    let (mut pair, a) = recorded("delay 5us", Options::default());
    write(&mut pair, &a, 20, 5000);
    let seen = &mut pair.seen[0];
    *seen = seen.iter().flat_map(|one| [one.clone(), one.clone()]).collect();
    let explained = explained(&pair, Side::A);
    assert_eq!(kinds(&explained), Vec::<&str>::new());
    assert_eq!(explained.connections[0].summaries[0].repeated, 0);
    let copies = explained.packets.iter().filter(|it| it.why == Explanation::Copy).count();
    let requests = explained.connections[0].summaries[0].requests as usize;
    assert_eq!(copies * 2, requests);
}

#[test]
fn one_direction_only() {
    let (mut pair, a) = recorded("delay 5us", Options::default());
    write(&mut pair, &a, 3, 3000);
    let ip = pair.a.ip;
    pair.seen[0].retain(|(_, net, _)| net.src == ip);
    assert_eq!(kinds(&explained(&pair, Side::A)), ["one_direction"]);
}

#[test]
fn marks_without_a_notification() {
    let options = Options { traffic_class: 2, ..Options::default() };
    let (mut pair, a) = recorded("delay 5us, mark 100%", options);
    write(&mut pair, &a, 20, 5000);
    let whole = explained(&pair, Side::B);
    assert!(!kinds(&whole).contains(&"marks_without_cnp"), "{:?}", whole.findings);
    pair.seen[1].retain(|(_, _, bytes)| bytes[0] != 0x81);
    let found = explained(&pair, Side::B);
    let is_marks =
        |kind: &FindingKind| matches!(kind, FindingKind::MarksWithoutNotification(n) if *n >= 10);
    assert!(found.findings.iter().any(|finding| is_marks(&finding.kind)), "{:?}", found.findings);
}

/// The response comes too soon after the retransmission.
#[test]
fn a_timeout_that_is_shorter_than_the_way() {
    let (mut pair, a) = recorded("delay 5us", Options::default());
    for _ in 0..3 {
        write(&mut pair, &a, 1, 8);
    }
    let seen = &mut pair.seen[0];
    let response = seen.len() - 1;
    let (at, net, request) = seen[response - 1].clone();
    let again = at.plus(Duration::from_millis(1));
    seen[response].0 = again.plus(Duration::from_micros(2));
    seen.insert(response, (again, net, request));
    let explained = explained(&pair, Side::A);
    let waited = Duration::from_millis(1);
    let too_short = FindingKind::TimeoutTooShort(waited, waited + Duration::from_micros(2));
    let found: Vec<_> = explained.findings.iter().map(|finding| &finding.kind).collect();
    assert_eq!(found, [&too_short]);
    assert_eq!(explained.packets[response].why.to_string(), "retransmitted: no response in time");
}

#[test]
fn another_length_inside_a_message() {
    let (mut pair, a) = recorded("delay 5us", Options::default());
    write(&mut pair, &a, 1, 3000);
    let (at, net, bytes) = pair.seen[0][1].clone();
    // the middle packet with half of its payload and a valid ICRC
    let body = [&bytes[..12], &bytes[12..12 + 512]].concat();
    let icrc = roce_transport::wire::icrc(&net, &body).to_le_bytes();
    pair.seen[0][1] = (at, net, [body, icrc.to_vec()].concat());
    let explained = explained(&pair, Side::A);
    let mismatch = FindingKind::MtuMismatch { expected: 1024, found: 512 };
    assert!(explained.findings.iter().any(|finding| finding.kind == mismatch));
}
