//! Extended reliable connections (annex A14).

use std::time::Duration;

use roce_transport::{
    addr::Mtu,
    event::{Disposition, DropReason, Event, Refusal},
    mem::{Access, AccessError, RKey, WindowBind, WindowType},
    qp::{PostError, State},
    wire::{NakCode, Operation as Op, XrcEth},
    work::{
        CompletionQueue, Data, Placement, RecvWr, Remote, SendFlags, SendWr, SrqAttr, SrqId, Wc,
        WcStatus,
    },
};

use crate::common::{
    AFTER_ONE_LOSS, ALL_RIGHTS, Buffer, End, Half, NULL_REMOTE, Options, Outcome, Pair, Side,
    all_ok, nak, outcomes, pkt, polled, refused_with,
};

const FLUSHED: Result<u32, WcStatus> = Err(WcStatus::WrFlushErr);

pub(super) fn small() -> Options {
    let access = Options::default().access | Access::FLUSH_GLOBAL;
    Options { mtu: Mtu::B256, access, ..Options::default() }
}

pub(super) fn post(pair: &mut Pair, srq: SrqId, wr: &RecvWr) {
    pair.b.adapter.post_srq_recv(srq, wr).unwrap();
}

fn program(pair: &mut Pair, srq: SrqId) -> (Vec<SendWr>, [Buffer; 4]) {
    let (near, far) = (pair.a.buffer(4096).fill(1), pair.b.buffer(8192).fill(2));
    let (inbox, found) = (pair.b.buffer(4096), pair.a.buffer(4096));
    far.put(0, &5u64.to_ne_bytes());
    let sends = vec![
        SendWr::send(0, near.sge(0, 700)),
        SendWr::send(1, near.sge(700, 300)).with_immediate([1, 2, 3, 4]),
        SendWr::write(2, far.remote(1000), near.sge(100, 900)),
        SendWr::write(3, far.remote(2000), near.sge(200, 600)).with_immediate([5, 6, 7, 8]),
        SendWr::read(4, far.remote(4000), found.sge(0, 800)),
        SendWr::compare_swap(5, far.remote(0), 5, 9, found.sge(1000, 8)),
        SendWr::fetch_add(6, far.remote(0), 3, found.sge(1008, 8)),
        SendWr::send(7, near.sge(0, 0)),
        SendWr::write(8, far.remote(3000), near.sge(0, 10)),
        SendWr::write(9, far.remote(3010), near.sge(0, 10)).with_immediate([9; 4]),
        SendWr::read(10, far.remote(2000), found.sge(2000, 100)),
        SendWr::atomic_write(11, far.remote(8), near.sge(16, 8)),
        SendWr::flush(12, far.remote(0), 100, Placement::GLOBAL),
    ];
    for id in 0..5 {
        post(pair, srq, &RecvWr::new(id, [inbox.sge(id as usize * 700, 700)]));
    }
    (sends.into_iter().map(|wr| wr.to_srq(srq)).collect(), [near, far, inbox, found])
}

fn check_program(end: &End, received: Vec<Wc>, [near, far, inbox, found]: &[Buffer; 4]) {
    let sent: Vec<Outcome> = end.send_outcomes();
    let expected = [0, 0, 0, 0, 800, 8, 8, 0, 0, 0, 100, 0, 0];
    assert_eq!(
        sent,
        expected.iter().enumerate().map(|(id, len)| (id as u64, Ok(*len))).collect::<Vec<_>>()
    );
    let immediates: Vec<_> =
        received.iter().map(|wc| wc.result.unwrap().immediate.map(|imm| imm.0)).collect();
    assert_eq!(immediates, [None, Some([1, 2, 3, 4]), Some([5, 6, 7, 8]), None, Some([9; 4])]);
    assert_eq!(
        outcomes(received),
        [(0, Ok(700)), (1, Ok(300)), (2, Ok(600)), (3, Ok(0)), (4, Ok(10))]
    );
    assert_eq!(
        (inbox.part(0, 700), inbox.part(700, 300)),
        (near.part(0, 700), near.part(700, 300))
    );
    assert_eq!(
        (far.part(1000, 900), far.part(2000, 600)),
        (near.part(100, 900), near.part(200, 600))
    );
    assert_eq!((far.part(3000, 10), far.part(3010, 10)), (near.part(0, 10), near.part(0, 10)));
    assert_eq!(
        (found.part(0, 800), found.part(2000, 100)),
        (far.part(4000, 800), far.part(2000, 100))
    );
    assert_eq!(
        (found.part(1000, 8), found.part(1008, 8)),
        (5u64.to_ne_bytes().to_vec(), 9u64.to_ne_bytes().to_vec())
    );
    assert_eq!((far.part(0, 8), far.part(8, 8)), (12u64.to_ne_bytes().to_vec(), near.part(16, 8)));
}

