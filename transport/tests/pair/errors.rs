//! Fatal errors: NAK codes, completions, events (9.7.4.1, 9.9.2, 9.9.3).

use std::time::Duration;

use roce_transport::{
    addr::Mtu,
    event::{Disposition, DropReason, Event, Refusal},
    mem::{Access, AccessError, LKey, RKey},
    qp::State,
    wire::{NakCode, Operation as Op, Syndrome},
    work::{Cause, Data, RecvWr, Remote, SendWr, Sge, WcError, WcStatus},
};

use crate::common::{
    ALL_RIGHTS, Buffer, Half, NULL_REMOTE, Options, Outcome, Pair, Pkt, Side, nak, outcomes, pkt,
};

const FLUSHED: Result<u32, WcStatus> = Err(WcStatus::WrFlushErr);

#[derive(Debug)]
struct Refused {
    code: NakCode,
    status: WcStatus,
    event: Event,
}

impl Refused {
    /// Posts A's request third, among others.
    fn check(
        mut pair: Pair,
        a: &crate::common::End,
        b: &crate::common::End,
        bad: &SendWr,
        expected: impl Fn(&Pair) -> Self,
        what: &str,
    ) {
        let local = pair.a.buffer(16);
        for id in 1..=2 {
            pair.post_send(a, &SendWr::write(id, NULL_REMOTE, Data::empty()));
        }
        pair.post_send(a, bad);
        pair.post_send(a, &SendWr::send(4, local.all()));
        pair.post_recv(a, &RecvWr::new(5, []));
        pair.post_recv(b, &RecvWr::new(6, []));
        pair.allow(DropReason::QpState);
        pair.run();
        let expected = expected(&pair);
        let response = pair.trace.from(Side::B).last().unwrap();
        assert_eq!(
            response.headers.ext().aeth().unwrap().syndrome,
            Syndrome::Nak(expected.code),
            "{what}"
        );
        assert_eq!(response.psn(), 0x102, "{what}: a NAK has the PSN of the refused request");
        let outcomes: [Outcome; 4] =
            [(1, Ok(0)), (2, Ok(0)), (bad.wr_id, Err(expected.status)), (4, FLUSHED)];
        assert_eq!(a.send_outcomes(), outcomes, "{what}");
        assert_eq!(a.recv_outcomes(), [(5, FLUSHED)], "{what}");
        assert_eq!(b.recv_outcomes(), [(6, FLUSHED)], "{what}");
        assert_eq!((pair.state(a), pair.state(b)), (State::Err, State::Err), "{what}");
        assert_eq!(
            pair.events(Side::B),
            [expected.event],
            "{what}: no completion tells B what happened"
        );
        assert_eq!(pair.events(Side::A), [], "{what}: a completion has told A");
    }
}

