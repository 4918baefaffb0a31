//! Atomics change a word exactly once (9.4.5, 9.7.5.1.4).

use roce_transport::{
    event::{Disposition, DropReason, Refusal},
    mem::Access,
    wire::{NakCode, Operation as Op, Syndrome},
    work::{Data, Remote, SendFlags, SendWr, WcOpcode, WcStatus},
};

use crate::common::{AFTER_ONE_LOSS, ALL_RIGHTS, Buffer, Half, Options, Pair, Side, ack, nak, pkt};

fn word(buffer: &Buffer, index: usize) -> u64 {
    u64::from_ne_bytes(buffer.part(index * 8, 8).try_into().unwrap())
}

fn set(buffer: &Buffer, index: usize, value: u64) {
    buffer.put(index * 8, &value.to_ne_bytes());
}

const FAR: Remote = Remote { address: 0x5000, rkey: roce_transport::mem::RKey(0x1234) };

#[test]
fn each_finds_what_was_there_before() {
    let (mut pair, a, _b) = Pair::connected(Options::default());
    let (near, far) = (pair.a.buffer(40), pair.b.buffer(16));
    set(&far, 1, u64::MAX - 1);
    pair.post_send(&a, &SendWr::fetch_add(1, far.remote(8), 3, near.sge(0, 8)));
    pair.post_send(
        &a,
        &SendWr::compare_swap(2, far.remote(8), 1, 0x1122_3344_5566_7788, near.sge(8, 8)),
    );
    pair.post_send(&a, &SendWr::compare_swap(3, far.remote(8), 1, 99, near.sge(16, 8)));
    pair.post_send(&a, &SendWr::fetch_add(4, far.remote(8), 0, [near.sge(24, 3), near.sge(32, 5)]));
    pair.run();
    let swapped = 0x1122_3344_5566_7788;
    assert_eq!((word(&far, 0), word(&far, 1)), (0, swapped));
    assert_eq!((word(&near, 0), word(&near, 1), word(&near, 2)), (u64::MAX - 1, 1, swapped));
    assert_eq!(
        [near.part(24, 3), near.part(32, 5)].concat(),
        swapped.to_ne_bytes(),
        "the value found may be scattered"
    );
    let opcodes: Vec<_> =
        a.sent().iter().map(|wc| wc.result.map(|ok| (ok.opcode, ok.byte_len))).collect();
    let (swap, add) = (Ok((WcOpcode::CompSwap, 8)), Ok((WcOpcode::FetchAdd, 8)));
    assert_eq!(opcodes, [add, swap, swap, add]);
}

#[test]
fn requests_and_responses_on_the_wire() {
    let mut half = Half::new(Options::default());
    let near = half.buffer(16);
    half.post_send(&SendWr::compare_swap(1, FAR, 5, 6, near.sge(0, 8)));
    half.post_send(&SendWr::fetch_add(2, FAR, 7, near.sge(8, 8)));
    half.expect(&[
        pkt(Op::CmpSwap, 0x100).atomic(FAR, 6, 5).ask(),
        pkt(Op::FetchAdd, 0x101).atomic(FAR, 7, 0).ask(),
    ]);
    let done = half.send(&pkt(Op::AtomicAcknowledge, 0x100).atomic_ack(1, 41));
    assert_eq!(done, Disposition::Acknowledged { completed: 1 });
    assert_eq!(half.qp.send_outcomes(), [(1, Ok(8))]);
    half.send(&pkt(Op::AtomicAcknowledge, 0x101).atomic_ack(2, 42));
    assert_eq!((word(&near, 0), word(&near, 1)), (41, 42));

    let far = half.buffer(8);
    set(&far, 0, 10);
    half.send(&pkt(Op::FetchAdd, 0x200).atomic(far.remote(0), 5, 0).ask());
    half.expect(&[pkt(Op::AtomicAcknowledge, 0x200).atomic_ack(1, 10)]);
    half.send(&pkt(Op::CmpSwap, 0x201).atomic(far.remote(0), 77, 15));
    half.expect(&[pkt(Op::AtomicAcknowledge, 0x201).atomic_ack(2, 15)]);
    assert_eq!(word(&far, 0), 77);
}

