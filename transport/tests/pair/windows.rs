//! Memory windows (10.6.7, 9.4.1.1.3).

use roce_transport::{
    adapter::ObjectError,
    event::{Disposition, DropReason, Event, Refusal},
    mem::{
        Access, AccessError, RKey, RegisterError, WindowBind, WindowError, WindowId, WindowType,
    },
    qp::{PostError, QpType, State},
    wire::{NakCode, Operation as Op, Syndrome},
    work::{Cause, Data, RecvWr, Remote, SendFlags, SendWr, WcError, WcOpcode, WcStatus},
};

use crate::common::{
    ALL_RIGHTS, Buffer, End, Half, Options, Pair, Side, ack, all_ok, nak, pattern, pkt,
    refused_with,
};

const REMOTE: Access = Access::REMOTE_READ.union(Access::REMOTE_CHANGE);
const TYPES: [WindowType; 3] = [WindowType::Type1, WindowType::Type2A, WindowType::Type2B];

fn bind(rkey: RKey, buffer: &Buffer, offset: usize, length: usize, access: Access) -> WindowBind {
    let address = buffer.region.address() + offset as u64;
    WindowBind {
        rkey,
        region: buffer.region.lkey(),
        address,
        length: length as u64,
        access,
        zero_based: false,
    }
}

/// Binds B's window to the middle of a buffer.
fn bound(pair: &mut Pair, b: &End, window_type: WindowType, access: Access) -> (Buffer, RKey) {
    let far = pair.b.buffer(300);
    let pd = pair.b.pd;
    let rkey = pair.b.adapter.alloc_window(pd, window_type).unwrap().next();
    pair.post_send(b, &SendWr::bind_window(9, bind(rkey, &far, 100, 100, access)));
    pair.run();
    let sent = b.sent();
    assert_eq!(sent[0].result.map(|ok| ok.opcode), Ok(WcOpcode::BindMw));
    (far, rkey)
}

fn window(half: &mut Half, window_type: WindowType) -> RKey {
    half.node.adapter.alloc_window(half.node.pd, window_type).unwrap()
}

/// A window bound to a whole buffer.
fn bound_half(window_type: WindowType, length: usize) -> (Half, Buffer, RKey) {
    let mut half = Half::new(Options::default());
    let far = half.buffer(length);
    let rkey = window(&mut half, window_type);
    half.post_send(&SendWr::bind_window(1, bind(rkey, &far, 0, length, REMOTE)));
    half.take();
    (half, far, rkey)
}

fn at(buffer: &Buffer, offset: usize, rkey: RKey) -> Remote {
    Remote { address: buffer.region.address() + offset as u64, rkey }
}

#[test]
fn a_window_gives_what_it_was_bound_with() {
    for window_type in TYPES {
        let (mut pair, a, b) = Pair::connected(Options::default());
        let (far, rkey) = bound(&mut pair, &b, window_type, REMOTE);
        let near = pair.a.buffer(100).fill(3);
        let back = pair.a.buffer(100);
        pair.post_send(&a, &SendWr::write(1, at(&far, 100, rkey), near.all()));
        pair.post_send(&a, &SendWr::read(2, at(&far, 100, rkey), back.all()));
        pair.post_send(&a, &SendWr::fetch_add(3, at(&far, 104, rkey), 1, back.sge(0, 8)));
        pair.run();
        assert_eq!(a.send_outcomes(), [(1, Ok(0)), (2, Ok(100)), (3, Ok(8))]);
        assert_eq!(far.part(200, 100), [0; 100]);
        assert_eq!(far.part(0, 100), [0; 100]);
        assert_eq!(far.part(112, 88), pattern(3, 100)[12..]);
    }
}