#[test]
fn access_that_the_region_does_not_allow() {
    let full = Access::LOCAL_WRITE | Access::REMOTE_READ | Access::REMOTE_WRITE;
    type Target = fn(&mut Pair) -> (Remote, u32);
    type Reason = fn(Remote, Access) -> AccessError;
    let unknown: Reason = |remote, _| AccessError::UnknownKey(remote.rkey.0);
    let (bounds_of_7, bounds): (Reason, Reason) = (beyond::<7>, beyond::<64>);
    let cases: [(&str, Target, Reason); 9] = [
        ("no such key", |_| (Remote { address: 0x10_0000, rkey: RKey(0xBAD) }, 8), unknown),
        (
            "the L_Key",
            |pair| {
                let buffer = pair.b.buffer(8);
                (Remote { rkey: RKey(buffer.region.lkey().0), ..buffer.remote(0) }, 8)
            },
            |remote, _| AccessError::LocalKey(remote.rkey.0),
        ),
        (
            "another protection domain",
            |pair| {
                let pd = pair.b.adapter.alloc_pd().unwrap();
                let all = Access::LOCAL_WRITE | Access::REMOTE_READ | Access::REMOTE_WRITE;
                (pair.b.buffer_in(pd, 8, all).remote(0), 8)
            },
            |remote, _| AccessError::ProtectionDomain(remote.rkey.0),
        ),
        (
            "no right",
            |pair| (pair.b.buffer_with(8, Access::LOCAL_WRITE).remote(0), 8),
            |remote, needed| AccessError::Rights { key: remote.rkey.0, needed },
        ),
        ("one byte too many", |pair| (pair.b.buffer(7).remote(0), 8), bounds_of_7),
        (
            "before the start",
            |pair| {
                let buffer = pair.b.buffer(64);
                (Remote { address: buffer.region.address() - 1, ..buffer.remote(0) }, 8)
            },
            bounds,
        ),
        ("past the end", |pair| (pair.b.buffer(64).remote(65), 8), bounds),
        (
            "past the end of the address space",
            |pair| {
                let buffer = pair.b.buffer(64);
                (Remote { address: u64::MAX - 3, ..buffer.remote(0) }, 8)
            },
            bounds,
        ),
        (
            "deregistered",
            |pair| {
                let buffer = pair.b.buffer(8);
                pair.b.adapter.deregister(&buffer.region).unwrap();
                (buffer.remote(0), 8)
            },
            |remote, _| AccessError::Deregistered(remote.rkey.0),
        ),
    ];
    for (what, target, reason) in cases {
        for write in [true, false] {
            let mut pair = Pair::new();
            let (a, b) =
                pair.connect(Options { access: full - Access::LOCAL_WRITE, ..Options::default() });
            let local = pair.a.buffer(8);
            let (remote, length) = target(&mut pair);
            let sge = local.sge(0, length as usize);
            let (bad, needed) = if write {
                (SendWr::write(3, remote, sge), Access::REMOTE_WRITE)
            } else {
                (SendWr::read(3, remote, sge), Access::REMOTE_READ)
            };
            Refused::check(
                pair,
                &a,
                &b,
                &bad,
                move |pair| Refused {
                    code: NakCode::RemoteAccessError,
                    status: WcStatus::RemAccessErr,
                    event: Event::QpAccessError(
                        qpn_of_b(pair),
                        Refusal::Access(reason(remote, needed)),
                    ),
                },
                what,
            );
        }
    }
}

/// 8 bytes out of bounds.
fn beyond<const SIZE: u64>(remote: Remote, _: Access) -> AccessError {
    let Remote { address, rkey } = remote;
    AccessError::Bounds { key: rkey.0, address, length: 8, start: 0x10_0000, size: SIZE }
}

fn qpn_of_b(pair: &Pair) -> roce_transport::addr::Qpn {
    pair.trace.from(Side::A).next().unwrap().headers.bth().dest_qp
}

#[test]
fn access_that_the_queue_pair_does_not_allow() {
    for (granted, write) in
        [(Access::REMOTE_READ, true), (Access::REMOTE_WRITE, false), (Access::empty(), false)]
    {
        // 0 bytes need the right, but no key
        for length in [8, 0] {
            let mut pair = Pair::new();
            // A's first two WRITEs must pass, unless denied
            let (a, b) = pair.connect(Options { access: granted, ..Options::default() });
            let (local, far) = (pair.a.buffer(8), pair.b.buffer(8));
            let sge = local.sge(0, length);
            let bad = if write {
                SendWr::write(3, far.remote(0), sge)
            } else {
                SendWr::read(3, far.remote(0), sge)
            };
            pair.post_send(&a, &bad);
            pair.run();
            let response = pair.trace.from(Side::B).last().unwrap();
            assert_eq!(
                response.headers.ext().aeth().unwrap().syndrome,
                Syndrome::Nak(NakCode::InvalidRequest)
            );
            assert_eq!(a.send_outcomes(), [(3, Err(WcStatus::RemInvReqErr))]);
            assert_eq!(pair.events(Side::B), [Event::QpRequestError(b.qpn, Refusal::NotEnabled)]);
        }
    }
}

