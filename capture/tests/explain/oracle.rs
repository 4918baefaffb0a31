//! On lossy networks, explanations of captures agree with both adapters' records.

use std::{collections::BTreeMap, net::IpAddr, time::Duration};

use rand_chacha::ChaCha8Rng;
use rand_core::{RngCore, SeedableRng};
use roce_capture::explain::{Cause, Causes, Explained, ExplainedPacket, Explanation};
use roce_fabric::Network;
use roce_transport::{
    adapter::Adapter,
    addr::Mtu,
    event::DropReason,
    trace::{Loss, Reason, Record, What, Why},
    work::{RecvWr, SendWr},
};

use super::forms;
use crate::common::{Options, Pair, Side};

const NETWORKS: [&str; 10] = [
    "delay 1us",
    "delay 1us, drop 2%",
    "delay 3us, drop 8%",
    "delay 1us, drop 5% tx, duplicate 3%",
    "delay 2us, reorder 5%, drop 1%",
    "delay 5us, drop ack 20%",
    "delay 5us, drop nak 50%, drop 3%",
    "delay 1us, rnr 20%, drop 1%",
    "delay 1us, drop read-response 8%",
    "delay 20us, jitter 10us, drop 1%",
];

#[derive(Default, Debug)]
struct Totals {
    packets: u64,
    repeated: u64,
    /// Retransmissions by number of causes named; 0: unknown.
    named: BTreeMap<usize, u64>,
}

fn run(seed: u64, networks: &[&str]) -> Pair {
    let mut dice = ChaCha8Rng::seed_from_u64(seed);
    let mut pick = |n: u32| dice.next_u32() % n;
    let plan = networks[pick(networks.len() as u32) as usize];
    let network = Network::with_plan(plan.parse().unwrap(), seed);
    let mut pair = Pair::with_network(network).recorded();
    pair.allow_all(DropReason::ALL);
    let mtu = [Mtu::B256, Mtu::B1024][pick(2) as usize];
    let timeout = [8, 10, 12][pick(3) as usize];
    let links = 1 + pick(3);
    for link in 0..links {
        let options = Options {
            mtu,
            timeout,
            a_psn: 0xFF_FFF0 + link * 5000,
            b_psn: 0x40_0000 + link * 7000,
            ..Options::default()
        };
        let ends = pair.connect(options);
        let (a_memory, b_memory) = (pair.a.buffer(6000), pair.b.buffer(6000));
        for id in 0..40 {
            pair.post_recv(&ends.0, &RecvWr::new(id, [a_memory.sge(0, 4000)]));
            pair.post_recv(&ends.1, &RecvWr::new(id, [b_memory.sge(0, 4000)]));
        }
        for id in 0..4 + u64::from(pick(12)) {
            let a_sends = pick(3) > 0;
            let (end, near, far) = match a_sends {
                true => (&ends.0, &a_memory, &b_memory),
                false => (&ends.1, &b_memory, &a_memory),
            };
            let length = [8, 200, 1500, 3900][pick(4) as usize];
            let wr = match pick(5) {
                0 => SendWr::send(id, near.sge(0, length)),
                1 | 2 => SendWr::write(id, far.remote(4000), near.sge(0, length.min(2000))),
                3 => SendWr::read(id, far.remote(0), near.sge(0, length)),
                _ => SendWr::fetch_add(id, far.remote(5992), 1, near.sge(5984, 8)),
            };
            let end = end.clone();
            pair.post_send(&end, &wr);
            if pick(4) == 0 {
                pair.run_for(Duration::from_micros(u64::from(pick(300))));
            }
        }
    }
    pair.run();
    pair
}

fn reasons(records: &[Record]) -> impl Iterator<Item = Reason> {
    records.iter().filter_map(|record| match record.what {
        What::Sent { why: Why::Queue(reason), .. } => Some(reason),
        _ => None,
    })
}

fn check_causes(causes: Causes, truth: Cause, totals: &mut Totals) -> bool {
    totals.repeated += 1;
    *totals.named.entry(causes.iter().count()).or_default() += 1;
    causes == Causes::UNKNOWN || causes.contains(truth)
}

fn agrees(why: Explanation, truth: Reason, totals: &mut Totals) -> bool {
    match (why, truth) {
        (Explanation::First | Explanation::Next | Explanation::Joined, Reason::First(_)) => true,
        (Explanation::Retransmit(causes), Reason::Retransmit(_, loss)) => {
            check_causes(causes, cause(loss), totals)
        }
        (Explanation::Retransmit(causes), Reason::Probe { .. }) => {
            check_causes(causes, Cause::NoResponse, totals)
        }
        (
            Explanation::Acknowledges { up_to: psn, .. } | Explanation::DuplicateAcknowledge(psn),
            Reason::Acknowledge(truth),
        ) => psn == truth,
        (Explanation::Negative(psn, syndrome), Reason::Negative(truth, its)) => {
            (psn, syndrome) == (truth, its)
        }
        (Explanation::Responses { .. }, Reason::Response { .. })
        | (Explanation::Congestion, Reason::Congestion) => true,
        _ => false,
    }
}

const fn cause(loss: Loss) -> Cause {
    match loss {
        Loss::Nak => Cause::Nak,
        Loss::ImpliedNak => Cause::ImpliedNak,
        Loss::Timeout | Loss::Probe => Cause::NoResponse,
        Loss::NotReady => Cause::NotReady,
    }
}