/// A region may lack its window's rights.
#[test]
fn rights_and_bounds_are_those_of_the_window() {
    let cases = [
        (Access::REMOTE_READ, 100, 100, true),
        (Access::REMOTE_READ, 99, 1, false),
        (Access::REMOTE_READ, 200, 1, false),
        (Access::REMOTE_READ, 101, 100, false),
        (Access::REMOTE_WRITE, 100, 1, false),
    ];
    for (access, offset, length, granted) in cases {
        let (mut pair, a, b) = Pair::connected(Options::default());
        let far = pair.b.buffer_with(300, Access::LOCAL_WRITE | Access::MW_BIND);
        let pd = pair.b.pd;
        let rkey = pair.b.adapter.alloc_window(pd, WindowType::Type2B).unwrap();
        pair.post_send(&b, &SendWr::bind_window(9, bind(rkey, &far, 100, 100, access)));
        pair.run();
        let near = pair.a.buffer(100);
        pair.post_send(&a, &SendWr::read(1, at(&far, offset, rkey), near.sge(0, length)));
        pair.run();
        let expected = if granted { Ok(length as u32) } else { Err(WcStatus::RemAccessErr) };
        assert_eq!(a.send_outcomes(), [(1, expected)], "{access:?} {offset} {length}");
    }
}

#[test]
fn zero_based() {
    let (mut pair, a, b) = Pair::connected(Options::default());
    let far = pair.b.buffer(300).fill(7);
    let pd = pair.b.pd;
    let rkey = pair.b.adapter.alloc_window(pd, WindowType::Type2B).unwrap();
    let zero_based = WindowBind { zero_based: true, ..bind(rkey, &far, 100, 100, REMOTE) };
    pair.post_send(&b, &SendWr::bind_window(9, zero_based));
    pair.run();
    let near = pair.a.buffer(100);
    pair.post_send(&a, &SendWr::read(1, Remote { address: 1, rkey }, near.sge(0, 99)));
    pair.post_send(&a, &SendWr::fetch_add(2, Remote { address: 8, rkey }, 1, near.sge(0, 8)));
    pair.run();
    // atomics need alignment in memory
    assert_eq!(a.send_outcomes(), [(1, Ok(99)), (2, Err(WcStatus::RemOpErr))]);
    assert_eq!(near.part(0, 99), far.part(101, 99));
}

#[test]
fn another_queue_pair() {
    for window_type in TYPES {
        let (mut pair, _, b) = Pair::connected(Options::default());
        let (other, other_b) = pair.connect(Options::default());
        let (far, rkey) = bound(&mut pair, &b, window_type, REMOTE);
        let near = pair.a.buffer(8);
        pair.post_send(&other, &SendWr::read(1, at(&far, 100, rkey), near.all()));
        pair.run();
        let expected =
            if window_type == WindowType::Type1 { Ok(8) } else { Err(WcStatus::RemAccessErr) };
        assert_eq!(other.send_outcomes(), [(1, expected)], "{window_type:?}");
        assert_eq!(pair.state(&other_b) == State::Rts, expected.is_ok());
    }
}

#[test]
fn another_domain() {
    for window_type in [WindowType::Type1, WindowType::Type2B] {
        let mut half = Half::new(Options::default());
        let far = half.buffer(8);
        let own = half.node.pd;
        let pd = half.node.adapter.alloc_pd().unwrap();
        let rkey = half.node.adapter.alloc_window(pd, window_type).unwrap();
        half.post_send(&SendWr::bind_window(1, bind(rkey, &far, 0, 8, REMOTE)));
        half.expect_nothing();
        let error = WcError {
            status: WcStatus::MwBindErr,
            cause: Cause::Bind(WindowError::ProtectionDomain),
        };
        assert_eq!(half.qp.sent()[0].result, Err(error));
        assert_eq!(half.state(), State::Err);
        assert_ne!(own, pd);
    }
}

