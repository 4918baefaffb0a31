//! Runs of middle packets equal single packets.

use std::time::Duration;

use rand_chacha::ChaCha8Rng;
use rand_core::{RngCore, SeedableRng};
use roce_fabric::Network;
use roce_transport::{
    adapter::TransmitBuffer,
    addr::Mtu,
    event::{Counters, DropReason},
    qp::State,
    time::Instant,
    trace::What,
    wire::{Datagram, DatagramMeta, DatagramRun, Ident, NetHeader},
    work::{RecvWr, SendWr},
};

use crate::common::{AFTER_LOSS, Node, Options, Pair, Side, UDP_SEGMENT, net};

/// In bytes per side.
const MEMORY: usize = 400_000;

/// Bytes, for damaged packets.
const READ_BUDGET: u64 = 100_000;

#[derive(Clone, Copy, Debug)]
enum Kind {
    Send,
    Write,
    Read,
}

/// A message, and µs until the next.
type Message = (Side, Kind, usize, u64);

fn one_of<T: Copy>(rng: &mut ChaCha8Rng, all: &[T]) -> T {
    all[rng.next_u32() as usize % all.len()]
}

fn message(rng: &mut ChaCha8Rng) -> Message {
    let side = one_of(rng, &[Side::A, Side::B]);
    let kind = one_of(rng, &[Kind::Send, Kind::Write, Kind::Read]);
    let most = one_of(rng, &[5000, MEMORY as u32]);
    let length = rng.next_u32() % most;
    let longest_pause = one_of(rng, &[1, 30, 3000]);
    (side, kind, length as usize, u64::from(rng.next_u32() % longest_pause))
}

fn play(messages: &[Message], options: Options, faults: &str, one_by_one: bool) -> Vec<String> {
    let mut pair = Pair::with_network(Network::new(Pair::conditions(), 3)).recorded();
    for node in [&mut pair.a, &mut pair.b] {
        node.transmit = TransmitBuffer::new(20_000, UDP_SEGMENT);
    }
    pair.allow_all(AFTER_LOSS);
    if !faults.is_empty() {
        pair.fault(faults);
    }
    let (a, b) = pair.connect(options);
    if one_by_one {
        pair.a.adapter.count_qp(a.qpn).unwrap();
        pair.b.adapter.count_qp(b.qpn).unwrap();
    }
    let sources = [pair.a.buffer(MEMORY).fill(1), pair.b.buffer(MEMORY).fill(2)];
    let targets = [pair.a.buffer(MEMORY), pair.b.buffer(MEMORY)];
    for (number, &(side, kind, length, pause)) in messages.iter().enumerate() {
        let id = number as u64;
        let (own, other) = if side == Side::A { (0, 1) } else { (1, 0) };
        let (from, to) = if side == Side::A { (&a, &b) } else { (&b, &a) };
        let wr = match kind {
            Kind::Send => {
                pair.post_recv(to, &RecvWr::new(id, [targets[other].sge(0, MEMORY)]));
                SendWr::send(id, sources[own].sge(0, length))
            }
            Kind::Write => SendWr::write(id, targets[other].remote(0), sources[own].sge(0, length)),
            Kind::Read => SendWr::read(id, targets[other].remote(0), targets[own].sge(0, length)),
        };
        pair.post_send(from, &wr);
        pair.run_for(Duration::from_micros(pause));
    }
    pair.run();
    let mut shown: Vec<_> = pair
        .trace
        .records
        .iter()
        .map(|rung| format!("{:?} {:?} {:?} {:x?}", rung.time, rung.from, rung.net, rung.bytes))
        .collect();
    for side in [Side::A, Side::B] {
        // recorded whenever its queue pair does anything
        let records = pair.record(side).iter();
        let records = records.filter(|record| !matches!(record.what, What::Rate { .. }));
        shown.extend(records.map(|record| format!("{record:?}")));
    }
    shown.push(format!("{:?} {:?}", a.send_outcomes(), b.send_outcomes()));
    shown.push(format!("{:?} {:?}", a.recv_outcomes(), b.recv_outcomes()));
    shown.extend(targets.iter().map(|target| format!("{:?}", target.bytes())));
    shown
}

#[test]
fn many_at_once_are_what_they_would_be_one_by_one() {
    for seed in 0..60 {
        let mut rng = ChaCha8Rng::seed_from_u64(seed);
        let messages: Vec<_> = (0..1 + seed % 12).map(|_| message(&mut rng)).collect();
        let mtu = one_of(&mut rng, &[Mtu::B256, Mtu::B1024, Mtu::B4096]);
        let faults = one_of(&mut rng, &["", "drop 0.5%", "duplicate 1%", "mark 2%"]);
        let options = Options { mtu, traffic_class: 2, ..Options::default() };
        let [many, one] = [false, true].map(|one| play(&messages, options, faults, one));
        let differs = many.iter().zip(&one).position(|(many, one)| many != one);
        let part = |shown: &[String], at: usize| shown[at].chars().take(300).collect::<String>();
        if let Some(at) = differs {
            panic!("seed {seed}, {faults:?}: {at}\n{}\n{}", part(&many, at), part(&one, at));
        }
        assert_eq!(many.len(), one.len(), "seed {seed}");
    }
}