#[test]
fn every_operation() {
    let mut pair = Pair::new();
    let (a, b) = pair.connect_xrc(Side::A, small());
    let (srq, cq) = pair.b.xrc_srq();
    let (sends, buffers) = program(&mut pair, srq);
    sends.iter().for_each(|wr| pair.post_send(&a, wr));
    pair.run();
    let received = polled(&cq);
    assert!(
        received.iter().all(|wc| wc.qpn == b.qpn),
        "a completion names the target that received"
    );
    check_program(&a, received, &buffers);
    assert!(pair.trace.from(Side::A).all(|record| record.headers.xrceth() == Some(XrcEth { srq })));
    assert!(pair.trace.from(Side::B).all(|record| record.headers.xrceth().is_none()));
    assert!(pair.trace.records.iter().all(|record| record.bytes[0] & 0xE0 == 0xA0));
    for operation in [Op::SendMiddle, Op::WriteMiddle] {
        assert!(pair.trace.count(Side::A, operation) > 0);
    }
    for operation in
        [Op::Acknowledge, Op::AtomicAcknowledge, Op::ReadResponseMiddle, Op::ReadResponseOnly]
    {
        assert!(pair.trace.count(Side::B, operation) > 0);
    }
}

#[test]
fn every_loss_is_made_good() {
    let run = |fault: Option<(Side, u32)>| {
        let mut pair = Pair::new();
        pair.allow_all(AFTER_ONE_LOSS);
        let (a, _b) = pair.connect_xrc(Side::A, small());
        let (srq, cq) = pair.b.xrc_srq();
        let (sends, buffers) = program(&mut pair, srq);
        let rule = fault.map(|(side, psn)| pair.fault_from(side, &format!("drop psn {psn} once")));
        sends.iter().for_each(|wr| pair.post_send(&a, wr));
        pair.run();
        if let Some(rule) = rule {
            pair.assert_hit(rule);
        }
        check_program(&a, polled(&cq), &buffers);
        [Side::A, Side::B].map(|side| pair.trace.psns(side))
    };
    let [mut requests, mut responses] = run(None);
    requests.dedup();
    responses.dedup();
    assert!(requests.len() > 15 && responses.len() > 6);
    for (side, psns) in [(Side::A, requests), (Side::B, responses)] {
        psns.into_iter().for_each(|psn| drop(run(Some((side, psn)))));
    }
}

/// The XRCETH follows the BTH, as in other implementations.
#[test]
fn requests_on_the_wire() {
    let mut half = Half::xrc_initiator(Options::default());
    let srq = SrqId::new(0xAB_CDEF);
    let buffer = half.buffer(64);
    let remote = Remote { address: 0x1122_3344_5566_7788, rkey: RKey(0x99AA_BBCC) };
    let wrs = [
        SendWr::send(0, buffer.sge(0, 4)).with_immediate([1, 2, 3, 4]),
        SendWr::write(1, remote, buffer.sge(0, 4)).with_immediate([1, 2, 3, 4]),
        SendWr::read(2, remote, buffer.sge(0, 4)),
        SendWr::fetch_add(3, remote, 0x0102_0304_0506_0708, buffer.sge(0, 8)),
    ];
    wrs.iter().for_each(|wr| half.post_send(&wr.clone().to_srq(srq)));
    half.node.transmit.clear();
    half.node.adapter.poll_transmit(half.now, &mut half.node.transmit);
    let packets: Vec<Vec<u8>> =
        half.node.transmit.datagrams().map(|(_, bytes)| bytes.to_vec()).collect();
    let address = [0x11, 0x22, 0x33, 0x44, 0x55, 0x66, 0x77, 0x88, 0x99, 0xAA, 0xBB, 0xCC];
    let xrceth = [0, 0xAB, 0xCD, 0xEF];
    let add = [1, 2, 3, 4, 5, 6, 7, 8, 0, 0, 0, 0, 0, 0, 0, 0];
    let expected: [(u8, Vec<u8>); 4] = [
        (0xA5, [&xrceth[..], &[1, 2, 3, 4], &[0; 4]].concat()),
        (0xAB, [&xrceth[..], &address, &[0, 0, 0, 4], &[1, 2, 3, 4], &[0; 4]].concat()),
        (0xAC, [&xrceth[..], &address, &[0, 0, 0, 4]].concat()),
        (0xB4, [&xrceth[..], &address, &add].concat()),
    ];
    assert_eq!(packets.len(), expected.len());
    for (packet, (opcode, behind_bth)) in packets.iter().zip(expected) {
        assert_eq!(packet[0], opcode);
        assert_eq!(packet[12..packet.len() - 4], behind_bth, "{opcode:#x}");
    }
}