#[test]
fn type_1_is_bound_again() {
    let mut half = Half::new(Options::default());
    let (one, two) = (half.buffer(8), half.buffer(8));
    let first = window(&mut half, WindowType::Type1);
    let second = first.next();
    half.post_send(&SendWr::bind_window(1, bind(first, &one, 0, 8, REMOTE)));
    half.post_send(&SendWr::bind_window(2, bind(second, &two, 0, 8, REMOTE)));
    half.expect_nothing();
    assert_eq!(half.qp.send_outcomes(), all_ok([1, 2], 0));
    half.send(&pkt(Op::WriteOnly, 0x200).reth(at(&two, 0, second), 4).payload(&[7; 4]));
    assert_eq!(two.bytes(), [7, 7, 7, 7, 0, 0, 0, 0]);
    half.post_send(&SendWr::bind_window(3, bind(second.next(), &two, 0, 0, Access::empty())));
    half.take();
    let disposition =
        half.send(&pkt(Op::WriteOnly, 0x201).reth(at(&two, 0, second), 4).payload(&[8; 4]));
    let refusal = Refusal::Access(AccessError::UnknownKey(second.0));
    assert_eq!(disposition, refused_with(NakCode::RemoteAccessError, refusal));
    assert!(!two.region.has_windows() && !one.region.has_windows());
}

#[test]
fn an_unbound_key() {
    for window_type in TYPES {
        let mut half = Half::new(Options::default());
        let rkey = window(&mut half, window_type);
        let disposition = half
            .send(&pkt(Op::WriteOnly, 0x200).reth(Remote { address: 0, rkey }, 4).payload(&[8; 4]));
        let refusal = Refusal::Access(AccessError::NotBound(rkey.0));
        assert_eq!(disposition, refused_with(NakCode::RemoteAccessError, refusal));
    }
}

#[test]
fn what_cannot_be_bound() {
    use WindowError as E;
    type Case =
        (WindowType, fn(&mut Half, WindowBind) -> WindowBind, fn(WindowBind) -> WindowError);
    let cases: &[Case] = &[
        (
            WindowType::Type2B,
            |_, bind| WindowBind { rkey: RKey(bind.rkey.0 ^ 0x100), ..bind },
            |bind| E::UnknownWindow(bind.rkey.0),
        ),
        (
            WindowType::Type1,
            |_, bind| WindowBind { region: roce_transport::mem::LKey(5), ..bind },
            |_| E::UnknownRegion(5),
        ),
        (WindowType::Type2A, |_, bind| WindowBind { length: 0, ..bind }, |_| E::Empty),
        (WindowType::Type2B, |_, bind| WindowBind { length: 0, ..bind }, |_| E::Empty),
        (WindowType::Type1, |_, bind| WindowBind { zero_based: true, ..bind }, |_| E::ZeroBased),
        (
            WindowType::Type1,
            |_, bind| WindowBind { length: 65, ..bind },
            |bind| E::Bounds { address: bind.address, length: 65 },
        ),
        (
            WindowType::Type2B,
            |_, bind| WindowBind { address: bind.address - 1, ..bind },
            |bind| E::Bounds { address: bind.address, length: 64 },
        ),
        (
            WindowType::Type2B,
            |_, bind| WindowBind { length: u64::MAX, ..bind },
            |bind| E::Bounds { address: bind.address, length: u64::MAX },
        ),
        (
            WindowType::Type1,
            |_, bind| WindowBind { access: Access::LOCAL_WRITE | Access::REMOTE_READ, ..bind },
            |_| E::Rights(Access::LOCAL_WRITE),
        ),
        (
            WindowType::Type1,
            |_, bind| WindowBind { access: Access::FLUSH_PERSISTENT, ..bind },
            |_| E::Rights(Access::FLUSH_PERSISTENT),
        ),
        (
            WindowType::Type1,
            |half, bind| WindowBind {
                region: half.node.buffer_with(64, Access::MW_BIND).region.lkey(),
                access: Access::REMOTE_WRITE,
                ..bind
            },
            |_| E::NeedsLocalWrite,
        ),
        (
            WindowType::Type2B,
            |half, bind| WindowBind {
                region: half.node.buffer_with(64, Access::LOCAL_WRITE).region.lkey(),
                ..bind
            },
            |_| E::NotAllowed,
        ),
        (
            WindowType::Type2B,
            |half, bind| {
                let pd = half.node.adapter.alloc_pd().unwrap();
                WindowBind { region: half.node.buffer_in(pd, 64, ALL_RIGHTS).region.lkey(), ..bind }
            },
            |_| E::ProtectionDomain,
        ),
    ];
    for (window_type, spoil, expected) in cases {
        let mut half = Half::new(Options::default());
        let far = half.buffer(64);
        let rkey = window(&mut half, *window_type);
        let good = bind(rkey, &far, 0, 64, REMOTE);
        let bad = spoil(&mut half, good);
        half.post_send(&SendWr::bind_window(1, bad));
        half.expect_nothing();
        let error = WcError { status: WcStatus::MwBindErr, cause: Cause::Bind(expected(bad)) };
        assert_eq!(half.qp.sent()[0].result, Err(error));
        assert_eq!(half.state(), State::Err);
        assert!(!far.region.has_windows());
    }
}