/// The last packet of each list is refused.
#[test]
fn opcodes_out_of_order_and_wrong_lengths_are_invalid_requests() {
    let mtu = [1; 256];
    let reth = |packet: Pkt, to: &Buffer, length: u32| packet.reth(to.remote(0), length);
    type Packets = fn(&Buffer, &[u8], &dyn Fn(Pkt, &Buffer, u32) -> Pkt) -> Vec<Pkt>;
    let cases: [(&str, Refusal, Packets); 22] = [
        ("SEND middle first", Refusal::OpcodeOrder, |_, mtu, _| {
            vec![pkt(Op::SendMiddle, 0).payload(mtu)]
        }),
        ("SEND last first", Refusal::OpcodeOrder, |_, _, _| {
            vec![pkt(Op::SendLast, 0).payload(b"x")]
        }),
        ("WRITE middle first", Refusal::OpcodeOrder, |_, mtu, _| {
            vec![pkt(Op::WriteMiddle, 0).payload(mtu)]
        }),
        ("WRITE last first", Refusal::OpcodeOrder, |_, _, _| {
            vec![pkt(Op::WriteLast, 0).payload(b"x")]
        }),
        ("WRITE last with immediate first", Refusal::OpcodeOrder, |_, _, _| {
            vec![pkt(Op::WriteLastImm, 0).imm([0; 4]).payload(b"x")]
        }),
        ("SEND in a SEND", Refusal::OpcodeOrder, |_, mtu, _| {
            vec![pkt(Op::SendFirst, 0).payload(mtu), pkt(Op::SendOnly, 0)]
        }),
        ("SEND first twice", Refusal::OpcodeOrder, |_, mtu, _| {
            vec![pkt(Op::SendFirst, 0).payload(mtu), pkt(Op::SendFirst, 0).payload(mtu)]
        }),
        ("WRITE in a SEND", Refusal::OpcodeOrder, |to, mtu, reth| {
            vec![pkt(Op::SendFirst, 0).payload(mtu), reth(pkt(Op::WriteOnly, 0), to, 0)]
        }),
        ("WRITE last in a SEND", Refusal::OpcodeOrder, |_, mtu, _| {
            vec![pkt(Op::SendFirst, 0).payload(mtu), pkt(Op::WriteLast, 0).payload(b"x")]
        }),
        ("SEND last in a WRITE", Refusal::OpcodeOrder, |to, mtu, reth| {
            vec![
                reth(pkt(Op::WriteFirst, 0), to, 257).payload(mtu),
                pkt(Op::SendLast, 0).payload(b"x"),
            ]
        }),
        ("READ in a WRITE", Refusal::OpcodeOrder, |to, mtu, reth| {
            vec![
                reth(pkt(Op::WriteFirst, 0), to, 257).payload(mtu),
                reth(pkt(Op::ReadRequest, 0), to, 1),
            ]
        }),
        ("READ in a SEND", Refusal::OpcodeOrder, |to, mtu, reth| {
            vec![pkt(Op::SendFirst, 0).payload(mtu), reth(pkt(Op::ReadRequest, 0), to, 1)]
        }),
        ("SEND first too short", Refusal::Length, |_, mtu, _| {
            vec![pkt(Op::SendFirst, 0).payload(&mtu[1..])]
        }),
        ("SEND only too long", Refusal::Length, |_, mtu, _| {
            vec![pkt(Op::SendOnly, 0).payload(&[mtu, b"x"].concat())]
        }),
        ("SEND last empty", Refusal::Length, |_, mtu, _| {
            vec![pkt(Op::SendFirst, 0).payload(mtu), pkt(Op::SendLast, 0)]
        }),
        ("SEND middle too short", Refusal::Length, |_, mtu, _| {
            vec![pkt(Op::SendFirst, 0).payload(mtu), pkt(Op::SendMiddle, 0).payload(&mtu[1..])]
        }),
        ("WRITE only shorter than it says", Refusal::Length, |to, _, reth| {
            vec![reth(pkt(Op::WriteOnly, 0), to, 5).payload(b"four")]
        }),
        ("WRITE only longer than it says", Refusal::Length, |to, _, reth| {
            vec![reth(pkt(Op::WriteOnly, 0), to, 3).payload(b"four")]
        }),
        ("WRITE first that is all of it", Refusal::Length, |to, mtu, reth| {
            vec![reth(pkt(Op::WriteFirst, 0), to, 256).payload(mtu)]
        }),
        ("WRITE last longer than it says", Refusal::Length, |to, mtu, reth| {
            vec![
                reth(pkt(Op::WriteFirst, 0), to, 257).payload(mtu),
                pkt(Op::WriteLast, 0).payload(b"xx"),
            ]
        }),
        ("READ with a payload", Refusal::Length, |to, _, reth| {
            vec![reth(pkt(Op::ReadRequest, 0), to, 1).payload(b"four")]
        }),
        ("READ of more than 2^30 bytes", Refusal::Length, |to, _, reth| {
            vec![reth(pkt(Op::ReadRequest, 0), to, (1 << 30) + 1)]
        }),
    ];
    for (what, refusal, packets) in cases {
        let mut half = Half::new(Options { mtu: Mtu::B256, ..Options::default() });
        let to = half.buffer(1024);
        half.post_recvs(0..2, &[to.all()]);
        let packets = packets(&to, &mtu, &reth);
        let mut psn = 0x200;
        for packet in &packets[..packets.len() - 1] {
            assert_eq!(half.send(&Pkt { psn, ..packet.clone() }), Disposition::Executed, "{what}");
            psn += 1;
        }
        let disposition = half.send(&Pkt { psn, ..packets.last().unwrap().clone() });
        let syndrome = Syndrome::Nak(NakCode::InvalidRequest);
        assert_eq!(disposition, Disposition::Refused(syndrome, refusal), "{what}");
        half.expect(&[nak(NakCode::InvalidRequest, psn, 0)]);
        assert_eq!(half.state(), State::Err, "{what}");
        let received = half.qp.recv_outcomes();
        if packets.len() > 1 && packets[0].operation == Op::SendFirst {
            assert_eq!(received, [(0, Err(WcStatus::RemInvReqErr)), (1, FLUSHED)], "{what}");
            assert_eq!(half.node.events, []);
        } else {
            assert_eq!(received, [(0, FLUSHED), (1, FLUSHED)], "{what}");
            assert!(
                matches!(half.node.events[..], [Event::QpRequestError(qpn, _)] if qpn == half.qp.qpn),
                "{what}"
            );
        }
        half.send(&Pkt { psn, ..packets[0].clone() });
        half.expect_nothing();
    }
}