/// After each arrival, the oldest unacknowledged PSN is the record's. Finally, the next PSN is the
/// queue pair's.
fn check_requesters(
    explained: &Explained,
    (ip, adapter): (IpAddr, &Adapter),
    records: &[Record],
    seed: u64,
) -> u64 {
    let own = |packet: &ExplainedPacket| {
        packet.requesters[usize::from(packet.from_second == (packet.net.src() == ip.into()))]
    };
    let (mut arrived, mut acknowledged) = (0, BTreeMap::new());
    for record in records {
        match record.what {
            What::Arrived { .. } => arrived += 1,
            // a response with data acknowledges earlier requests and its own
            What::Acknowledged { before } => _ = acknowledged.insert(arrived - 1, before),
            _ => {}
        }
    }
    let arriving: Vec<_> =
        explained.packets.iter().filter(|packet| packet.net.src() != ip.into()).collect();
    assert_eq!(arriving.len(), arrived);
    for (&index, &before) in &acknowledged {
        let packet = arriving[index];
        let shown = own(packet).unwrap();
        let oldest = shown.oldest_unacked.unwrap_or(shown.next_psn);
        assert_eq!(oldest, before, "seed {seed}, {ip}: frame {}", packet.frame);
    }
    for info in adapter.queue_pairs() {
        let queue = adapter.query_send_queue(info.qpn).unwrap();
        let index = explained.connections.iter().position(|connection| {
            connection.ends.iter().any(|end| end.address == ip.into() && end.qpn == Some(info.qpn))
        });
        let of_it = |packet: &&ExplainedPacket| packet.connection == index;
        let shown = explained.packets.iter().rfind(of_it).and_then(own);
        if let (Some(shown), true) = (shown, queue.requests.is_empty()) {
            assert_eq!(shown.next_psn, info.sq_psn, "seed {seed}, {ip}, {}", info.qpn);
            assert_eq!(shown.oldest_unacked, None, "seed {seed}, {ip}, {}", info.qpn);
        }
    }
    acknowledged.len() as u64
}

/// Each side's packets in its own capture.
#[test]
fn no_reason_is_wrong() {
    let mut totals = Totals::default();
    let mut acknowledged = 0;
    let seeds = std::env::var("ROCE_EXPLAIN_SEEDS").map_or(1000, |seeds| seeds.parse().unwrap());
    for seed in 0..seeds {
        let mut pair = run(seed, &NETWORKS);
        for side in [Side::A, Side::B] {
            let file = forms::of_datagrams(&pair.seen[side as usize]);
            let explained = Explained::of_file(&file).unwrap();
            assert!(explained.complete && explained.other_frames == 0);
            assert_eq!(explained.packets.len(), pair.seen[side as usize].len());
            let ip = pair.node(side).ip;
            let records = pair.record(side).to_vec();
            let own = explained.packets.iter().filter(|packet| packet.net.src() == ip.into());
            let truths: Vec<_> = reasons(&records).collect();
            assert_eq!(own.clone().count(), truths.len());
            for (packet, truth) in own.zip(truths) {
                totals.packets += 1;
                assert!(
                    agrees(packet.why, truth, &mut totals),
                    "seed {seed}, {side:?}: frame {} is explained as {:?} ({}), and was {truth:?} \
                     ({truth})",
                    packet.frame,
                    packet.why,
                    packet.why
                );
            }
            let node = pair.node(side);
            acknowledged += check_requesters(&explained, (node.ip, &node.adapter), &records, seed);
        }
    }
    assert!(acknowledged > 10 * seeds, "{acknowledged}");
    println!("{totals:?}");
    let named = |count: usize| totals.named.get(&count).copied().unwrap_or(0);
    assert!(totals.repeated > seeds, "{totals:?}");
    assert!(named(1) * 100 >= totals.repeated * 85, "most causes are certain: {totals:?}");
    assert!(named(0) * 100 <= totals.repeated * 5, "few are not known: {totals:?}");
}

/// Captures at the receiver: requests are lost before, all responses arrive.
#[test]
fn nor_is_one_at_the_receiver() {
    const WAY: Duration = Duration::from_micros(5);
    let mut totals = Totals::default();
    for seed in 0..1000 {
        let networks = ["delay 5us, drop request 5%", "delay 5us, drop request 2%, rnr 10%"];
        let mut pair = run(seed, &networks);
        for (side, peer) in [(Side::A, Side::B), (Side::B, Side::A)] {
            let (ip, peers) = (pair.node(side).ip, pair.node(peer).ip);
            let records = pair.record(peer).to_vec();
            let sent = pair.seen[peer as usize].iter().filter(|(_, net, _)| net.src == peers);
            let sent: Vec<_> = sent.map(|(at, _, bytes)| (at.plus(WAY), bytes.clone())).collect();
            let truths: Vec<_> = sent.iter().zip(reasons(&records)).collect();
            let explained =
                Explained::of_file(&forms::of_datagrams(&pair.seen[side as usize])).unwrap();
            for (packet, (at, net, bytes)) in
                explained.packets.iter().zip(&pair.seen[side as usize])
            {
                if net.src == ip {
                    continue;
                }
                let truth = truths.iter().find(|((sent, its), _)| sent == at && its == bytes);
                let (_, truth) = truth.expect("the way takes 5 us");
                let (why, frame) = (packet.why, packet.frame);
                let agrees = match (why, *truth) {
                    // a capture after the loss cannot show it
                    (Explanation::First | Explanation::Next | Explanation::AfterGap(_), _)
                    | (Explanation::Late | Explanation::Joined, _) => true,
                    (_, truth) => agrees(why, truth, &mut totals),
                };
                assert!(
                    agrees,
                    "seed {seed}, {side:?}: frame {frame} is {why:?}, and was {truth:?}"
                );
            }
        }
    }
    println!("{totals:?}");
    let named = |count: usize| totals.named.get(&count).copied().unwrap_or(0);
    assert!(totals.repeated > 1000, "{totals:?}");
    assert!(named(1) * 100 >= totals.repeated * 70, "most causes are certain: {totals:?}");
}