#[test]
fn type_2_is_bound_once() {
    let mut half = Half::new(Options::default());
    let far = half.buffer(8);
    let rkey = window(&mut half, WindowType::Type2B);
    half.post_send(&SendWr::bind_window(1, bind(rkey, &far, 0, 8, REMOTE)));
    half.post_send(&SendWr::local_invalidate(2, rkey));
    half.post_send(&SendWr::bind_window(3, bind(rkey.next(), &far, 0, 8, REMOTE)));
    half.post_send(&SendWr::bind_window(4, bind(rkey.next().next(), &far, 0, 8, REMOTE)));
    half.post_send(&SendWr::bind_window(5, bind(rkey, &far, 0, 8, REMOTE)));
    half.expect_nothing();
    let flushed = Err(WcStatus::WrFlushErr);
    let outcomes =
        [(1, Ok(0)), (2, Ok(0)), (3, Ok(0)), (4, Err(WcStatus::MwBindErr)), (5, flushed)];
    assert_eq!(half.qp.send_outcomes(), outcomes);
    assert!(far.region.has_windows(), "the first bind is still good");
}

#[test]
fn requests_keep_their_order() {
    let mut half = Half::new(Options::default());
    let far = half.buffer(8);
    let rkey = window(&mut half, WindowType::Type2B);
    half.post_send(&SendWr::send(1, Data::empty()).with_flags(SendFlags::empty()));
    half.post_send(&SendWr::bind_window(2, bind(rkey, &far, 0, 8, REMOTE)));
    half.post_send(&SendWr::send(3, Data::empty()));
    half.expect(&[pkt(Op::SendOnly, 0x100).ask()]);
    half.exchange(&ack(0x100, 1), &[pkt(Op::SendOnly, 0x101).ask()]);
    assert_eq!(half.qp.send_outcomes(), all_ok([2], 0));
    half.send(&ack(0x101, 2));
    assert_eq!(half.qp.send_outcomes(), all_ok([3], 0));
}

/// A bind neither starts nor prevents draining.
#[test]
fn a_bind_in_a_draining_queue() {
    let mut half = Half::new(Options::default());
    let far = half.buffer(8);
    let rkey = window(&mut half, WindowType::Type1);
    half.post_send(&SendWr::send(1, Data::empty()));
    half.take();
    let (now, qpn) = (half.now, half.qp.qpn);
    half.node.adapter.to_sqd(now, qpn, true).unwrap();
    half.post_send(&SendWr::bind_window(2, bind(rkey, &far, 0, 8, REMOTE)));
    half.send(&ack(0x100, 1));
    half.take();
    assert_eq!(half.node.events, [Event::SendQueueDrained(qpn)]);
    assert_eq!(half.qp.send_outcomes(), all_ok([1], 0));
    half.node.adapter.to_rts(now, qpn, &roce_transport::qp::Rts::Resume).unwrap();
    half.take();
    assert_eq!(half.qp.send_outcomes(), all_ok([2], 0));
}