/// The specified code is invalid request; only the receiver knows the reason.
#[test]
fn a_message_longer_than_the_buffer() {
    for length in [101, 300, 600] {
        let (mut pair, a, b) = Pair::connected(Options { mtu: Mtu::B256, ..Options::default() });
        pair.allow(DropReason::QpState);
        let (near, far) = (pair.a.buffer(length), pair.b.buffer(4096));
        pair.post_recv(&b, &RecvWr::new(5, [far.sge(0, 60), far.sge(60, 40)]));
        pair.post_recv(&b, &RecvWr::new(6, [far.all()]));
        pair.post_send(&a, &SendWr::send(1, near.all()));
        pair.run();
        assert_eq!(a.send_outcomes(), [(1, Err(WcStatus::RemInvReqErr))]);
        let received = b.received();
        assert_eq!(received[0].result.unwrap_err().status, WcStatus::LocLenErr);
        let refusal = Refusal::BufferTooSmall { received: length.min(256) as u64, buffer: 100 };
        assert_eq!(received[0].result.unwrap_err().cause, Cause::Refused(refusal));
        assert_eq!(received[1].result.unwrap_err().status, WcStatus::WrFlushErr);
        assert_eq!(far.part(100, 100), [0; 100], "nothing is written past the end");
    }
}