#[test]
fn a_repeat_gets_a_response_and_is_not_executed() {
    let mut half = Half::new(Options::default());
    let far = half.buffer(8);
    let add = pkt(Op::FetchAdd, 0x200).atomic(far.remote(0), 5, 0);
    let swap = pkt(Op::CmpSwap, 0x201).atomic(far.remote(0), 9, 5);
    half.send(&add);
    half.send(&swap);
    let responses = half.take();
    for _ in 0..3 {
        assert_eq!(half.send(&add), Disposition::Duplicate);
        assert_eq!(half.send(&swap), Disposition::Duplicate);
        // only the message sequence number is current
        assert_eq!(half.take().iter().map(|packet| packet.psn).collect::<Vec<_>>(), [0x200, 0x201]);
    }
    assert_eq!((word(&far, 0), responses.len()), (9, 2));
}

/// rxe sends buffer garbage there.
#[test]
fn the_unused_field_of_a_repeat_does_not_matter() {
    let mut half = Half::new(Options::default());
    let far = half.buffer(8);
    half.send(&pkt(Op::FetchAdd, 0x200).atomic(far.remote(0), 5, 0xDEAD));
    half.take();
    assert_eq!(
        half.send(&pkt(Op::FetchAdd, 0x200).atomic(far.remote(0), 5, 0xBEEF)),
        Disposition::Duplicate
    );
    half.expect(&[pkt(Op::AtomicAcknowledge, 0x200).atomic_ack(1, 0)]);
}

#[test]
fn another_request_with_the_same_psn_is_no_repeat() {
    let mut half = Half::new(Options::default());
    let far = half.buffer(16);
    half.send(&pkt(Op::CmpSwap, 0x200).atomic(far.remote(0), 5, 0));
    half.take();
    let missing = Disposition::Dropped(DropReason::ReplayMissing);
    for other in [
        pkt(Op::CmpSwap, 0x200).atomic(far.remote(8), 5, 0),
        pkt(Op::CmpSwap, 0x200).atomic(far.remote(0), 6, 0),
        pkt(Op::CmpSwap, 0x200).atomic(far.remote(0), 5, 1),
        pkt(Op::FetchAdd, 0x200).atomic(far.remote(0), 5, 0),
        pkt(Op::ReadRequest, 0x200).reth(far.remote(0), 8),
        pkt(Op::CmpSwap, 0x1FF).atomic(far.remote(0), 5, 0),
    ] {
        assert_eq!(half.send(&other), missing, "{other:?}");
    }
    half.expect_nothing();
}

#[test]
fn exactly_once_under_loss() {
    for lost in [
        "drop request nth 1",
        "drop response nth 1",
        "drop request nth 3",
        "drop response nth 3",
        "drop every 3",
    ] {
        let mut pair = Pair::new();
        pair.allow_all(AFTER_ONE_LOSS);
        let (a, _b) =
            pair.connect(Options { max_rd_atomic: 4, max_dest_rd_atomic: 4, ..Options::default() });
        let (near, far) = (pair.a.buffer(80), pair.b.buffer(8));
        pair.fault(lost);
        for id in 0..10 {
            pair.post_send(
                &a,
                &SendWr::fetch_add(id, far.remote(0), 1, near.sge(id as usize * 8, 8)),
            );
        }
        pair.run();
        assert_eq!(a.send_outcomes().len(), 10, "{lost}");
        assert_eq!(
            (0..10).map(|i| word(&near, i)).collect::<Vec<_>>(),
            (0..10).collect::<Vec<u64>>(),
            "{lost}"
        );
        assert_eq!(word(&far, 0), 10, "{lost}");
    }
}

/// Atomics count as READs and hold up a fence.
#[test]
fn slots_and_fence() {
    let mut half = Half::new(Options { max_rd_atomic: 1, ..Options::default() });
    let near = half.buffer(8);
    half.post_send(&SendWr::fetch_add(1, FAR, 1, near.all()));
    half.post_send(&SendWr::read(2, FAR, near.all()));
    half.post_send(&SendWr::send(3, Data::empty()).with_flags(SendFlags::FENCE));
    assert_eq!(half.take().len(), 1);
    half.send(&pkt(Op::AtomicAcknowledge, 0x100).atomic_ack(1, 0));
    assert_eq!(half.take().len(), 1);
    half.send(&pkt(Op::ReadResponseOnly, 0x101).aeth(Syndrome::ACK, 2).payload(&[0; 8]));
    half.expect(&[pkt(Op::SendOnly, 0x102).ask()]);
}