/// Targets cannot bind type 2: no request can use a type 2 window, and invalidation fails the
/// target.
#[test]
fn memory_windows() {
    let mut pair = Pair::new();
    let (a, b) = pair.connect_xrc(Side::A, small());
    let back = pair.connect_xrc(Side::B, small());
    let (srq, cq) = pair.b.xrc_srq();
    let far = pair.b.buffer(300);
    let (near, pd) = (pair.a.buffer(100).fill(3), pair.b.pd);
    let windows = [WindowType::Type1, WindowType::Type2A, WindowType::Type2B].map(|window_type| {
        let rkey = pair.b.adapter.alloc_window(pd, window_type).unwrap().next();
        let (region, address) = (far.region.lkey(), far.region.address() + 100);
        let access = Access::REMOTE_READ | Access::REMOTE_CHANGE;
        let bind = WindowBind { rkey, region, address, length: 100, access, zero_based: false };
        // B's initiator binds them; local requests name no queue
        assert_eq!(
            pair.try_post_send(&back.0, &SendWr::bind_window(1, bind).to_srq(srq)),
            Err(PostError::RemoteSrq)
        );
        pair.post_send(&back.0, &SendWr::bind_window(1, bind));
        Remote { address, rkey }
    });
    pair.run();
    assert_eq!(back.0.send_outcomes(), all_ok([1; 3], 0));
    pair.post_send(&a, &SendWr::write(1, windows[0], near.all()).to_srq(srq));
    pair.run();
    assert_eq!((a.send_outcomes(), far.part(100, 100)), (all_ok([1], 0), near.bytes()));
    post(&mut pair, srq, &RecvWr::new(7, []));
    pair.post_send(&a, &SendWr::send_invalidate(2, windows[1].rkey, Data::empty()).to_srq(srq));
    pair.run();
    assert_eq!((a.send_outcomes(), pair.state(&b)), (all_ok([2], 0), State::Err));
    assert_eq!(outcomes(polled(&cq)).len(), 1);
    for window in &windows[1..] {
        let (a, _b) = pair.connect_xrc(Side::A, small());
        pair.post_send(&a, &SendWr::write(3, *window, near.all()).to_srq(srq));
        pair.run();
        assert_eq!(a.send_outcomes(), [(3, Err(WcStatus::RemAccessErr))]);
    }
}

#[test]
fn one_target_serves_every_queue_of_its_domain() {
    let mut pair = Pair::new();
    let (a, b) = pair.connect_xrc(Side::A, small());
    let other_pd = pair.b.adapter.alloc_pd().unwrap();
    let (first, first_cq) = pair.b.xrc_srq();
    let xrcd = pair.b.xrcd;
    let (second, second_cq) = pair.b.xrc_srq_in(other_pd, xrcd);
    let near = pair.a.buffer(2000).fill(3);
    let (mine, theirs) = (pair.b.buffer(2000), pair.b.buffer_in(other_pd, 2000, ALL_RIGHTS));
    for id in 0..2 {
        post(&mut pair, first, &RecvWr::new(id, [mine.sge(0, 600)]));
        post(&mut pair, second, &RecvWr::new(10 + id, [theirs.sge(0, 600)]));
    }
    pair.post_send(&a, &SendWr::send(0, near.sge(0, 600)).to_srq(second));
    pair.post_send(&a, &SendWr::send(1, near.sge(0, 500)).to_srq(first));
    pair.post_send(&a, &SendWr::write(2, theirs.remote(1000), near.sge(0, 600)).to_srq(second));
    pair.post_send(&a, &SendWr::write(3, mine.remote(1000), near.sge(0, 600)).to_srq(first));
    pair.post_send(&a, &SendWr::read(4, theirs.remote(0), near.sge(1000, 300)).to_srq(second));
    pair.run();
    assert_eq!(a.send_outcomes(), [(0, Ok(0)), (1, Ok(0)), (2, Ok(0)), (3, Ok(0)), (4, Ok(300))]);
    let (at_first, at_second) = (polled(&first_cq), polled(&second_cq));
    assert!(at_first.iter().chain(&at_second).all(|wc| wc.qpn == b.qpn));
    assert_eq!((outcomes(at_first), outcomes(at_second)), (all_ok([0], 500), all_ok([10], 600)));
    assert_eq!(
        (theirs.part(1000, 600), mine.part(1000, 600)),
        (near.part(0, 600), near.part(0, 600))
    );

    // the second queue's domain denies the first's memory
    pair.post_send(&a, &SendWr::write(5, mine.remote(0), near.sge(0, 600)).to_srq(second));
    pair.allow(DropReason::QpState);
    pair.run();
    assert_eq!(a.send_outcomes(), [(5, Err(WcStatus::RemAccessErr))]);
    let why = pair.trace.from(Side::A).flat_map(|record| &record.arrivals).find_map(
        |(_, disposition)| match disposition {
            Disposition::Refused(_, refusal) => Some(*refusal),
            _ => None,
        },
    );
    let rkey = mine.region.rkey().0;
    assert_eq!(why, Some(Refusal::Access(AccessError::ProtectionDomain(rkey))));
    assert_eq!(
        mine.part(0, 600),
        near.part(0, 500).into_iter().chain(vec![0; 100]).collect::<Vec<_>>()
    );
}