#[test]
fn a_receive_buffer_that_cannot_be_written() {
    type Bad = fn(&mut Pair) -> Sge;
    let cases: [(&str, Bad); 5] = [
        ("no such key", |_| Sge { lkey: LKey(0xBAD), address: 0, length: 64 }),
        ("the R_Key", |pair| {
            let buffer = pair.b.buffer(64);
            Sge { lkey: LKey(buffer.region.rkey().0), ..buffer.all() }
        }),
        ("no right", |pair| pair.b.buffer_with(64, Access::REMOTE_READ).all()),
        ("out of bounds", |pair| Sge { length: 65, ..pair.b.buffer(64).all() }),
        ("another protection domain", |pair| {
            let pd = pair.b.adapter.alloc_pd().unwrap();
            pair.b.buffer_in(pd, 64, Access::LOCAL_WRITE).all()
        }),
    ];
    for (what, bad) in cases {
        let (mut pair, a, b) = Pair::connected(Options::default());
        let near = pair.a.buffer(8);
        let sge = bad(&mut pair);
        pair.post_recv(&b, &RecvWr::new(5, [sge]));
        pair.post_send(&a, &SendWr::send(1, near.all()));
        pair.run();
        assert_eq!(a.send_outcomes(), [(1, Err(WcStatus::RemOpErr))], "{what}");
        assert_eq!(b.recv_outcomes(), [(5, Err(WcStatus::LocProtErr))], "{what}");
        assert_eq!((pair.state(&a), pair.state(&b)), (State::Err, State::Err));
    }
}

/// rxe does the same: libfabric posts such receives without a key.
#[test]
fn a_receive_buffer_of_a_message_without_data_is_not_looked_at() {
    for connect in [Pair::connect, Pair::connect_unreliably] {
        let mut pair = Pair::new();
        let (a, b) = connect(&mut pair, Options::default());
        let near = pair.a.buffer(8);
        let bad = Sge { lkey: LKey(0), address: 0, length: 64 };
        for id in [5, 6] {
            pair.post_recv(&b, &RecvWr::new(id, [bad]));
        }
        pair.post_send(&a, &SendWr::send(1, near.sge(0, 0)));
        pair.run();
        assert_eq!(a.send_outcomes(), [(1, Ok(0))]);
        assert_eq!(b.recv_outcomes(), [(5, Ok(0))]);
        assert_eq!((pair.state(&a), pair.state(&b)), (State::Rts, State::Rts));
        pair.allow(DropReason::RequestRefused);
        pair.post_send(&a, &SendWr::send(2, near.all()));
        pair.run();
        assert_eq!(b.recv_outcomes(), [(6, Err(WcStatus::LocProtErr))]);
    }
}

#[test]
fn a_bad_send_buffer_fails_in_its_turn() {
    let (mut pair, a, b) = Pair::connected(Options { mtu: Mtu::B256, ..Options::default() });
    let (near, far) = (pair.a.buffer(2000).fill(1), pair.b.buffer(2000));
    let bad = Sge { lkey: LKey(0xBAD), address: 0, length: 8 };
    pair.post_send(&a, &SendWr::write(1, far.remote(0), near.all()));
    pair.post_send(&a, &SendWr::read(2, far.remote(0), near.all()));
    pair.post_send(&a, &SendWr::write(3, far.remote(0), bad));
    pair.post_send(&a, &SendWr::write(4, far.remote(0), near.all()));
    pair.run();
    let failed = Err(WcStatus::LocProtErr);
    assert_eq!(a.send_outcomes(), [(1, Ok(0)), (2, Ok(2000)), (3, failed), (4, FLUSHED)]);
    assert_eq!(
        (pair.state(&a), pair.state(&b)),
        (State::Err, State::Rts),
        "nothing of it was sent"
    );
}

