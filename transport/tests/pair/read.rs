//! RDMA READ (9.4.4, 9.7.5.1).

use roce_transport::{
    addr::Mtu,
    event::{Disposition, DropReason, Refusal},
    qp::State,
    wire::{NakCode, Operation as Op, Syndrome},
    work::{Data, Remote, SendFlags, SendWr, WcStatus},
};

use crate::common::{Half, Options, Pair, Pkt, Side, ack, all_ok, nak, pattern, pkt};

fn response(operation: Op, psn: u32, bytes: &[u8]) -> Pkt {
    match operation {
        Op::ReadResponseMiddle => pkt(operation, psn).payload(bytes),
        _ => pkt(operation, psn).aeth(Syndrome::ACK, 1).payload(bytes),
    }
}

const FAR: Remote = Remote { address: 0x5000, rkey: roce_transport::mem::RKey(0x1234) };

#[test]
fn a_request_names_everything_and_takes_the_psns_of_its_responses() {
    let mut half = Half::new(Options { mtu: Mtu::B256, ..Options::default() });
    let to = half.buffer(600);
    half.post_send(&SendWr::read(1, FAR, to.all()));
    half.post_send(&SendWr::send(2, Data::empty()));
    half.expect(&[
        pkt(Op::ReadRequest, 0x100).reth(FAR, 600).ask(),
        pkt(Op::SendOnly, 0x103).ask(),
    ]);
    let bytes = pattern(1, 600);
    half.send(&response(Op::ReadResponseFirst, 0x100, &bytes[..256]));
    half.send(&response(Op::ReadResponseMiddle, 0x101, &bytes[256..512]));
    assert_eq!(half.qp.sent(), []);
    let last = half.send(&response(Op::ReadResponseLast, 0x102, &bytes[512..]));
    assert_eq!(last, Disposition::Acknowledged { completed: 1 });
    assert_eq!(half.qp.send_outcomes(), all_ok([1], 600));
    assert_eq!(to.bytes(), bytes);
}

#[test]
fn no_more_than_agreed_on_at_once() {
    let mut half = Half::new(Options { max_rd_atomic: 2, ..Options::default() });
    let to = half.buffer(8);
    for id in 0..5 {
        half.post_send(&SendWr::read(id, FAR, to.all()));
    }
    let read = |psn| pkt(Op::ReadRequest, psn).reth(FAR, 8).ask();
    half.expect(&[read(0x100), read(0x101)]);
    half.send(&response(Op::ReadResponseOnly, 0x100, &[1; 8]));
    half.expect(&[read(0x102)]);
    half.send(&response(Op::ReadResponseOnly, 0x101, &[1; 8]));
    half.send(&response(Op::ReadResponseOnly, 0x102, &[1; 8]));
    half.expect(&[read(0x103), read(0x104)]);
}

#[test]
fn requests_wait_behind_a_read() {
    let mut half = Half::new(Options { max_rd_atomic: 1, ..Options::default() });
    let to = half.buffer(8);
    half.post_send(&SendWr::read(1, FAR, to.all()));
    half.post_send(&SendWr::read(2, FAR, to.all()));
    half.post_send(&SendWr::send(3, Data::empty()));
    assert_eq!(half.take().len(), 1);
    half.send(&response(Op::ReadResponseOnly, 0x100, &[1; 8]));
    assert_eq!(half.take().len(), 2);
}

#[test]
fn a_fence_waits_for_reads_and_for_nothing_else() {
    let mut half = Half::new(Options::default());
    let to = half.buffer(8);
    half.post_send(&SendWr::send(0, Data::empty()));
    half.post_send(&SendWr::send(1, Data::empty()).with_flags(SendFlags::FENCE));
    assert_eq!(half.take().len(), 2, "a SEND holds up no fence");
    half.send(&ack(0x101, 2));
    half.post_send(&SendWr::read(2, FAR, to.all()));
    half.post_send(&SendWr::send(3, Data::empty()));
    half.post_send(&SendWr::send(4, Data::empty()).with_flags(SendFlags::FENCE));
    half.post_send(&SendWr::send(5, Data::empty()));
    assert_eq!(half.take().iter().map(|packet| packet.psn).collect::<Vec<_>>(), [0x102, 0x103]);
    half.send(&response(Op::ReadResponseOnly, 0x102, &[1; 8]));
    assert_eq!(half.take().iter().map(|packet| packet.psn).collect::<Vec<_>>(), [0x104, 0x105]);
}