#[test]
fn several_targets_share_a_queue() {
    let mut pair = Pair::new();
    let (one, other) = (pair.connect_xrc(Side::A, small()), pair.connect_xrc(Side::A, small()));
    let (srq, cq) = pair.b.xrc_srq();
    let (near, far) = (pair.a.buffer(64), pair.b.buffer(64));
    for id in 0..4 {
        post(&mut pair, srq, &RecvWr::new(id, [far.all()]));
    }
    for from in [&one.0, &other.0, &other.0, &one.0] {
        pair.post_send(from, &SendWr::send(9, near.sge(0, 10)).to_srq(srq));
        pair.run();
    }
    let received: Vec<_> = std::iter::from_fn(|| cq.pop()).map(|wc| (wc.wr_id, wc.qpn)).collect();
    assert_eq!(received, [(0, one.1.qpn), (1, other.1.qpn), (2, other.1.qpn), (3, one.1.qpn)]);
}

#[test]
fn an_empty_queue_is_not_ready() {
    let mut pair = Pair::new();
    pair.allow(DropReason::OutOfSequence);
    let (one, other) = (pair.connect_xrc(Side::A, small()), pair.connect_xrc(Side::A, small()));
    let ((empty, empty_cq), (full, full_cq)) = (pair.b.xrc_srq(), pair.b.xrc_srq());
    let (near, far) = (pair.a.buffer(64), pair.b.buffer(640));
    for id in 0..4 {
        post(&mut pair, full, &RecvWr::new(id, [far.sge(0, 64)]));
    }
    pair.post_send(&one.0, &SendWr::send(1, near.all()).to_srq(empty));
    pair.post_send(
        &one.0,
        &SendWr::write(2, far.remote(100), near.all()).with_immediate([0; 4]).to_srq(full),
    );
    pair.post_send(&other.0, &SendWr::send(3, near.all()).to_srq(full));
    pair.run_for(Duration::from_millis(3));
    assert_eq!((one.0.send_outcomes(), other.0.send_outcomes()), (vec![], all_ok([3], 0)));
    assert!(pair.b.adapter.counters().rnr_naks_sent > 1);
    post(&mut pair, empty, &RecvWr::new(7, [far.sge(200, 64)]));
    pair.run();
    assert_eq!(one.0.send_outcomes(), all_ok([1, 2], 0));
    let ids = |cq: &CompletionQueue| polled(cq).iter().map(|wc| wc.wr_id).collect::<Vec<_>>();
    assert_eq!((ids(&empty_cq), ids(&full_cq)), (vec![7], vec![0, 1]));
}

#[test]
fn the_rnr_retry_counter_counts_here_too() {
    let mut pair = Pair::new();
    let (a, b) = pair.connect_xrc(Side::A, Options { rnr_retry: 2, ..small() });
    let (srq, _cq) = pair.b.xrc_srq();
    let near = pair.a.buffer(8);
    pair.post_send(&a, &SendWr::send(1, near.all()).to_srq(srq));
    pair.run();
    assert_eq!(pair.trace.count(Side::A, Op::SendOnly), 3);
    assert_eq!(a.send_outcomes(), [(1, Err(WcStatus::RnrRetryExcErr))]);
    assert_eq!((pair.state(&a), pair.state(&b)), (State::Err, State::Rts));
}

