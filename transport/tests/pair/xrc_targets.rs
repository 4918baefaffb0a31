//! XRC targets and initiators (annex A14).

use std::time::Duration;

use roce_transport::{
    adapter::{Adapter, ObjectError},
    addr::{AddressVector, Mtu, Qpn},
    event::{Disposition, DropReason, Event, Refusal},
    psn::Psn,
    qp::{
        Attribute, Init, ModifyError, PeerAttr, PostError, QpInit, QpType, RequesterAttr,
        ResponderAttr, Rtr, Rts, State,
    },
    time::Instant,
    wire::{Bth, Ext, Headers, NakCode, Opcode, Operation as Op, Service, Syndrome, XrcEth},
    work::{Data, RecvWr, SendWr, SrqAttr, SrqId, WcStatus},
};

use super::xrc::{post, small};
use crate::common::{
    ALL_RIGHTS, Half, NULL_REMOTE, Options, Pair, Pkt, Side, ack, all_ok, encode, nak, outcomes,
    pattern, pkt, polled, qp_init, refused_with, rnr,
};

const FLUSHED: Result<u32, WcStatus> = Err(WcStatus::WrFlushErr);

fn first(psn: u32, srq: SrqId) -> Pkt {
    pkt(Op::SendFirst, psn).payload(&[1; 256]).srq(srq)
}

#[test]
fn a_message_stays_with_its_queue() {
    let mut half = Half::xrc_target(small());
    let ((srq, cq), (other, other_cq)) = (half.node.xrc_srq(), half.node.xrc_srq());
    let far = half.buffer(1000);
    for srq in [srq, other] {
        half.node.adapter.post_srq_recv(srq, &RecvWr::new(1, [far.all()])).unwrap();
    }
    assert_eq!(half.send(&first(0x200, srq)), Disposition::Executed);
    let disposition = half.send(&pkt(Op::SendLast, 0x201).payload(&[2; 9]).srq(other).ask());
    assert_eq!(disposition, refused_with(NakCode::InvalidRequest, Refusal::OpcodeOrder));
    half.expect(&[nak(NakCode::InvalidRequest, 0x201, 0)]);
    assert_eq!(outcomes(polled(&cq)), [(1, Err(WcStatus::RemInvReqErr))]);
    assert!(other_cq.is_empty());
    assert_eq!(half.node.adapter.query_srq(other).unwrap().posted, 1);
    assert_eq!(
        half.node.events,
        [Event::LastWqeReached(half.qp.qpn)],
        "the completion has told the rest"
    );
}

/// A READ repeated mid-message responds from another domain's queue.
#[test]
fn a_repeat_does_not_disturb_the_message_under_way() {
    let mut half = Half::xrc_target(small());
    let other_pd = half.node.adapter.alloc_pd().unwrap();
    let xrcd = half.node.xrcd;
    let ((srq, cq), (other, other_cq)) =
        (half.node.xrc_srq(), half.node.xrc_srq_in(other_pd, xrcd));
    let (far, source) = (half.buffer(1000), half.node.buffer_in(other_pd, 100, ALL_RIGHTS).fill(7));
    half.node.adapter.post_srq_recv(srq, &RecvWr::new(1, [far.all()])).unwrap();
    let read = pkt(Op::ReadRequest, 0x200).reth(source.remote(0), 100).srq(other);
    assert_eq!(half.send(&read), Disposition::Executed);
    let response = half.take();
    assert_eq!(
        response,
        [pkt(Op::ReadResponseOnly, 0x200).aeth(Syndrome::ACK, 1).payload(&pattern(7, 100))]
    );
    half.send(&first(0x201, srq));
    assert_eq!(half.send(&read), Disposition::Duplicate);
    half.expect(&response);
    half.send(&pkt(Op::SendOnly, 0x205).srq(other).ask());
    half.expect(&[nak(NakCode::PsnSequenceError, 0x202, 1)]);
    half.send(&pkt(Op::SendLast, 0x202).payload(&[2; 9]).srq(srq).ask());
    half.expect(&[ack(0x202, 2)]);
    assert_eq!(outcomes(polled(&cq)), all_ok([1], 265));
    assert!(other_cq.is_empty());
}