/// Packets, and deadlines behind runs.
type Sent = (Vec<Vec<u8>>, Vec<Option<Instant>>);

/// Some READ responses are damaged or reordered.
fn carry(seed: u64, by_run: bool) -> (Sent, Counters, Vec<u8>) {
    let mut rng = ChaCha8Rng::seed_from_u64(seed);
    let mut pair = Pair::new();
    // part of most READs: progress requests the rest
    pair.b = Node::with_read_budget(READ_BUDGET, pair.b.ip, 0xB, UDP_SEGMENT);
    let mtu = one_of(&mut rng, &[Mtu::B256, Mtu::B1024]);
    let (a, b) = pair.connect(Options { mtu, ..Options::default() });
    let (source, target) = (pair.a.buffer(MEMORY).fill(1), pair.b.buffer(MEMORY));
    let (mut sent, mut read) = (Vec::new(), Vec::new());
    for id in 0..4 {
        let length = rng.next_u32() as usize % MEMORY;
        let piece = source.sge(0, length);
        match one_of(&mut rng, &[Kind::Write, Kind::Send, Kind::Read]) {
            Kind::Write => {
                pair.post_send(&a, &SendWr::write(id, target.remote(0), piece));
                sent.push((id, Ok(0)));
            }
            Kind::Send => {
                pair.post_recv(&b, &RecvWr::new(id, [target.sge(0, MEMORY)]));
                pair.post_send(&a, &SendWr::send(id, piece));
                sent.push((id, Ok(0)));
            }
            Kind::Read => {
                pair.post_send(&b, &SendWr::read(id, source.remote(0), target.sge(0, length)));
                read.push((id, Ok(length as u32)));
            }
        }
    }
    if !by_run {
        pair.b.adapter.count_qp(b.qpn).unwrap();
    }
    let (mut shown, mut timeouts) = (Vec::new(), Vec::new());
    for round in 0..600 {
        let now = pair.now.plus(Duration::from_millis(round));
        let Pair { a, b, .. } = &mut pair;
        a.adapter.handle_timeout(now);
        a.transmit.clear();
        a.adapter.poll_transmit(now, &mut a.transmit);
        let mut responses = Vec::new();
        let mut response = |b: &mut Node| {
            b.adapter.handle_timeout(now);
            b.transmit.clear();
            b.adapter.poll_transmit(now, &mut b.transmit);
            responses.extend(b.transmit.datagrams().map(|(net, bytes)| (net, bytes.to_vec())));
            timeouts.push(b.adapter.poll_timeout());
        };
        response(b);
        for run in a.transmit.runs() {
            let mut bytes = a.transmit.payload(run).to_vec();
            let place = |rng: &mut ChaCha8Rng| {
                rng.next_u32() as usize % run.count() * run.segment // datagram boundary
            };
            match rng.next_u32() % 12 {
                0 => {
                    let at = place(&mut rng);
                    let within = one_of(&mut rng, &[12, run.segment.min(bytes.len() - at)]);
                    bytes[at + rng.next_u32() as usize % within] ^= 1 << (rng.next_u32() % 8);
                }
                1 => {
                    let (one, other) = (place(&mut rng), place(&mut rng));
                    let longest = run.segment.min(bytes.len() - one.max(other));
                    let copy = bytes[one..one + longest].to_vec();
                    bytes[other..other + longest].copy_from_slice(&copy);
                }
                _ => {}
            }
            let net = NetHeader { ident: Ident::Likely(0), ..run.net_header(0) };
            let meta = DatagramMeta::default();
            let run = DatagramRun { net: &net, bytes: &bytes, segment: run.segment, meta };
            if by_run {
                b.adapter.handle_run(now, &run);
            } else {
                run.for_each(|datagram| {
                    b.adapter.handle_datagram(now, datagram);
                });
            }
            response(b);
        }
        for (net, bytes) in responses {
            a.adapter.handle_datagram(now, &Datagram::new(&net, &bytes));
            shown.push(bytes);
        }
    }
    assert_eq!((a.send_outcomes(), b.send_outcomes()), (sent, read), "seed {seed}");
    ((shown, timeouts), pair.b.adapter.counters().clone(), target.bytes())
}

#[test]
fn a_run_is_what_its_datagrams_are() {
    for seed in 0..60 {
        let [by_run, one_by_one] = [true, false].map(|by_run| carry(seed, by_run));
        assert!(by_run == one_by_one, "seed {seed}: {:?} {:?}", by_run.1, one_by_one.1);
    }
}

#[test]
fn a_datagram_without_a_payload_is_one() {
    let (mut pair, a, _) = Pair::connected(Options::default());
    let net = NetHeader { ident: Ident::Likely(0), ..net(pair.b.ip, pair.a.ip) };
    let before = pair.a.adapter.counters().received_packets;
    pair.a.adapter.handle_run(pair.now, &Datagram::new(&net, &[]).into());
    let counters = pair.a.adapter.counters();
    let counted = (counters.received_packets - before, counters.dropped(DropReason::TooShort));
    assert_eq!((counted, pair.state(&a)), ((1, 1), State::Rts));
}
