use std::{collections::BTreeSet, time::Duration};

use rand_chacha::ChaCha8Rng;
use rand_core::{RngCore, SeedableRng};
use roce_capture::{
    CaptureWriter,
    explain::{Connection, Explained, Explanation, FindingKind},
    with_sender,
};
use roce_fabric::Network;
use roce_transport::{
    addr::Qpn,
    event::DropReason,
    wire::icrc,
    work::{RecvWr, SendWr},
};

use super::forms::{self, Seen};
use crate::common::{End, Options, Pair, Side};

type Truth = BTreeSet<(Qpn, Qpn)>;

/// Connections with the same first PSN.
fn connections(network: &str, seed: u64, count: usize) -> (Pair, Vec<(End, End)>, Truth) {
    let network = Network::with_plan(network.parse().unwrap(), seed);
    let mut pair = Pair::with_network(network).recorded();
    pair.allow_all(DropReason::ALL);
    let options = Options { a_psn: 0, b_psn: 0, timeout: 8, ..Options::default() };
    let ends: Vec<_> = (0..count).map(|_| pair.connect(options)).collect();
    let truth = ends.iter().map(|(a, b)| (a.qpn, b.qpn)).collect();
    (pair, ends, truth)
}

fn without_ports(seen: &mut Seen) {
    for (_, net, bytes) in seen {
        net.src_port = 49152;
        let body = bytes.len() - 4;
        let icrc = icrc(net, &bytes[..body]).to_le_bytes();
        bytes[body..].copy_from_slice(&icrc);
    }
}

fn pair_of(connection: &Connection, pair: &Pair) -> Option<(Qpn, Qpn)> {
    let [one, other] = connection.ends;
    let (one_qpn, other_qpn) = (one.qpn?, other.qpn?);
    Some(if one.address == pair.a.ip.into() { (one_qpn, other_qpn) } else { (other_qpn, one_qpn) })
}

fn explained(seen: &Seen) -> Explained {
    Explained::of_file(&forms::of_datagrams(seen)).unwrap()
}

/// Rounds of one message per connection, as in collectives.
fn rounds(pair: &mut Pair, ends: &[(End, End)], dice: &mut ChaCha8Rng, alike: bool) {
    let memory: Vec<_> = ends.iter().map(|_| (pair.a.buffer(4096), pair.b.buffer(4096))).collect();
    let mut pick = |n: u32| dice.next_u32() % n;
    for id in 0..6 {
        for ((a, b), (near, far)) in ends.iter().zip(&memory) {
            let length = if alike { 2000 } else { [8, 1000, 1500, 3900][pick(4) as usize] };
            pair.post_recv(a, &RecvWr::new(id, [near.sge(0, 4096)]));
            pair.post_recv(b, &RecvWr::new(id, [far.sge(0, 4096)]));
            let both = !alike && pick(2) == 0;
            let wr = match if alike { 0 } else { pick(4) } {
                0 | 1 => SendWr::send(id, near.sge(0, length)),
                2 => SendWr::read(id, far.remote(0), near.sge(0, length)),
                _ => SendWr::write(id, far.remote(0), near.sge(0, length)),
            };
            pair.post_send(a, &wr);
            if both {
                pair.post_send(b, &SendWr::send(id, far.sge(0, length)));
            }
            if pick(3) == 0 {
                pair.run_for(Duration::from_micros(u64::from(pick(30))));
            }
        }
        pair.run_for(Duration::from_micros(u64::from(pick(200))));
    }
    pair.run();
}