/// The peer gets one NAK, the target different events.
#[test]
fn a_queue_that_the_target_must_not_serve() {
    for kind in ["unknown", "of another domain", "no XRC SRQ", "destroyed"] {
        let mut pair = Pair::new();
        let (a, b) = pair.connect_xrc(Side::A, small());
        let pd = pair.b.pd;
        let (far, near) = (pair.b.buffer(1000), pair.a.buffer(1000).fill(1));
        let (named, refusal) = match kind {
            "unknown" => (SrqId::new(0x123), Refusal::UnknownXrcSrq),
            "of another domain" => {
                let other = pair.b.adapter.open_xrcd().unwrap();
                (pair.b.xrc_srq_in(pd, other).0, Refusal::ForeignXrcSrq)
            }
            "no XRC SRQ" => {
                let attr = SrqAttr { max_wr: 8, max_sge: 1 };
                (pair.b.adapter.create_srq(pd, attr).unwrap(), Refusal::UnknownXrcSrq)
            }
            _ => {
                let (srq, _) = pair.b.xrc_srq();
                post(&mut pair, srq, &RecvWr::new(1, [far.all()]));
                pair.post_send(
                    &a,
                    &SendWr::send(0, near.sge(0, 10)).to_srq(srq).with_flags(SendFlags::empty()),
                );
                pair.run();
                pair.b.adapter.destroy_srq(srq).unwrap();
                (srq, Refusal::UnknownXrcSrq)
            }
        };
        let _may_not_exist = pair.b.adapter.post_srq_recv(named, &RecvWr::new(1, [far.all()]));
        let before = far.bytes();
        // the access itself is allowed
        for wr in [SendWr::write(1, far.remote(0), near.all()), SendWr::send(2, near.all())] {
            pair.post_send(&a, &wr.to_srq(named));
        }
        pair.allow(DropReason::QpState);
        pair.run();
        assert_eq!(a.send_outcomes(), [(1, Err(WcStatus::RemAccessErr)), (2, FLUSHED)], "{kind}");
        assert_eq!((pair.state(&a), pair.state(&b)), (State::Err, State::Err), "{kind}");
        assert_eq!(far.bytes(), before, "{kind}");
        assert_eq!(
            pair.events(Side::B),
            [Event::QpAccessError(b.qpn, refusal), Event::LastWqeReached(b.qpn)],
            "{kind}"
        );
        let answered = refused_with(NakCode::RemoteAccessError, refusal);
        assert!(
            pair.trace
                .from(Side::A)
                .any(|record| record.arrivals.iter().any(|(_, what)| *what == answered)),
            "{kind}"
        );
    }
}

#[test]
fn every_kind_of_request_names_a_queue() {
    let requests = [
        pkt(Op::SendOnly, 0x200),
        pkt(Op::WriteOnly, 0x200).reth(NULL_REMOTE, 0),
        pkt(Op::ReadRequest, 0x200).reth(NULL_REMOTE, 0),
        pkt(Op::FetchAdd, 0x200).atomic(NULL_REMOTE, 1, 0),
    ];
    for request in requests {
        let mut half = Half::xrc_target(Options::default());
        half.send(&request.srq(SrqId::new(9)).ask());
        half.expect(&[nak(NakCode::RemoteAccessError, 0x200, 0)]);
        assert_eq!(half.state(), State::Err);
    }
}

/// The queue's protection domain adds no rights.
#[test]
fn the_targets_rights_count() {
    let mut half = Half::xrc_target(Options { access: Access::REMOTE_READ, ..Options::default() });
    let (srq, _cq) = half.node.xrc_srq();
    let far = half.buffer(64);
    half.send(&pkt(Op::ReadRequest, 0x200).reth(far.remote(0), 8).srq(srq));
    assert_eq!(half.take().len(), 1);
    half.send(&pkt(Op::WriteOnly, 0x201).reth(far.remote(0), 8).payload(&[1; 8]).srq(srq).ask());
    half.expect(&[nak(NakCode::InvalidRequest, 0x201, 1)]);
    assert_eq!(far.part(0, 8), [0; 8]);
}

#[test]
fn the_limit_raises_an_event() {
    let mut half = Half::xrc_target(small());
    let (srq, _cq) = half.node.xrc_srq();
    for id in 0..3 {
        half.node.adapter.post_srq_recv(srq, &RecvWr::new(id, [])).unwrap();
    }
    half.node.adapter.set_srq_limit(srq, 2).unwrap();
    for psn in [0x200, 0x201] {
        half.send(&pkt(Op::SendOnly, psn).srq(srq));
    }
    assert_eq!(half.node.events, [Event::SrqLimitReached(srq)]);
}
