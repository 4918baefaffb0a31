//! Duplicates execute once and get a second response (9.7.5.1.4).

use roce_transport::{
    addr::Mtu,
    event::{Disposition, DropReason},
    mem::RKey,
    wire::{NakCode, Operation as Op, Syndrome},
    work::{Data, RecvWr, Remote, SendWr},
};

use crate::common::{Half, Options, Pair, Pkt, Side, ack, all_ok, nak, pkt, rnr};

const MISSING: Disposition = Disposition::Dropped(DropReason::ReplayMissing);

fn response(place: Op, psn: u32, msn: u32, bytes: &[u8]) -> Pkt {
    match place {
        Op::ReadResponseMiddle => pkt(place, psn).payload(bytes),
        _ => pkt(place, psn).aeth(Syndrome::ACK, msn).payload(bytes),
    }
}

#[test]
fn a_send_is_received_once() {
    let mut half = Half::new(Options::default());
    let to = half.buffer(8);
    half.post_recvs(1..=2, &[to.all()]);
    half.exchange(&pkt(Op::SendOnly, 0x200).payload(b"once").ask(), &[ack(0x200, 1)]);
    assert_eq!(
        half.send(&pkt(Op::SendOnly, 0x200).payload(b"TWICE").ask()),
        Disposition::Duplicate
    );
    half.expect(&[ack(0x200, 1)]);
    assert_eq!(half.qp.recv_outcomes(), all_ok([1], 4));
    assert_eq!(to.part(0, 4), b"once");
}

/// A repeat means a lost response, so it needs no acknowledgement request.
#[test]
fn a_repeat_is_always_acknowledged() {
    let mut half = Half::new(Options::default());
    half.post_recv(&RecvWr::new(1, []));
    half.send(&pkt(Op::SendOnly, 0x200));
    half.expect_nothing();
    half.exchange(&pkt(Op::SendOnly, 0x200), &[ack(0x200, 1)]);
}

/// The program may already reuse the memory.
#[test]
fn a_write_is_written_once() {
    let mut half = Half::new(Options::default());
    let to = half.buffer(8);
    let write = pkt(Op::WriteOnly, 0x200).reth(to.remote(0), 4).payload(b"peer").ask();
    half.send(&write);
    half.take();
    to.put(0, b"mine");
    assert_eq!(half.send(&write), Disposition::Duplicate);
    half.expect(&[ack(0x200, 1)]);
    assert_eq!(to.part(0, 4), b"mine");
}

#[test]
fn a_message_under_way_survives_repeats() {
    let mut half = Half::new(Options { mtu: Mtu::B256, ..Options::default() });
    let to = half.buffer(600).fill(7);
    half.post_recv(&RecvWr::new(1, [to.all()]));
    half.send(&pkt(Op::SendFirst, 0x200).payload(&[1; 256]));
    half.send(&pkt(Op::SendMiddle, 0x201).payload(&[2; 256]));
    half.send(&pkt(Op::SendFirst, 0x200).payload(&[9; 256]));
    half.expect(&[ack(0x201, 0)]);
    half.send(&pkt(Op::SendLast, 0x202).payload(&[3; 88]).ask());
    half.expect(&[ack(0x202, 1)]);
    assert_eq!(to.bytes(), [vec![1; 256], vec![2; 256], vec![3; 88]].concat());
}

#[test]
fn a_repeat_does_not_displace_a_nak() {
    let mut half = Half::new(Options::default());
    half.post_recv(&RecvWr::new(1, []));
    let first = pkt(Op::SendOnly, 0x200).ask();
    half.send(&first);
    half.take();
    half.send(&pkt(Op::SendOnly, 0x202).ask());
    half.exchange(&first, &[nak(NakCode::PsnSequenceError, 0x201, 1)]);
    half.send(&pkt(Op::SendOnly, 0x201).ask());
    half.exchange(&first, &[rnr(12, 0x201, 1)]);
    half.send(&pkt(Op::SendMiddle, 0x201).ask());
    half.exchange(&first, &[nak(NakCode::InvalidRequest, 0x201, 1)]);
}