/// Adapters also check SGEs after the peer's execution.
#[test]
fn a_bad_list_of_a_response_fails_when_that_comes() {
    type Bad = fn(&mut Pair) -> (Sge, AccessError);
    let cases: [(&str, Bad); 4] = [
        ("no such key", |_| {
            (Sge { lkey: LKey(0xBAD), address: 0, length: 8 }, AccessError::UnknownKey(0xBAD))
        }),
        ("another protection domain", |pair| {
            let pd = pair.a.adapter.alloc_pd().unwrap();
            let sge = pair.a.buffer_in(pd, 8, Access::LOCAL_WRITE).all();
            (sge, AccessError::ProtectionDomain(sge.lkey.0))
        }),
        ("no right", |pair| {
            let sge = pair.a.buffer_with(8, Access::REMOTE_READ).all();
            (sge, AccessError::Rights { key: sge.lkey.0, needed: Access::LOCAL_WRITE })
        }),
        ("past the end", |pair| {
            let sge = Sge { length: 8, ..pair.a.buffer(7).all() };
            let Sge { lkey: LKey(key), address, length } = sge;
            let (length, start, size) = (length.into(), address, 7);
            (sge, AccessError::Bounds { key, address, length, start, size })
        }),
    ];
    for (what, bad) in cases {
        for op in ["read", "fetch_add", "compare_swap"] {
            let mut pair = Pair::new();
            let (a, b) = pair.connect(Options { access: ALL_RIGHTS, ..Options::default() });
            let (near, far) = (pair.a.buffer(8), pair.b.buffer(16));
            let (bad, error) = bad(&mut pair);
            let wr = match op {
                "read" => SendWr::read(2, far.remote(0), bad),
                "fetch_add" => SendWr::fetch_add(2, far.remote(0), 5, bad),
                _ => SendWr::compare_swap(2, far.remote(0), 0, 5, bad),
            };
            pair.post_send(&a, &SendWr::read(1, far.remote(0), near.all()));
            pair.post_send(&a, &wr);
            pair.post_send(&a, &SendWr::write(3, far.remote(8), near.all()));
            pair.allow(DropReason::QpState); // its acknowledgement
            pair.run();
            let sent = a.sent();
            let error = WcError { status: WcStatus::LocProtErr, cause: Cause::Access(error) };
            assert_eq!(sent[1].result, Err(error), "{what}, {op}");
            assert_eq!(outcomes(sent)[2], (3, FLUSHED), "{what}, {op}");
            assert_eq!((pair.state(&a), pair.state(&b)), (State::Err, State::Rts));
            let carried_out = if op == "read" { [0; 8] } else { 5u64.to_ne_bytes() };
            assert_eq!(far.part(0, 8), carried_out, "{what}, {op}");
        }
    }
}

#[test]
fn both_keys_of_a_read_are_bad() {
    for op in ["read", "fetch_add"] {
        let mut pair = Pair::new();
        let (a, _b) = pair.connect(Options { access: ALL_RIGHTS, ..Options::default() });
        let near = Sge { lkey: LKey(0xBAD), address: 0, length: 8 };
        let far = Remote { address: 0x1000, rkey: RKey(0xBAD) };
        let wr = match op {
            "read" => SendWr::read(1, far, near),
            _ => SendWr::fetch_add(1, far, 1, near),
        };
        pair.post_send(&a, &wr);
        pair.run();
        assert_eq!(a.send_outcomes(), [(1, Err(WcStatus::RemAccessErr))], "{op}");
    }
}

#[test]
fn a_refused_write_with_immediate_data() {
    for length in [8, 0, 600] {
        let mut pair = Pair::new();
        let options = Options { mtu: Mtu::B256, access: ALL_RIGHTS, ..Options::default() };
        let (a, b) = pair.connect(options);
        let near = pair.a.buffer(600);
        let far = Remote { address: 0x1000, rkey: RKey(0xBAD) };
        pair.post_recv(&b, &RecvWr::new(1, []));
        pair.post_recv(&b, &RecvWr::new(2, []));
        let wr = SendWr::write(3, far, near.sge(0, length)).with_immediate([1; 4]);
        pair.post_send(&a, &wr);
        pair.allow(DropReason::QpState); // packets behind the first
        pair.run();
        let events = pair.events(Side::B);
        if length == 0 {
            assert_eq!(a.send_outcomes(), [(3, Ok(0))], "no bytes need no key");
            continue;
        }
        assert_eq!(a.send_outcomes(), [(3, Err(WcStatus::RemAccessErr))]);
        assert_eq!(b.recv_outcomes(), [(1, FLUSHED), (2, FLUSHED)]);
        let access = |event: &Event| matches!(event, Event::QpAccessError(..));
        assert!(events.iter().any(access), "{events:?}");
    }
}

