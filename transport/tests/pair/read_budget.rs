//! READs in portions within a budget shared by queue pairs.

use roce_transport::{
    addr::Mtu,
    event::{Disposition, DropReason},
    mem::RKey,
    qp::State,
    wire::{Operation as Op, Syndrome},
    work::{Remote, SendWr, WcStatus},
};

use crate::common::{Half, Node, Options, Pair, Pkt, Side, UDP_SEGMENT, all_ok, pattern, pkt};

const FAR: Remote = Remote { address: 0x5000, rkey: RKey(0x1234) };
const BUDGET: u64 = 2 * 4 * (1024 + 768);
const PORTION: u32 = 4096;
const MTU: usize = 1024;
const PROGRESS: Disposition = Disposition::Acknowledged { completed: 0 };

fn half(options: Options) -> Half {
    Half::with_read_budget(BUDGET, Options { mtu: Mtu::B1024, ..options })
}

fn request(n: u32) -> Pkt {
    request_of(4 * n, PORTION)
}

fn request_of(packet: u32, length: u32) -> Pkt {
    let from = Remote { address: FAR.address + u64::from(packet) * MTU as u64, ..FAR };
    pkt(Op::ReadRequest, 0x100 + packet).reth(from, length).ask()
}

fn response(operation: Op, packet: u32, bytes: &[u8]) -> Pkt {
    let start = packet as usize * MTU;
    let part = &bytes[start..bytes.len().min(start + MTU)];
    let response = pkt(operation, 0x100 + packet).payload(part);
    if operation == Op::ReadResponseMiddle { response } else { response.aeth(Syndrome::ACK, 1) }
}

fn responses(n: u32, bytes: &[u8]) -> Vec<Pkt> {
    let operations = [
        Op::ReadResponseFirst,
        Op::ReadResponseMiddle,
        Op::ReadResponseMiddle,
        Op::ReadResponseLast,
    ];
    (0..4).map(|i| response(operations[i as usize], 4 * n + i, bytes)).collect()
}

#[test]
fn a_long_read_leaves_as_portions_and_goes_on_as_data_arrives() {
    let mut half = half(Options::default());
    let near = half.buffer(6 * 4096 + 100);
    let bytes = pattern(3, near.len());
    half.post_send(&SendWr::read(1, FAR, near.all()));
    half.expect(&[request(0), request(1)]);
    for n in 0..4 {
        responses(n, &bytes).iter().for_each(|packet| assert_eq!(half.send(packet), PROGRESS));
        half.expect(&[request(2 + n)]);
    }
    responses(4, &bytes).iter().for_each(|packet| assert_eq!(half.send(packet), PROGRESS));
    half.expect(&[request_of(24, 100)]);
    (5..6).flat_map(|n| responses(n, &bytes)).for_each(|packet| {
        half.send(&packet);
    });
    assert_eq!(half.qp.sent(), []);
    half.send(&response(Op::ReadResponseOnly, 24, &bytes));
    assert_eq!(half.qp.send_outcomes(), all_ok([1], near.len() as u32));
    assert_eq!(near.bytes(), bytes);
}

/// Shared memory loses nothing and needs no budget.
#[test]
fn responses_through_memory_have_room_of_their_own() {
    let mut half = half(Options::default());
    let near = half.buffer(3 << 20);
    let bytes = pattern(3, near.len());
    half.post_send(&SendWr::read(1, FAR, near.all()));
    half.expect(&[request(0), request(1)]);
    half.lossless = true;
    half.send(&responses(0, &bytes)[0]);
    let portion = (512 << 10) / (1024 + 768);
    half.expect(&[request_of(8, portion * 1024)]);
    responses(0, &bytes)[1..].iter().chain(&responses(1, &bytes)).for_each(|packet| {
        half.send(packet);
    });
    half.expect(&[request_of(8 + portion, portion * 1024)]);
    // over the network: wait for the budget
    half.lossless = false;
    half.send(&response(Op::ReadResponseFirst, 8, &bytes));
    assert_eq!(half.take(), []);
}

#[test]
fn a_short_read_is_one_request() {
    let mut half = half(Options::default());
    let near = half.buffer(4096);
    half.post_send(&SendWr::read(1, FAR, near.all()));
    half.expect(&[request(0)]);
}

#[test]
fn no_more_requests_than_agreed_on() {
    let mut half = half(Options { max_rd_atomic: 1, ..Options::default() });
    let near = half.buffer(16_384);
    let bytes = pattern(3, near.len());
    half.post_send(&SendWr::read(1, FAR, near.all()));
    half.post_send(&SendWr::read(2, FAR, near.sge(0, 8)));
    half.expect(&[request(0)]);
    for n in 0..3 {
        responses(n, &bytes).iter().for_each(|packet| assert_eq!(half.send(packet), PROGRESS));
        half.expect(&[request(n + 1)]);
    }
    for packet in &responses(3, &bytes) {
        half.send(packet);
    }
    assert_eq!(half.qp.send_outcomes(), all_ok([1], 16_384));
    half.expect(&[pkt(Op::ReadRequest, 0x110).reth(FAR, 8).ask()]);
}

#[test]
fn the_response_to_a_portion_has_its_own_ends() {
    for (packet, operation, fits) in [
        (3, Op::ReadResponseLast, true),
        (3, Op::ReadResponseOnly, true),
        (3, Op::ReadResponseMiddle, false),
        (2, Op::ReadResponseLast, false),
        (2, Op::ReadResponseMiddle, true),
    ] {
        let mut half = half(Options::default());
        let near = half.buffer(8192);
        let bytes = pattern(3, near.len());
        half.post_send(&SendWr::read(1, FAR, near.all()));
        half.take();
        for n in 0..packet {
            half.send(&responses(0, &bytes)[n as usize]);
        }
        half.send(&response(operation, packet, &bytes));
        assert_eq!(half.state() == State::Rts, fits, "{operation:?} as packet {packet}");
        if !fits {
            assert_eq!(half.qp.send_outcomes(), [(1, Err(WcStatus::BadRespErr))]);
        }
    }
}