#[test]
fn a_read_sees_what_an_earlier_write_wrote() {
    let (mut pair, a, _b) = Pair::connected(Options { mtu: Mtu::B256, ..Options::default() });
    let (near, back, far) = (pair.a.buffer(5000).fill(1), pair.a.buffer(5000), pair.b.buffer(5000));
    pair.post_send(&a, &SendWr::write(1, far.remote(0), near.all()));
    pair.post_send(&a, &SendWr::read(2, far.remote(0), back.all()));
    pair.run();
    assert_eq!(back.bytes(), near.bytes());
}

#[test]
fn a_response_acknowledges_what_came_before() {
    let mut half = Half::new(Options::default());
    let to = half.buffer(8);
    half.post_send(&SendWr::send(1, Data::empty()));
    half.post_send(&SendWr::read(2, FAR, to.all()));
    half.take();
    let disposition = half.send(&response(Op::ReadResponseOnly, 0x101, &[1; 8]));
    assert_eq!(disposition, Disposition::Acknowledged { completed: 2 });
    assert_eq!(half.qp.send_outcomes(), [(1, Ok(0)), (2, Ok(8))]);
}

#[test]
fn a_later_acknowledgement_is_an_implied_nak() {
    let mut half = Half::new(Options::default());
    let to = half.buffer(8);
    half.post_send(&SendWr::read(1, FAR, to.all()));
    half.post_send(&SendWr::send(2, Data::empty()));
    let packets = half.take();
    half.send(&ack(0x101, 2));
    assert_eq!(half.qp.sent(), []);
    half.expect(&packets);
    half.send(&ack(0x101, 2));
    half.expect_nothing();
    half.send(&response(Op::ReadResponseOnly, 0x100, &[7; 8]));
    half.send(&ack(0x101, 2));
    assert_eq!(half.qp.send_outcomes(), [(1, Ok(8)), (2, Ok(0))]);
    assert_eq!(to.bytes(), [7; 8]);
    assert_eq!(half.node.adapter.counters().implied_naks, 1);
}

#[test]
fn an_acknowledgement_is_no_data() {
    let mut half = Half::new(Options::default());
    let to = half.buffer(8);
    half.post_send(&SendWr::read(1, FAR, to.all()));
    half.take();
    half.send(&ack(0x100, 1));
    assert_eq!(half.qp.sent(), []);
}

#[test]
fn what_is_missing_is_asked_for_again_and_no_more() {
    let mut half = Half::new(Options { mtu: Mtu::B256, ..Options::default() });
    let to = half.buffer(1000);
    let bytes = pattern(1, 1000);
    half.post_send(&SendWr::read(1, FAR, to.all()));
    half.take();
    half.send(&response(Op::ReadResponseFirst, 0x100, &bytes[..256]));
    let gap = half.send(&response(Op::ReadResponseMiddle, 0x102, &bytes[512..768]));
    assert_eq!(gap, Disposition::Dropped(DropReason::ReadResponseGap));
    half.send(&response(Op::ReadResponseLast, 0x103, &bytes[768..]));
    let rest = Remote { address: FAR.address + 256, ..FAR };
    half.expect(&[pkt(Op::ReadRequest, 0x101).reth(rest, 744).ask()]);
    // a new response starts with FIRST
    half.send(&response(Op::ReadResponseFirst, 0x101, &bytes[256..512]));
    half.send(&response(Op::ReadResponseMiddle, 0x102, &bytes[512..768]));
    half.send(&response(Op::ReadResponseLast, 0x103, &bytes[768..]));
    assert_eq!(half.qp.send_outcomes(), all_ok([1], 1000));
    assert_eq!(to.bytes(), bytes);
}

/// rxe continues the first response.
#[test]
fn a_response_that_goes_on_with_middle_or_last_is_taken() {
    for missing in [1u32, 3] {
        let mut half = Half::new(Options { mtu: Mtu::B256, timeout: 8, ..Options::default() });
        let to = half.buffer(1000);
        let bytes = pattern(1, 1000);
        let part = |index: u32| &bytes[index as usize * 256..1000.min(index as usize * 256 + 256)];
        let operation = |index| match index {
            0 => Op::ReadResponseFirst,
            3 => Op::ReadResponseLast,
            _ => Op::ReadResponseMiddle,
        };
        half.post_send(&SendWr::read(1, FAR, to.all()));
        half.take();
        for index in 0..missing {
            half.send(&response(operation(index), 0x100 + index, part(index)));
        }
        half.advance(roce_transport::time::ack_timeout(8).unwrap());
        assert_eq!(half.take()[0].psn, 0x100 + missing);
        for index in missing..4 {
            half.send(&response(operation(index), 0x100 + index, part(index)));
        }
        assert_eq!(half.qp.send_outcomes(), all_ok([1], 1000));
        assert_eq!(to.bytes(), bytes);
    }
}