/// READs need their data.
#[test]
fn a_repeat_never_acknowledges_a_read() {
    let mut half = Half::new(Options { mtu: Mtu::B256, ..Options::default() });
    let from = half.buffer(512).fill(1);
    let write = pkt(Op::WriteOnly, 0x200).reth(from.remote(0), 0).ask();
    half.send(&write);
    half.send(&pkt(Op::ReadRequest, 0x201).reth(from.remote(0), 512));
    half.take();
    half.exchange(&write, &[ack(0x200, 1)]);
    // after a later request an acknowledgement passes the READ
    half.send(&pkt(Op::WriteOnly, 0x203).reth(from.remote(0), 0));
    half.exchange(&write, &[ack(0x203, 3)]);
}

#[test]
fn a_read_gets_a_response_again() {
    let mut half = Half::new(Options { mtu: Mtu::B256, ..Options::default() });
    let from = half.buffer(1000).fill(1);
    let read = pkt(Op::ReadRequest, 0x200).reth(from.remote(0), 600);
    half.send(&read);
    let responses = half.take();
    assert_eq!(responses.len(), 3);
    assert_eq!(half.send(&read), Disposition::Duplicate);
    half.expect(&responses);
}

/// Repeats start inside, on packet boundaries, and end anywhere.
#[test]
fn a_part_of_a_read_gets_a_response_again() {
    let mut half = Half::new(Options { mtu: Mtu::B256, ..Options::default() });
    let from = half.buffer(1000).fill(1);
    half.send(&pkt(Op::ReadRequest, 0x200).reth(from.remote(0), 600));
    half.take();
    assert_eq!(
        half.send(&pkt(Op::ReadRequest, 0x201).reth(from.remote(256), 344)),
        Disposition::Duplicate
    );
    half.expect(&[
        response(Op::ReadResponseFirst, 0x201, 1, &from.part(256, 256)),
        response(Op::ReadResponseLast, 0x202, 1, &from.part(512, 88)),
    ]);
    half.send(&pkt(Op::ReadRequest, 0x202).reth(from.remote(512), 88));
    half.expect(&[response(Op::ReadResponseOnly, 0x202, 1, &from.part(512, 88))]);
    half.send(&pkt(Op::ReadRequest, 0x200).reth(from.remote(0), 256));
    half.expect(&[response(Op::ReadResponseOnly, 0x200, 1, &from.part(0, 256))]);
}

#[test]
fn bytes_outside_the_first_read_get_no_response() {
    let mut half = Half::new(Options { mtu: Mtu::B256, ..Options::default() });
    let from = half.buffer(1000).fill(1);
    let other = half.buffer(1000);
    half.send(&pkt(Op::ReadRequest, 0x200).reth(from.remote(0), 600));
    half.take();
    for (psn, remote, length) in [
        (0x200, other.remote(0), 600),
        (0x200, from.remote(1), 599),
        (0x200, from.remote(0), 601),
        (0x201, from.remote(0), 344),
        (0x201, from.remote(256), 345),
        (0x200, Remote { rkey: RKey(from.region.rkey().0 ^ 1), ..from.remote(0) }, 600),
        (0x1FF, from.remote(0), 600),
    ] {
        assert_eq!(
            half.send(&pkt(Op::ReadRequest, psn).reth(remote, length)),
            MISSING,
            "{psn:#x} {remote:?} {length}"
        );
    }
    half.expect_nothing();
}