/// The repeated request was executed.
#[test]
fn a_repeat_to_a_destroyed_queue() {
    let mut half = Half::xrc_target(small());
    let ((srq, cq), far) = (half.node.xrc_srq(), half.buffer(100));
    half.node.adapter.post_srq_recv(srq, &RecvWr::new(1, [far.all()])).unwrap();
    let send = pkt(Op::SendOnly, 0x200).payload(&[1; 10]).srq(srq).ask();
    let read = pkt(Op::ReadRequest, 0x201).reth(far.remote(0), 10).srq(srq);
    half.send(&send);
    half.send(&read);
    assert_eq!(half.take().len(), 2);
    half.node.adapter.destroy_srq(srq).unwrap();
    assert_eq!(half.send(&send), Disposition::Duplicate);
    half.expect(&[ack(0x200, 1)]);
    // the key needs that queue's protection domain
    assert_eq!(half.send(&read), Disposition::Dropped(DropReason::ReplayMissing));
    assert_eq!(half.state(), State::Rts);
    assert_eq!(cq.pop().map(|wc| wc.wr_id), Some(1));
}

#[test]
fn a_queue_destroyed_in_the_middle_of_a_message() {
    let mut half = Half::xrc_target(small());
    let ((srq, cq), far) = (half.node.xrc_srq(), half.buffer(1000));
    half.node.adapter.post_srq_recv(srq, &RecvWr::new(1, [far.all()])).unwrap();
    half.send(&first(0x200, srq));
    assert_eq!(half.node.adapter.destroy_cq(cq.id()), Err(ObjectError::InUse));
    half.node.adapter.destroy_srq(srq).unwrap();
    half.node.adapter.destroy_cq(cq.id()).unwrap();
    half.send(&pkt(Op::SendLast, 0x201).payload(&[2; 9]).srq(srq).ask());
    half.expect(&[nak(NakCode::RemoteAccessError, 0x201, 0)]);
    assert!(cq.is_empty());
    let qpn = half.qp.qpn;
    assert_eq!(
        half.node.events,
        [Event::QpAccessError(qpn, Refusal::UnknownXrcSrq), Event::LastWqeReached(qpn)]
    );
    let pd = half.node.pd;
    half.node.adapter.deregister(&far.region).unwrap();
    half.node.adapter.dealloc_pd(pd).unwrap();
}

#[test]
fn a_queue_that_was_served_before() {
    let mut half = Half::xrc_target(small());
    let ((before, _), (srq, cq), far) =
        (half.node.xrc_srq(), half.node.xrc_srq(), half.buffer(1000));
    for srq in [before, srq] {
        half.node.adapter.post_srq_recv(srq, &RecvWr::new(1, [far.all()])).unwrap();
    }
    half.send(&pkt(Op::SendOnly, 0x200).payload(&[1; 10]).srq(before).ask());
    half.expect(&[ack(0x200, 1)]);
    half.send(&first(0x201, srq));
    half.node.adapter.destroy_srq(before).unwrap();
    half.send(&pkt(Op::SendLast, 0x202).payload(&[2; 9]).srq(srq).ask());
    half.expect(&[ack(0x202, 2)]);
    assert_eq!(outcomes(polled(&cq)), all_ok([1], 265));
    half.node.adapter.destroy_qp(half.qp.qpn).unwrap();
    half.node.adapter.destroy_srq(srq).unwrap();
    half.node.adapter.destroy_cq(cq.id()).unwrap();
}

/// Flushed to the completion queue of the SRQ.
#[test]
fn what_a_failed_target_had_taken() {
    for reset in [false, true] {
        let mut half = Half::xrc_target(small());
        let ((srq, cq), far) = (half.node.xrc_srq(), half.buffer(1000));
        for id in 1..=2 {
            half.node.adapter.post_srq_recv(srq, &RecvWr::new(id, [far.all()])).unwrap();
        }
        half.send(&first(0x200, srq));
        let qpn = half.qp.qpn;
        if reset {
            half.node.adapter.to_reset(qpn).unwrap();
        } else {
            half.node.adapter.to_error(half.now, qpn).unwrap();
        }
        half.node.drain_events();
        assert_eq!(outcomes(polled(&cq)), if reset { vec![] } else { vec![(1, FLUSHED)] });
        assert_eq!(half.node.events, if reset { vec![] } else { vec![Event::LastWqeReached(qpn)] });
        assert_eq!(half.node.adapter.query_srq(srq).unwrap().posted, 1);
        if !reset {
            half.node.adapter.to_reset(qpn).unwrap();
        }
        half.node.connect(qpn, Half::PEER_IP, Half::PEER, 0x500, 0, &small());
        half.send(&pkt(Op::SendOnly, 0x500).payload(&[3; 10]).srq(srq).ask());
        half.expect(&[ack(0x500, 1)]);
        assert_eq!(outcomes(polled(&cq)), all_ok([2], 10));
    }
}