#[test]
fn over_an_unreliable_connection() {
    let mut pair = Pair::new();
    let (a, b) = pair.connect_unreliably(Options::default());
    let (far, rkey) = bound(&mut pair, &b, WindowType::Type2B, Access::REMOTE_WRITE);
    let near = pair.a.buffer(100).fill(5);
    pair.post_send(&a, &SendWr::write(1, at(&far, 100, rkey), near.all()));
    pair.run();
    assert_eq!(far.part(100, 100), near.bytes());
    pair.post_send(&b, &SendWr::local_invalidate(2, rkey));
    pair.run();
    pair.allow(DropReason::RequestRefused);
    pair.post_send(&a, &SendWr::write(3, at(&far, 100, rkey), near.all()));
    pair.run();
    assert_eq!(pair.dropped(DropReason::RequestRefused), 1);
    let wrong = SendWr::bind_window(4, bind(rkey, &far, 0, 301, REMOTE));
    pair.post_send(&b, &wrong);
    pair.run();
    assert_eq!(b.send_outcomes(), [(2, Ok(0)), (4, Err(WcStatus::MwBindErr))]);
    assert_eq!(pair.state(&b), State::Sqe);
}

#[test]
fn which_services_have_them() {
    let mut pair = Pair::new();
    let (ud, _) = pair.datagrams(Options::default());
    let far = pair.a.buffer(8);
    for wr in [
        SendWr::bind_window(1, bind(RKey(0), &far, 0, 8, REMOTE)),
        SendWr::local_invalidate(1, RKey(0)),
    ] {
        assert_eq!(pair.try_post_send(&ud, &wr), Err(PostError::WrongOperation(QpType::Ud)));
    }
    let (uc, _) = pair.connect_unreliably(Options::default());
    let with_bytes = SendWr { data: far.all().into(), ..SendWr::local_invalidate(1, RKey(0)) };
    assert_eq!(pair.try_post_send(&uc, &with_bytes), Err(PostError::NoBytes));
    pair.post_send(&uc, &SendWr::send_invalidate(2, RKey(0), Data::empty()));
    pair.run();
    assert_eq!(uc.send_outcomes(), [(2, Err(WcStatus::LocQpOpErr))]);
}

#[test]
fn a_message_takes_the_key_back() {
    for window_type in [WindowType::Type2A, WindowType::Type2B] {
        for length in [0, 8, 3000] {
            let (mut pair, a, b) = Pair::connected(Options::default());
            let (far, rkey) = bound(&mut pair, &b, window_type, REMOTE);
            let (near, into) = (pair.a.buffer(3000).fill(1), pair.b.buffer(3000));
            pair.post_recv(&b, &RecvWr::new(5, [into.all()]));
            pair.post_send(&a, &SendWr::write(1, at(&far, 100, rkey), near.sge(0, 8)));
            pair.post_send(&a, &SendWr::send_invalidate(2, rkey, near.sge(0, length)));
            pair.run();
            assert_eq!(a.send_outcomes(), all_ok([1, 2], 0));
            let ok = b.received()[0].result.unwrap();
            assert_eq!(
                (ok.opcode, ok.byte_len as usize, ok.invalidated),
                (WcOpcode::Recv, length, Some(rkey))
            );
            assert_eq!(into.part(0, length), near.part(0, length));
            assert!(!far.region.has_windows());
            pair.post_send(&a, &SendWr::read(3, at(&far, 100, rkey), near.sge(0, 8)));
            pair.run();
            assert_eq!(a.send_outcomes(), [(3, Err(WcStatus::RemAccessErr))]);
        }
    }
}