#[test]
fn a_response_that_does_not_fit_is_a_bad_response() {
    for (operation, length) in [
        (Op::ReadResponseOnly, 256),
        (Op::ReadResponseLast, 256),
        (Op::ReadResponseFirst, 255),
        (Op::ReadResponseFirst, 0),
        (Op::ReadResponseMiddle, 260),
    ] {
        let mut half = Half::new(Options { mtu: Mtu::B256, ..Options::default() });
        let to = half.buffer(600);
        half.post_send(&SendWr::read(1, FAR, to.all()));
        half.post_send(&SendWr::send(2, Data::empty()));
        half.take();
        half.send(&response(operation, 0x100, &vec![1; length]));
        let outcomes = half.qp.send_outcomes();
        assert_eq!(
            outcomes,
            [(1, Err(WcStatus::BadRespErr)), (2, Err(WcStatus::WrFlushErr))],
            "{operation:?} [{length}]"
        );
        assert_eq!(half.state(), State::Err);
    }
}

#[test]
fn a_response_to_a_send_is_dropped() {
    let mut half = Half::with_sent(1);
    let disposition = half.send(&response(Op::ReadResponseOnly, 0x100, &[1; 8]));
    assert_eq!(disposition, Disposition::Dropped(DropReason::UnexpectedResponse));
    let disposition = half.send(&pkt(Op::AtomicAcknowledge, 0x100).atomic_ack(1, 1));
    assert_eq!(disposition, Disposition::Dropped(DropReason::UnexpectedResponse));
    assert_eq!(half.qp.sent(), []);
}

#[test]
fn more_reads_than_agreed_on_are_an_invalid_request() {
    for agreed in [0u8, 1, 2] {
        let mut half = Half::new(Options { max_dest_rd_atomic: agreed, ..Options::default() });
        let from = half.buffer(8);
        for index in 0..u32::from(agreed) {
            assert_eq!(
                half.send(&pkt(Op::ReadRequest, 0x200 + index).reth(from.remote(0), 8)),
                Disposition::Executed
            );
        }
        let psn = 0x200 + u32::from(agreed);
        let disposition = half.send(&pkt(Op::ReadRequest, psn).reth(from.remote(0), 8));
        let syndrome = Syndrome::Nak(NakCode::InvalidRequest);
        assert_eq!(disposition, Disposition::Refused(syndrome, Refusal::TooManyReads));
        assert_eq!(half.take().last(), Some(&nak(NakCode::InvalidRequest, psn, agreed.into())));
        assert_eq!(half.state(), State::Err);
    }
}

/// The requester has the first response.
#[test]
fn a_repeat_takes_no_place_of_a_new_read() {
    let mut half = Half::new(Options { max_dest_rd_atomic: 1, ..Options::default() });
    let from = half.buffer(8).fill(1);
    let read = |psn| pkt(Op::ReadRequest, psn).reth(from.remote(0), 8);
    half.send(&read(0x200));
    assert_eq!(half.take().len(), 1);
    assert_eq!(half.send(&read(0x200)), Disposition::Duplicate);
    assert_eq!(half.send(&read(0x201)), Disposition::Executed);
    assert_eq!(half.take().iter().map(|packet| packet.psn).collect::<Vec<_>>(), [0x200, 0x201]);
}

/// One READ may exceed the window, which counts responses.
#[test]
fn a_read_longer_than_the_window_works() {
    let (mut pair, a, _b) = Pair::connected(Options { mtu: Mtu::B256, ..Options::default() });
    let (near, far) = (pair.a.buffer(300_000), pair.b.buffer(300_000).fill(1));
    pair.post_send(&a, &SendWr::read(1, far.remote(0), near.all()));
    pair.post_send(&a, &SendWr::write(2, far.remote(0), near.sge(0, 0)));
    pair.run();
    assert_eq!(a.send_outcomes(), [(1, Ok(300_000)), (2, Ok(0))]);
    assert_eq!(near.bytes(), far.bytes());
    assert_eq!(pair.trace.count(Side::A, Op::ReadRequest), 1);
}