/// Targets fail if last served by the queue; a reset forgets.
#[test]
fn an_overflowing_completion_queue_takes_its_targets_with_it() {
    let mut pair = Pair::new();
    pair.allow(DropReason::QpState);
    let was = pair.connect_xrc(Side::A, small());
    let (one, other) = (pair.connect_xrc(Side::A, small()), pair.connect_xrc(Side::A, small()));
    let (pd, xrcd) = (pair.b.pd, pair.b.xrcd);
    let cq = pair.b.adapter.create_cq(1).unwrap();
    let srq = pair
        .b
        .adapter
        .create_xrc_srq(pd, SrqAttr { max_wr: 8, max_sge: 1 }, xrcd, cq.clone())
        .unwrap();
    for id in 0..8 {
        post(&mut pair, srq, &RecvWr::new(id, []));
    }
    pair.post_send(&was.0, &SendWr::write(0, NULL_REMOTE, Data::empty()).to_srq(srq));
    pair.run();
    pair.b.adapter.to_reset(was.1.qpn).unwrap();
    let a_ip = pair.a.ip;
    pair.b.connect(was.1.qpn, a_ip, was.0.qpn, 0, 0, &small());
    for id in 0..=cq.capacity() as u64 {
        pair.post_send(&one.0, &SendWr::send(id, Data::empty()).to_srq(srq));
        pair.run_for(Duration::from_micros(100));
    }
    assert_eq!(
        [&one, &other, &was].map(|(_, target)| pair.state(target)),
        [State::Err, State::Rts, State::Rts]
    );
    assert!(pair.events(Side::B).contains(&Event::CqError(cq.id())));
    // later messages cannot complete
    let before = pair.b.adapter.query_srq(srq);
    pair.post_send(&other.0, &SendWr::send(9, Data::empty()).to_srq(srq));
    pair.run();
    assert_eq!(other.0.send_outcomes(), [(9, Err(WcStatus::RemOpErr))]);
    assert_eq!(pair.b.adapter.query_srq(srq), before);
}

#[test]
fn an_initiator_hears_responses_and_a_target_requests() {
    let wrong = Disposition::Dropped(DropReason::WrongRole);
    let mut half = Half::xrc_initiator(Options::default());
    let (srq, _cq) = half.node.xrc_srq();
    assert_eq!(half.send(&pkt(Op::SendOnly, 0x0).srq(srq).ask()), wrong);
    assert_eq!(half.send(&pkt(Op::ReadRequest, 0x0).reth(NULL_REMOTE, 0).srq(srq)), wrong);
    half.expect_nothing();
    let mut half = Half::xrc_target(Options::default());
    assert_eq!(half.send(&ack(0x0, 0)), wrong);
    assert_eq!(half.send(&pkt(Op::ReadResponseOnly, 0x0).aeth(Syndrome::ACK, 0)), wrong);
    // neither is a plain reliable connection
    for mut half in [half, Half::xrc_initiator(Options::default())] {
        let bth = |service, operation| {
            Bth::new(Opcode::new(service, operation).unwrap(), half.qp.qpn, Psn::new(0x200))
        };
        let plain = Headers::new(bth(Service::Rc, Op::SendOnly), Ext::None).unwrap();
        let net = half.net();
        assert_eq!(half.send_as(&net, plain, b""), Disposition::Dropped(DropReason::WrongService));
        half.expect_nothing();
    }
    let mut half = Half::new(Options::default());
    let bth =
        Bth::new(Opcode::new(Service::Xrc, Op::SendOnly).unwrap(), half.qp.qpn, Psn::new(0x200));
    let headers = Headers::xrc(bth, XrcEth { srq: SrqId::new(1) }, Ext::None).unwrap();
    let net = half.net();
    assert_eq!(half.send_as(&net, headers, b""), Disposition::Dropped(DropReason::WrongService));
}

#[test]
fn a_packet_without_room_for_the_queues_number() {
    let mut half = Half::xrc_target(Options::default());
    let net = half.net();
    let headers = Headers::new(half.bth(&ack(0x200, 0)), ack(0x200, 0).ext).unwrap();
    let mut bytes = encode(&net, headers, b"");
    bytes[0] = 0xA4;
    bytes.truncate(16);
    assert_eq!(half.send_bytes(&net, &bytes), Disposition::Dropped(DropReason::TooShort));
}