#[test]
fn a_target_deregistered_before_the_immediate_data() {
    let mut half = Half::new(Options { mtu: Mtu::B256, ..Options::default() });
    let to = half.buffer(300);
    half.post_recv(&RecvWr::new(1, []));
    half.send(&pkt(Op::WriteFirst, 0x200).reth(to.remote(0), 300).payload(&[1; 256]));
    half.node.adapter.deregister(&to.region).unwrap();
    half.send(&pkt(Op::WriteLastImm, 0x201).imm([1; 4]).payload(&[1; 44]));
    half.expect(&[nak(NakCode::RemoteAccessError, 0x201, 0)]);
    assert_eq!(half.qp.recv_outcomes(), [(1, FLUSHED)]);
}

#[test]
fn a_source_deregistered_under_way() {
    let mut half = Half::new(Options { mtu: Mtu::B256, ..Options::default() });
    let from = half.buffer(600 * 256);
    half.post_send(&SendWr::send(1, Data::empty()));
    half.post_send(&SendWr::send(2, from.all()));
    assert_eq!(half.take().len(), 512);
    half.node.adapter.deregister(&from.region).unwrap();
    half.send(&crate::common::ack(0x100 + 64, 1));
    half.expect_nothing();
    assert_eq!(half.qp.send_outcomes(), [(1, Ok(0)), (2, Err(WcStatus::LocProtErr))]);
    assert_eq!(half.state(), State::Err);
}

#[test]
fn a_target_deregistered_under_way() {
    let mut half = Half::new(Options { mtu: Mtu::B256, ..Options::default() });
    let to = half.buffer(1024);
    half.send(&pkt(Op::WriteFirst, 0x200).reth(to.remote(0), 1024).payload(&[1; 256]));
    half.node.adapter.deregister(&to.region).unwrap();
    half.send(&pkt(Op::WriteMiddle, 0x201).payload(&[1; 256]));
    half.expect(&[nak(NakCode::RemoteAccessError, 0x201, 0)]);
    assert_eq!(to.part(256, 256), [0; 256]);
    let gone = Refusal::Access(AccessError::Deregistered(to.region.lkey().0));
    assert_eq!(half.node.events, [Event::QpAccessError(half.qp.qpn, gone)]);
}

#[test]
fn a_read_source_deregistered_under_way() {
    let mut half = Half::new(Options { mtu: Mtu::B256, ..Options::default() });
    let from = half.buffer(1024);
    half.send(&pkt(Op::ReadRequest, 0x200).reth(from.remote(0), 1024));
    half.node.adapter.deregister(&from.region).unwrap();
    half.expect(&[nak(NakCode::RemoteAccessError, 0x200, 1)]);
    assert_eq!(half.state(), State::Err);
    half.node.drain_events();
    let gone = Refusal::Access(AccessError::Deregistered(from.region.lkey().0));
    assert_eq!(half.node.events, [Event::QpAccessError(half.qp.qpn, gone)]);
}

/// The peer has confirmed the data: deregistration is no error. A peer still waiting gets the
/// error.
#[test]
fn a_read_source_deregistered_under_a_repeat() {
    for length in [256, 1024] {
        let mut half = Half::new(Options { mtu: Mtu::B256, ..Options::default() });
        let (from, other) = (half.buffer(1024), half.buffer(8).fill(1));
        let read = pkt(Op::ReadRequest, 0x200).reth(from.remote(0), length);
        half.send(&read);
        assert_eq!(half.take().len(), length as usize / 256);
        assert_eq!(half.send(&read), Disposition::Duplicate);
        let next = 0x200 + length / 256;
        half.send(&pkt(Op::ReadRequest, next).reth(other.remote(0), 8));
        half.node.adapter.deregister(&from.region).unwrap();
        let response =
            pkt(Op::ReadResponseOnly, next).aeth(Syndrome::ACK, 2).payload(&other.bytes());
        half.expect(&[nak(NakCode::RemoteAccessError, 0x200, 2), response]);
        assert_eq!((half.state(), &half.node.events[..]), (State::Rts, &[][..]));
    }
}