#[test]
fn an_invalidation_on_the_wire() {
    let mut half = Half::new(Options::default());
    let near = half.buffer(2048).fill(1);
    let rkey = RKey(0xABCD);
    half.post_send(&SendWr::send_invalidate(1, rkey, near.sge(0, 5)));
    half.post_send(&SendWr {
        flags: SendFlags::SOLICITED,
        ..SendWr::send_invalidate(2, rkey, near.all())
    });
    let bytes = near.bytes();
    let mut last =
        pkt(Op::SendLastInvalidate, 0x102).invalidate(rkey).payload(&bytes[1024..]).ask();
    last.solicited = true;
    half.expect(&[
        pkt(Op::SendOnlyInvalidate, 0x100).invalidate(rkey).payload(&bytes[..5]).ask(),
        pkt(Op::SendFirst, 0x101).payload(&bytes[..1024]),
        last,
    ]);
}

/// The requester is acknowledged; the receiver fails.
#[test]
fn a_key_that_cannot_be_invalidated() {
    for kind in 0..5 {
        let mut half = Half::new(Options::default());
        let far = half.buffer(8);
        let one = window(&mut half, WindowType::Type1);
        let unbound = window(&mut half, WindowType::Type2B);
        let foreign = window(&mut half, WindowType::Type2A);
        half.post_send(&SendWr::bind_window(1, bind(one, &far, 0, 8, REMOTE)));
        let other = half.node.qp(Side::A, QpType::Rc, &Options::default());
        half.node.connect(other.qpn, Half::PEER_IP, Half::PEER, 0, 0, &Options::default());
        let to_foreign = SendWr::bind_window(1, bind(foreign, &far, 0, 8, REMOTE));
        half.node.adapter.post_send(half.now, other.qpn, &to_foreign).unwrap();
        half.take();
        half.qp.sent();
        let (key, error) = [
            (RKey(1), AccessError::UnknownKey(1)),
            (far.region.rkey(), AccessError::NotInvalidable(far.region.rkey().0)),
            (one, AccessError::NotInvalidable(one.0)),
            (unbound, AccessError::NotBound(unbound.0)),
            (foreign, AccessError::QueuePair(foreign.0)),
        ][kind];
        half.post_recv(&RecvWr::new(7, [far.all()]));
        half.post_recv(&RecvWr::new(8, [far.all()]));
        let packet = pkt(Op::SendOnlyInvalidate, 0x200).invalidate(key).payload(b"data").ask();
        let refusal = Refusal::Invalidate(error);
        assert_eq!(half.send(&packet), Disposition::Refused(Syndrome::ACK, refusal));
        half.expect(&[ack(0x200, 1)]);
        assert_eq!(half.state(), State::Err);
        let received = half.qp.received();
        assert_eq!(
            received[0].result,
            Err(WcError { status: WcStatus::RemInvReqErr, cause: Cause::Refused(refusal) })
        );
        assert_eq!(received[1].result.unwrap_err().status, WcStatus::WrFlushErr);
    }
}

#[test]
fn a_local_invalidation_of_a_wrong_key() {
    for key in [RKey(1), RKey(0)] {
        let mut half = Half::new(Options::default());
        let far = half.buffer(8);
        let key = if key.0 == 0 { far.region.rkey() } else { key };
        half.post_send(&SendWr::local_invalidate(1, key));
        half.expect_nothing();
        assert_eq!(half.qp.send_outcomes(), [(1, Err(WcStatus::MwBindErr))]);
        assert_eq!(half.state(), State::Err);
        assert!(half.node.adapter.deregister(&far.region).is_ok(), "the region is not touched");
    }
}