#[test]
fn a_target_in_rtr() {
    let options = Options::default();
    let mut half = Half::xrc_target(options);
    let (qpn, (srq, cq)) = (half.qp.qpn, half.node.xrc_srq());
    half.node.adapter.to_reset(qpn).unwrap();
    half.node.enter_init(qpn, &options);
    half.expect_drop(&pkt(Op::SendOnly, 0x200).srq(srq), DropReason::QpState);
    let av = AddressVector::new(Half::PEER_IP.into(), 0);
    let (dest_qpn, rq_psn) = (Half::PEER, Psn::new(0x200));
    let rtr = Rtr::XrcTarget(
        PeerAttr { dest_qpn, path_mtu: Mtu::B1024, rq_psn, av },
        ResponderAttr { max_dest_rd_atomic: 1, min_rnr_timer: 3 },
    );
    half.node.adapter.to_rtr(qpn, &rtr).unwrap();
    half.exchange(&pkt(Op::SendOnly, 0x200).srq(srq).ask(), &[rnr(3, 0x200, 0)]);
    half.node.adapter.post_srq_recv(srq, &RecvWr::new(1, [])).unwrap();
    half.exchange(&pkt(Op::SendOnly, 0x200).srq(srq).ask(), &[ack(0x200, 1)]);
    assert_eq!(half.node.events, [Event::CommunicationEstablished(qpn)]);
    assert_eq!(cq.pop().map(|wc| wc.wr_id), Some(1));
}

#[test]
fn attributes_of_the_other_kind_are_refused() {
    let mut pair = Pair::new();
    let options = Options::default();
    let av = AddressVector::new(pair.b.ip.into(), 0);
    let (dest_qpn, path_mtu, rq_psn, sq_psn) = (Qpn::new(7), Mtu::B1024, Psn::new(0), Psn::new(0));
    let peer = PeerAttr { dest_qpn, path_mtu, rq_psn, av };
    let initiator = Rtr::XrcInitiator(peer);
    let target = |max_dest_rd_atomic, min_rnr_timer| {
        Rtr::XrcTarget(peer, ResponderAttr { max_dest_rd_atomic, min_rnr_timer })
    };
    let rc = Rtr::Rc(peer, ResponderAttr { max_dest_rd_atomic: 1, min_rnr_timer: 1 });
    let sends = |timeout, retry_cnt, rnr_retry, max_rd_atomic| {
        Rts::XrcInitiator(sq_psn, RequesterAttr { timeout, retry_cnt, rnr_retry, max_rd_atomic })
    };
    let range = |attribute, limit| Err(ModifyError::Range { attribute, limit });
    for (qp_type, right, wrong) in [
        (QpType::XrcInitiator, initiator, [target(1, 1), rc]),
        (QpType::XrcTarget, target(1, 1), [initiator, rc]),
        (QpType::Rc, rc, [initiator, target(1, 1)]),
    ] {
        let qpn = pair.a.qp(Side::A, qp_type, &options).qpn;
        let adapter = &mut pair.a.adapter;
        adapter.to_init(qpn, &Init::default()).unwrap();
        for wrong in wrong {
            assert_eq!(adapter.to_rtr(qpn, &wrong), Err(ModifyError::WrongService(qp_type)));
        }
        if qp_type == QpType::XrcTarget {
            assert_eq!(
                adapter.to_rtr(qpn, &target(129, 1)),
                range(Attribute::MaxDestRdAtomic, 128)
            );
            assert_eq!(adapter.to_rtr(qpn, &target(1, 32)), range(Attribute::MinRnrTimer, 31));
        }
        adapter.to_rtr(qpn, &right).unwrap();
        let rts = |adapter: &mut Adapter, rts: Rts| adapter.to_rts(Instant::ZERO, qpn, &rts);
        let receives = |timeout| Rts::XrcTarget { sq_psn, timeout };
        let plain = Rts::Rc(
            sq_psn,
            RequesterAttr { timeout: 1, retry_cnt: 1, rnr_retry: 1, max_rd_atomic: 1 },
        );
        let service = Err(ModifyError::WrongService(qp_type));
        match qp_type {
            QpType::XrcInitiator => {
                assert_eq!((rts(adapter, receives(1)), rts(adapter, plain)), (service, service));
                assert_eq!(rts(adapter, sends(32, 0, 0, 0)), range(Attribute::Timeout, 31));
                assert_eq!(rts(adapter, sends(0, 8, 0, 0)), range(Attribute::RetryCnt, 7));
                assert_eq!(rts(adapter, sends(0, 0, 8, 0)), range(Attribute::RnrRetry, 7));
                assert_eq!(rts(adapter, sends(0, 0, 0, 129)), range(Attribute::MaxRdAtomic, 128));
            }
            QpType::XrcTarget => {
                assert_eq!(
                    (rts(adapter, sends(1, 1, 1, 1)), rts(adapter, plain)),
                    (service, service)
                );
                assert_eq!(rts(adapter, receives(32)), range(Attribute::Timeout, 31));
            }
            _ => assert_eq!(
                (rts(adapter, sends(1, 1, 1, 1)), rts(adapter, receives(1))),
                (service, service)
            ),
        }
        assert_eq!(pair.a.state(qpn), State::Rtr);
    }
}