/// The limit is rounded up to a power of two.
#[test]
fn the_oldest_read_is_forgotten() {
    for (agreed, remembered) in [(1, 1), (2, 2), (3, 4), (4, 4), (5, 8), (16, 16)] {
        let mut half = Half::new(Options { max_dest_rd_atomic: agreed, ..Options::default() });
        let from = half.buffer(8);
        let read = |psn| pkt(Op::ReadRequest, psn).reth(from.remote(0), 8);
        for psn in 0..=remembered {
            half.send(&read(0x200 + psn));
            half.take();
        }
        assert_eq!(half.send(&read(0x200)), MISSING);
        for psn in 1..=remembered {
            assert_eq!(half.send(&read(0x200 + psn)), Disposition::Duplicate);
            assert_eq!(half.take().len(), 1);
        }
    }
}

/// READs use current memory.
#[test]
fn a_repeated_read_needs_the_region() {
    let mut half = Half::new(Options::default());
    let from = half.buffer(8);
    let read = pkt(Op::ReadRequest, 0x200).reth(from.remote(0), 8);
    half.send(&read);
    half.take();
    half.node.adapter.deregister(&from.region).unwrap();
    assert_eq!(half.send(&read), MISSING);
    half.expect_nothing();
}

#[test]
fn a_repeat_of_a_read_under_way_starts_it_over() {
    let mut half = Half::new(Options { mtu: Mtu::B256, ..Options::default() });
    let from = half.buffer(1000).fill(1);
    let read = pkt(Op::ReadRequest, 0x200).reth(from.remote(0), 1000);
    half.send(&read);
    for _ in 0..10 {
        half.send(&read);
    }
    assert_eq!(half.take().len(), 4);
}

#[test]
fn a_flood_of_repeats_makes_no_flood_of_responses() {
    let mut half = Half::new(Options { max_dest_rd_atomic: 4, ..Options::default() });
    let memory = half.buffer(64);
    half.post_recv(&RecvWr::new(1, [memory.all()]));
    let send = pkt(Op::SendOnly, 0x200).ask();
    let reads: Vec<Pkt> =
        (0x201..0x205).map(|psn| pkt(Op::ReadRequest, psn).reth(memory.remote(0), 8)).collect();
    half.send(&send);
    for read in &reads {
        half.send(read);
    }
    for i in 0..10_000 {
        half.send(&send);
        half.send(&reads[i % 4]);
    }
    let responses = half.take().len();
    assert!(responses <= 9, "{responses} answers: four READs and an acknowledgement around each");
    assert_eq!(half.qp.received().len(), 1);
}

#[test]
fn a_network_that_duplicates_everything_changes_nothing() {
    let mut pair = Pair::new();
    let mut conditions = Pair::conditions();
    conditions.duplication = 1.0;
    pair.network.faults_mut().set_conditions(conditions);
    pair.allow_all(&[
        DropReason::StaleResponse,
        DropReason::ReplayMissing,
        DropReason::RecoveryUnderWay,
    ]);
    let (a, b) = pair.connect(Options { mtu: Mtu::B256, ..Options::default() });
    let (near, far) = (pair.a.buffer(4000).fill(1), pair.b.buffer(4000));
    for id in 0..4 {
        pair.post_recv(&b, &RecvWr::new(id, [far.sge(3000, 1000)]));
    }
    pair.post_send(&a, &SendWr::send(1, near.sge(0, 1000)));
    pair.post_send(&a, &SendWr::write(2, far.remote(0), near.sge(0, 1000)));
    pair.post_send(
        &a,
        &SendWr::write(3, far.remote(1000), near.sge(1000, 1000)).with_immediate([0; 4]),
    );
    pair.post_send(&a, &SendWr::read(4, far.remote(0), near.sge(2000, 1000)));
    pair.post_send(&a, &SendWr::send(5, Data::empty()));
    pair.run();
    assert_eq!(a.send_outcomes(), [(1, Ok(0)), (2, Ok(0)), (3, Ok(0)), (4, Ok(1000)), (5, Ok(0))]);
    assert_eq!(b.recv_outcomes(), [(0, Ok(1000)), (1, Ok(1000)), (2, Ok(0))]);
    assert_eq!(near.part(2000, 1000), near.part(0, 1000));
    assert!(pair.trace.count(Side::B, Op::Acknowledge) > 0);
}