#[test]
fn the_wrong_kind_of_response() {
    for response in [
        pkt(Op::ReadResponseOnly, 0x100).aeth(Syndrome::ACK, 1).payload(&[0; 8]),
        pkt(Op::ReadResponseMiddle, 0x100).payload(&[0; 8]),
    ] {
        let mut half = Half::new(Options::default());
        let near = half.buffer(8);
        half.post_send(&SendWr::fetch_add(1, FAR, 1, near.all()));
        half.take();
        half.send(&response);
        assert_eq!(half.qp.send_outcomes(), [(1, Err(WcStatus::BadRespErr))]);
    }
    let mut half = Half::new(Options::default());
    let near = half.buffer(8);
    half.post_send(&SendWr::read(1, FAR, near.all()));
    half.take();
    half.send(&pkt(Op::AtomicAcknowledge, 0x100).atomic_ack(1, 1));
    assert_eq!(half.qp.send_outcomes(), [(1, Err(WcStatus::BadRespErr))]);
}

#[test]
fn an_acknowledgement_is_no_response() {
    let mut half = Half::new(Options::default());
    let near = half.buffer(8);
    half.post_send(&SendWr::fetch_add(1, FAR, 1, near.all()));
    let packets = half.take();
    half.send(&ack(0x100, 1));
    assert_eq!(half.qp.sent(), []);
    half.expect(&packets);
}

#[test]
fn what_is_refused() {
    let all = ALL_RIGHTS;
    for (granted, rights, offset, code, refusal) in [
        (
            Access::REMOTE_READ | Access::REMOTE_WRITE,
            all,
            0,
            NakCode::InvalidRequest,
            Some(Refusal::NotEnabled),
        ),
        (all - Access::LOCAL_WRITE, all, 4, NakCode::InvalidRequest, Some(Refusal::Misaligned)),
        (
            all - Access::LOCAL_WRITE,
            all - Access::REMOTE_ATOMIC,
            0,
            NakCode::RemoteAccessError,
            None,
        ),
        (all - Access::LOCAL_WRITE, all, 16, NakCode::RemoteAccessError, None),
    ] {
        let mut half = Half::new(Options { access: granted, ..Options::default() });
        let far = half.node.buffer_with(16, rights);
        let disposition = half.send(&pkt(Op::FetchAdd, 0x200).atomic(far.remote(offset), 1, 0));
        let Disposition::Refused(syndrome, why) = disposition else { panic!("{disposition:?}") };
        assert_eq!(syndrome, Syndrome::Nak(code));
        assert!(refusal.is_none_or(|refusal| refusal == why), "{why:?}");
        half.expect(&[nak(code, 0x200, 0)]);
        assert_eq!(far.bytes(), [0; 16]);
    }
}

/// The old value needs eight bytes.
#[test]
fn a_list_of_another_length() {
    for length in [0, 7, 9] {
        let mut half = Half::new(Options::default());
        let near = half.buffer(16);
        half.post_send(&SendWr::fetch_add(1, FAR, 1, near.sge(0, length)));
        half.expect_nothing();
        assert_eq!(half.qp.send_outcomes(), [(1, Err(WcStatus::LocLenErr))]);
    }
}

#[test]
fn from_two_sides() {
    let mut pair = Pair::new();
    let ends: Vec<_> = (0..2).map(|_| pair.connect(Options::default()).0).collect();
    let (near, far) = (pair.a.buffer(8), pair.b.buffer(8));
    for id in 0..50 {
        for end in &ends {
            pair.post_send(end, &SendWr::fetch_add(id, far.remote(0), 1, near.all()));
        }
    }
    pair.run();
    assert_eq!(word(&far, 0), 100);
    assert_eq!(pair.trace.count(Side::B, Op::AtomicAcknowledge), 100);
}