#[test]
fn no_pair_is_wrong() {
    let networks = ["delay 5us", "delay 5us, drop 3%", "delay 2us, jitter 10us, drop 1%"];
    let (mut all, mut found, mut open) = (0, 0, 0);
    for seed in 0..400 {
        let mut dice = ChaCha8Rng::seed_from_u64(seed);
        let network = networks[seed as usize % networks.len()];
        let count = 2 + dice.next_u32() as usize % 6;
        let (mut pair, ends, truth) = connections(network, seed, count);
        rounds(&mut pair, &ends, &mut dice, seed % 4 == 0);
        for side in [Side::A, Side::B] {
            let mut seen = std::mem::take(&mut pair.seen[side as usize]);
            without_ports(&mut seen);
            // captures that begin later, or lack packets
            match seed % 5 {
                1 => _ = seen.drain(..seen.len() / 3),
                2 => seen.retain(|_| !dice.next_u32().is_multiple_of(50)),
                _ => {}
            }
            let explained = explained(&seen);
            let pairs: Truth =
                explained.connections.iter().filter_map(|it| pair_of(it, &pair)).collect();
            assert!(pairs.is_subset(&truth), "seed {seed}, {side:?}: {pairs:?}, but {truth:?}");
            if seed % 4 > 0 {
                all += truth.len();
                found += pairs.len();
            }
            open += explained.connections.iter().filter(|it| it.one_of > 0).count();
            // a complete capture has every request of a response
            let unseen = |why| matches!(why, Explanation::RespondsToUnseen);
            let unseen = explained.packets.iter().any(|packet| unseen(packet.why));
            assert!(!unseen || matches!(seed % 5, 1 | 2), "seed {seed}, {side:?}");
        }
    }
    assert!(found * 100 >= all * 99, "{found} of {all}");
    assert!(open > 500, "{open}: those that are alike");
}

/// Two connections with equal requests: only QPNs tell the responses apart.
fn twins() -> (Pair, Truth, Seen) {
    let (mut pair, ends, truth) = connections("delay 5us", 1, 2);
    let (near, far) = (pair.a.buffer(8), pair.b.buffer(8));
    for (a, _) in &ends {
        pair.post_send(a, &SendWr::write(1, far.remote(0), near.all()));
    }
    pair.run();
    let seen = std::mem::take(&mut pair.seen[Side::A as usize]);
    (pair, truth, seen)
}

fn pairs(explained: &Explained, pair: &Pair) -> Truth {
    explained.connections.iter().filter_map(|it| pair_of(it, pair)).collect()
}

#[test]
fn what_can_be_two_stays_open() {
    let (pair, _, mut seen) = twins();
    without_ports(&mut seen);
    let explained = explained(&seen);
    assert_eq!(pairs(&explained, &pair), Truth::new());
    assert_eq!(explained.connections.len(), 4);
    assert!(explained.connections.iter().all(|it| it.one_of == 2));
    let kinds: Vec<_> = explained.findings.iter().map(|finding| &finding.kind).collect();
    assert_eq!(kinds, [&FindingKind::OneOf(2); 4]);
    let whys: Vec<_> = explained.packets.iter().map(|packet| packet.why.to_string()).collect();
    let (request, response) = (
        "first captured packet",
        "responds to one of 2 connections: the capture does not show which",
    );
    assert_eq!(whys, [request, request, response, response]);
}

#[test]
fn source_ports_tell_them_apart() {
    let (pair, truth, seen) = twins();
    assert_eq!(pairs(&explained(&seen), &pair), truth);
}

/// As in captures of roce, where arrivals name the sender.
#[test]
fn comments_tell_them_apart() {
    let (pair, truth, mut seen) = twins();
    without_ports(&mut seen);
    let mut capture = CaptureWriter::new(Vec::new()).unwrap();
    for (at, net, bytes) in &seen {
        let to = Qpn::new(u32::from_be_bytes([0, bytes[5], bytes[6], bytes[7]]));
        let sender = truth.iter().find(|(own, _)| *own == to).map(|(_, peer)| *peer);
        let comment = sender.map(|sender| with_sender("progress", sender));
        capture.write(Duration::from_nanos(at.as_nanos()), net, bytes, comment).unwrap();
    }
    let explained = Explained::of_file(&capture.into_inner()).unwrap();
    assert_eq!(pairs(&explained, &pair), truth);
    assert_eq!(explained.findings, []);
}

#[test]
fn one_direction_says_nothing_of_responses() {
    let (mut pair, ends, _) = connections("delay 5us, drop write once", 1, 1);
    let (near, far) = (pair.a.buffer(8), pair.b.buffer(8));
    pair.post_send(&ends[0].0, &SendWr::write(1, far.remote(0), near.all()));
    pair.run();
    let mut seen = std::mem::take(&mut pair.seen[Side::A as usize]);
    assert_eq!(explained(&seen).packets[1].why.to_string(), "retransmitted: no response in time");
    seen.retain(|(_, net, _)| net.src == pair.a.ip);
    assert_eq!(explained(&seen).packets[1].why.to_string(), "retransmitted: no response captured");
}