#[test]
fn a_receive_buffer_deregistered_under_way() {
    let mut half = Half::new(Options { mtu: Mtu::B256, ..Options::default() });
    let to = half.buffer(1024);
    half.post_recv(&RecvWr::new(1, [to.all()]));
    half.send(&pkt(Op::SendFirst, 0x200).payload(&[1; 256]));
    half.node.adapter.deregister(&to.region).unwrap();
    half.send(&pkt(Op::SendLast, 0x201).payload(&[1; 256]));
    half.expect(&[nak(NakCode::RemoteOperationalError, 0x201, 0)]);
    assert_eq!(half.qp.recv_outcomes(), [(1, Err(WcStatus::LocProtErr))]);
}

#[test]
fn statuses_of_naks() {
    for (code, status) in [
        (NakCode::InvalidRequest, WcStatus::RemInvReqErr),
        (NakCode::RemoteAccessError, WcStatus::RemAccessErr),
        (NakCode::RemoteOperationalError, WcStatus::RemOpErr),
    ] {
        let mut half = Half::new(Options::default());
        half.post_sends(1..=3);
        half.post_recv(&RecvWr::new(9, []));
        half.take();
        half.send(&nak(code, 0x101, 1));
        assert_eq!(half.qp.send_outcomes(), [(1, Ok(0)), (2, Err(status)), (3, FLUSHED)]);
        assert_eq!(half.qp.recv_outcomes(), [(9, FLUSHED)]);
        assert_eq!(half.state(), State::Err);
        half.advance(Duration::from_secs(10));
        half.expect_nothing();
    }
}

#[test]
fn failure_always_completes() {
    let mut half = Half::new(Options::default());
    for id in 1..=3 {
        half.post_send(&SendWr::send(id, Data::empty()).with_flags(Default::default()));
    }
    half.take();
    half.send(&nak(NakCode::InvalidRequest, 0x101, 1));
    assert_eq!(half.qp.send_outcomes(), [(2, Err(WcStatus::RemInvReqErr)), (3, FLUSHED)]);
}

/// ERR sends only its NAK.
#[test]
fn a_requester_that_fails_takes_waiting_responses_with_it() {
    let mut half = Half::new(Options::default());
    let memory = half.buffer(64);
    half.post_send(&SendWr::send(1, memory.sge(0, 8)));
    half.take();
    half.send(&pkt(Op::ReadRequest, 0x200).reth(memory.remote(0), 64));
    half.send(&nak(NakCode::RemoteOperationalError, 0x100, 0));
    assert_eq!(
        (half.qp.send_outcomes(), half.state()),
        (vec![(1, Err(WcStatus::RemOpErr))], State::Err)
    );
    half.expect_nothing();
}

/// Waiting would block the queue forever.
#[test]
fn a_read_where_none_is_allowed_fails_at_once() {
    let mut half = Half::new(Options { max_rd_atomic: 0, ..Options::default() });
    let memory = half.buffer(64);
    half.post_send(&SendWr::read(1, memory.remote(0), memory.sge(0, 8)));
    half.post_send(&SendWr::send(2, memory.sge(0, 8)));
    half.expect_nothing();
    assert_eq!(
        half.qp.send_outcomes(),
        [(1, Err(WcStatus::LocQpOpErr)), (2, Err(WcStatus::WrFlushErr))]
    );
}

#[test]
fn a_local_error_is_not_replaced_by_the_peers() {
    let mut half = Half::new(Options { mtu: Mtu::B256, ..Options::default() });
    let from = half.buffer(600 * 256);
    half.post_send(&SendWr::send(1, Data::empty()));
    half.post_send(&SendWr::send(2, from.all()));
    half.take();
    half.node.adapter.deregister(&from.region).unwrap();
    half.send(&crate::common::ack(0x100 + 64, 1));
    half.expect_nothing();
    half.send(&nak(NakCode::InvalidRequest, 0x100 + 65, 1));
    assert_eq!(half.qp.send_outcomes(), [(1, Ok(0)), (2, Err(WcStatus::LocProtErr))]);
}