#[test]
fn what_cannot_be_posted() {
    let mut pair = Pair::new();
    let (a, b) = pair.connect_xrc(Side::A, small());
    let rc = pair.connect(small());
    let (srq, buffer) = (SrqId::new(1), pair.a.buffer(8));
    let send = SendWr::send(1, buffer.all());
    assert_eq!(pair.try_post_send(&a, &send), Err(PostError::RemoteSrq));
    assert_eq!(pair.try_post_send(&rc.0, &send.clone().to_srq(srq)), Err(PostError::RemoteSrq));
    let to = pair.b.destination(b.qpn);
    let datagram = SendWr::send_to(1, to, buffer.all()).to_srq(srq);
    assert_eq!(
        pair.try_post_send(&a, &datagram),
        Err(PostError::WrongOperation(QpType::XrcInitiator))
    );
    let receive = RecvWr::new(1, [buffer.all()]);
    assert_eq!(pair.try_post_recv(&a, &receive), Err(PostError::NoSuchQueue(QpType::XrcInitiator)));
    assert_eq!(pair.try_post_recv(&b, &receive), Err(PostError::NoSuchQueue(QpType::XrcTarget)));
    assert_eq!(pair.try_post_send(&b, &send), Err(PostError::NoSuchQueue(QpType::XrcTarget)));
    assert_eq!(
        pair.try_post_send(&b, &send.to_srq(srq)),
        Err(PostError::NoSuchQueue(QpType::XrcTarget))
    );
    pair.run();
    assert!(pair.trace.records.is_empty());
}

#[test]
fn what_cannot_be_made_or_destroyed() {
    let mut pair = Pair::new();
    let (a, b) = pair.connect_xrc(Side::A, small());
    let ((srq, srq_cq), (xrcd, pd)) = (pair.b.xrc_srq(), (pair.b.xrcd, pair.b.pd));
    let foreign_cq = pair.a.adapter.create_cq(1).unwrap();
    let adapter = &mut pair.b.adapter;
    let attr = SrqAttr { max_wr: 1, max_sge: 1 };
    assert_eq!(adapter.create_xrc_srq(pd, attr, xrcd, foreign_cq), Err(ObjectError::Unknown));
    let big = SrqAttr { max_wr: u32::MAX, ..attr };
    assert!(matches!(
        adapter.create_xrc_srq(pd, big, xrcd, srq_cq.clone()),
        Err(ObjectError::Size { .. })
    ));
    let plain = adapter.create_srq(pd, attr).unwrap();
    let cq = adapter.create_cq(1).unwrap();
    let init = |qp_type, srq| QpInit { srq, ..qp_init(qp_type, &cq, pd) };
    for init in [
        init(QpType::XrcTarget, None),
        init(QpType::XrcInitiator, Some(plain)),
        init(QpType::Rc, Some(srq)),
    ] {
        assert!(matches!(adapter.create_qp(init), Err(ObjectError::Mismatch(_))));
    }
    assert_eq!(adapter.close_xrcd(xrcd), Err(ObjectError::InUse), "a target and an SRQ");
    adapter.destroy_qp(b.qpn).unwrap();
    assert_eq!(adapter.close_xrcd(xrcd), Err(ObjectError::InUse), "an SRQ");
    assert_eq!(adapter.destroy_cq(srq_cq.id()), Err(ObjectError::InUse));
    assert_eq!(adapter.dealloc_pd(pd), Err(ObjectError::InUse));
    adapter.destroy_srq(srq).unwrap();
    adapter.destroy_cq(srq_cq.id()).unwrap();
    adapter.close_xrcd(xrcd).unwrap();
    assert_eq!(adapter.close_xrcd(xrcd), Err(ObjectError::Unknown));
    assert_eq!(adapter.create_xrc_target(xrcd), Err(ObjectError::Unknown));
    assert_eq!(adapter.create_xrc_srq(pd, attr, xrcd, cq.clone()), Err(ObjectError::Unknown));
    // an initiator does not use it
    let info = pair.a.adapter.query_qp(a.qpn).unwrap();
    assert_eq!((info.qp_type, info.dest_qpn), (QpType::XrcInitiator, b.qpn));
    pair.a.adapter.destroy_cq(a.recv_cq.id()).unwrap();
    assert_eq!(pair.a.adapter.destroy_cq(a.send_cq.id()), Err(ObjectError::InUse));
}