#[test]
fn a_lost_response_is_asked_for_within_its_portion() {
    let mut half = half(Options::default());
    let near = half.buffer(3 * 4096);
    let bytes = pattern(3, near.len());
    half.post_send(&SendWr::read(1, FAR, near.all()));
    half.expect(&[request(0), request(1)]);
    responses(0, &bytes).iter().for_each(|packet| assert_eq!(half.send(packet), PROGRESS));
    half.expect(&[request(2)]);
    half.send(&responses(1, &bytes)[0]);
    let behind = &responses(1, &bytes)[2];
    assert_eq!(half.send(behind), Disposition::Dropped(DropReason::ReadResponseGap));
    half.expect(&[request_of(5, 3072), request(2)]);
}

fn pair() -> Pair {
    let mut pair = Pair::new();
    pair.a = Node::with_read_budget(BUDGET, pair.a.ip, 0xA, UDP_SEGMENT);
    pair
}

fn most_outstanding(pair: &Pair) -> u64 {
    let (mut now, mut most) = (0_i64, 0);
    for record in &pair.trace.records {
        match (record.operation(), record.headers.ext().reth()) {
            (Op::ReadRequest, Some(reth)) => now += i64::from(reth.dma_length),
            _ => now -= record.payload as i64,
        }
        most = most.max(now);
    }
    most as u64
}

#[test]
fn many_queue_pairs_share_the_budget() {
    let mut pair = pair();
    let ends: Vec<_> =
        (0..40).map(|_| pair.connect(Options { mtu: Mtu::B1024, ..Options::default() })).collect();
    let transfers: Vec<_> = ends
        .iter()
        .map(|(a, _)| {
            let (near, far) = (pair.a.buffer(40_000), pair.b.buffer(40_000).fill(9));
            pair.post_send(a, &SendWr::read(1, far.remote(0), near.all()));
            (near, far)
        })
        .collect();
    pair.run();
    for ((a, _), (near, far)) in ends.iter().zip(&transfers) {
        assert_eq!(a.send_outcomes(), all_ok([1], 40_000));
        assert_eq!(near.bytes(), far.bytes());
    }
    assert!(most_outstanding(&pair) <= BUDGET, "{}", most_outstanding(&pair));
    assert_eq!(pair.a.adapter.counters().retransmitted_packets, 0);
    assert_eq!(pair.a.adapter.counters().timeouts, 0, "nobody was forgotten in the line");
}

#[test]
fn a_short_read_waits_for_its_turn_and_no_longer() {
    let mut pair = pair();
    let options = Options { mtu: Mtu::B1024, ..Options::default() };
    let ((a, _), (other, _)) = (pair.connect(options), pair.connect(options));
    let (near, far) = (pair.a.buffer(1 << 20), pair.b.buffer(1 << 20));
    pair.post_send(&a, &SendWr::read(1, far.remote(0), near.all()));
    pair.run_for(std::time::Duration::from_micros(20));
    pair.post_send(&other, &SendWr::read(2, far.remote(0), near.sge(0, 8)));
    pair.run_for(std::time::Duration::from_micros(20));
    assert_eq!(other.send_outcomes(), all_ok([2], 8));
    assert_eq!(a.sent(), []);
}

#[test]
fn a_queue_pair_that_ends_gives_back_its_share() {
    for destroyed in [false, true] {
        let mut pair = pair();
        let options = Options { mtu: Mtu::B1024, ..Options::default() };
        let ((gone, _), (a, _)) = (pair.connect(options), pair.connect(options));
        let (near, far) = (pair.a.buffer(32_768), pair.b.buffer(32_768));
        pair.fault_from(Side::A, "drop read");
        pair.post_send(&gone, &SendWr::read(1, far.remote(0), near.all()));
        pair.post_send(&a, &SendWr::read(2, far.remote(0), near.all()));
        pair.run_for(std::time::Duration::from_micros(100));
        pair.network.faults_mut().clear_rules();
        if destroyed {
            pair.a.adapter.destroy_qp(gone.qpn).unwrap();
        } else {
            pair.a.adapter.to_error(pair.now, gone.qpn).unwrap();
        }
        pair.run();
        assert_eq!(a.send_outcomes(), all_ok([2], 32_768), "destroyed: {destroyed}");
    }
}

/// One packet of the largest MTU.
#[test]
fn the_smallest_budget_lets_everything_through() {
    for mtu in [Mtu::B256, Mtu::B4096] {
        let mut pair = Pair::new();
        pair.a = Node::with_read_budget(0, pair.a.ip, 0xA, UDP_SEGMENT);
        let ends: Vec<_> =
            (0..10).map(|_| pair.connect(Options { mtu, ..Options::default() })).collect();
        let (near, far) = (pair.a.buffer(20_000), pair.b.buffer(20_000));
        for (a, _) in &ends {
            pair.post_send(a, &SendWr::read(1, far.remote(0), near.all()));
        }
        pair.run();
        assert!(ends.iter().all(|(a, _)| a.send_outcomes() == all_ok([1], 20_000)));
        assert!(most_outstanding(&pair) <= 4864);
        assert_eq!(pair.a.adapter.counters().timeouts, 0);
    }
}