#[test]
fn a_local_invalidation_of_another_queue_pairs_window() {
    let (mut pair, a, _) = Pair::connected(Options::default());
    let (other, _) = pair.connect(Options::default());
    let near = pair.a.buffer(8);
    let rkey = pair.a.adapter.alloc_window(pair.a.pd, WindowType::Type2B).unwrap();
    pair.post_send(&other, &SendWr::bind_window(1, bind(rkey, &near, 0, 8, REMOTE)));
    pair.run();
    assert_eq!(other.send_outcomes(), all_ok([1], 0));
    pair.post_send(&a, &SendWr::local_invalidate(2, rkey));
    pair.run();
    assert_eq!(a.send_outcomes(), [(2, Err(WcStatus::MwBindErr))]);
    pair.post_send(&other, &SendWr::local_invalidate(3, rkey));
    pair.run();
    assert_eq!(other.send_outcomes(), all_ok([3], 0), "it was not touched");
}

#[test]
fn taken_back_under_a_write() {
    let (mut half, far, rkey) = bound_half(WindowType::Type2B, 4096);
    half.send(&pkt(Op::WriteFirst, 0x200).reth(at(&far, 0, rkey), 2048).payload(&[1; 1024]));
    half.post_send(&SendWr::local_invalidate(2, rkey));
    half.take();
    half.send(&pkt(Op::WriteLast, 0x201).payload(&[1; 1024]));
    half.expect(&[nak(NakCode::RemoteAccessError, 0x201, 0)]);
    assert_eq!(far.part(1024, 1024), [0; 1024]);
}

#[test]
fn a_bound_region_stays() {
    let (mut half, far, rkey) = bound_half(WindowType::Type1, 8);
    let change = Default::default();
    assert_eq!(half.node.adapter.deregister(&far.region), Err(RegisterError::InUse));
    assert_eq!(
        half.node.adapter.reregister(&far.region, change).map(|_| ()),
        Err(RegisterError::InUse)
    );
    assert_eq!(half.node.adapter.dealloc_window(WindowId::of(rkey)), Ok(()));
    assert_eq!(half.node.adapter.dealloc_window(WindowId::of(rkey)), Err(ObjectError::Unknown));
    half.send(&pkt(Op::WriteOnly, 0x200).reth(at(&far, 0, rkey), 4).payload(&[8; 4]));
    half.expect(&[nak(NakCode::RemoteAccessError, 0x200, 0)]);
    assert_eq!(half.node.adapter.deregister(&far.region), Ok(()));
}

#[test]
fn a_revoked_region_takes_its_windows_with_it() {
    let (mut half, far, rkey) = bound_half(WindowType::Type2B, 8);
    half.node.adapter.revoke(&far.region);
    half.send(&pkt(Op::WriteOnly, 0x200).reth(at(&far, 0, rkey), 4).payload(&[8; 4]));
    half.expect(&[nak(NakCode::RemoteAccessError, 0x200, 0)]);
    assert_eq!(far.bytes(), [0; 8]);
}

#[test]
fn what_becomes_of_a_queue_pairs_windows_of_type_2() {
    for window_type in TYPES {
        for destroyed in [false, true] {
            let (mut half, far, _) = bound_half(window_type, 8);
            if destroyed {
                half.node.adapter.destroy_qp(half.qp.qpn).unwrap();
            } else {
                half.node.adapter.to_reset(half.qp.qpn).unwrap();
            }
            assert_eq!(far.region.has_windows(), window_type == WindowType::Type1);
        }
    }
}

#[test]
fn windows_of_a_domain_keep_it_alive() {
    let mut node = Half::reset(Options::default()).node;
    let pd = node.adapter.alloc_pd().unwrap();
    let rkey = node.adapter.alloc_window(pd, WindowType::Type1).unwrap();
    assert_eq!(node.adapter.dealloc_pd(pd), Err(ObjectError::InUse));
    node.adapter.dealloc_window(WindowId::of(rkey)).unwrap();
    assert_eq!(node.adapter.dealloc_pd(pd), Ok(()));
    assert_eq!(node.adapter.alloc_window(pd, WindowType::Type1), Err(ObjectError::Unknown));
}
