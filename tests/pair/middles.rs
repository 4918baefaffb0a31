//! Packets from the middle of messages leave and arrive many at once. They are what they would be one by
//! one, as they do in an adapter that [counts](roce_transport::adapter::Adapter::count_qp) for a queue pair alone.

use rand_chacha::ChaCha8Rng;
use rand_core::{RngCore, SeedableRng};
use roce_provider::fabric::Network;
use roce_transport::{
    adapter::TransmitBuffer,
    addr::Mtu,
    event::DropReason,
    trace::What,
    work::{RecvWr, SendWr},
};

use crate::common::{Options, Pair, Side, UDP_SEGMENT};

/// Bytes of the memory of each side.
const MEMORY: usize = 400_000;

#[derive(Clone, Copy, Debug)]
enum Kind {
    Send,
    Write,
    Read,
}

/// A message, and how many microseconds later the next one is posted.
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

/// Everything that crosses the network, every record, and what is in memory in the end.
fn play(messages: &[Message], options: Options, faults: &str, one_by_one: bool) -> Vec<String> {
    let mut pair = Pair::with_network(Network::new(Pair::conditions(), 3)).recorded();
    for node in [&mut pair.a, &mut pair.b] {
        node.transmit = TransmitBuffer::new(20_000, UDP_SEGMENT);
    }
    pair.allow_all(&[
        DropReason::OutOfSequence,
        DropReason::StaleResponse,
        DropReason::RecoveryUnderWay,
        DropReason::ReadResponseGap,
        DropReason::ReplayMissing,
        DropReason::ResponderBusy,
        DropReason::Icrc,
    ]);
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
        pair.run_for(std::time::Duration::from_micros(pause));
    }
    pair.run();
    let mut shown: Vec<_> = pair
        .trace
        .records
        .iter()
        .map(|rung| format!("{:?} {:?} {:?} {:x?}", rung.time, rung.from, rung.net, rung.bytes))
        .collect();
    for side in [Side::A, Side::B] {
        // a rate is looked at by the way, whenever something is done with its queue pair
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
