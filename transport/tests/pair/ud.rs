//! Unreliable datagrams (9.8.3).

use roce_transport::{
    addr::{Mtu, QKey, Qpn},
    event::DropReason,
    mem::LKey,
    qp::State,
    wire::{Ext, Immediate, checksum},
    work::{Cause, Data, GrhArea, RecvWr, SendWr, Sge, UdDestination, WcOpcode, WcStatus},
};

use crate::common::{End, Options, Pair, QKEY, Side, all_ok};

fn pair() -> (Pair, End, End, UdDestination) {
    let mut pair = Pair::new();
    let (a, b) = pair.datagrams(Options::default());
    let to = pair.b.destination(b.qpn);
    (pair, a, b, to)
}

#[test]
fn a_datagram_arrives_behind_the_grh_area() {
    for ipv6 in [false, true] {
        let mut pair = Pair::build(roce_fabric::Network::new(Pair::conditions(), 0), ipv6);
        let (a, b) = pair.datagrams(Options::default());
        let to = pair.b.destination(b.qpn);
        let (near, far) = (pair.a.buffer(50).fill(1), pair.b.buffer(100).fill(0xFF));
        pair.post_recv(&b, &RecvWr::new(1, [far.all()]));
        pair.post_send(&a, &SendWr::send_to(2, to, near.all()));
        pair.run();
        assert_eq!(a.send_outcomes(), all_ok([2], 0));
        let ok = b.received()[0].result.unwrap();
        let holds = if ipv6 { GrhArea::Ipv6 } else { GrhArea::Ipv4 };
        assert_eq!(
            (ok.opcode, ok.byte_len, ok.src_qp, ok.grh),
            (WcOpcode::Recv, 90, Some(a.qpn), Some(holds))
        );
        assert_eq!(far.part(40, 50), near.bytes());
        let area = far.part(0, 40);
        // UDP header, BTH, DETH, padded payload, ICRC
        let udp_length = 8 + 12 + 8 + 52 + 4u16;
        if ipv6 {
            assert_eq!(area[0] >> 4, 6);
            assert_eq!(area[4..6], udp_length.to_be_bytes());
            assert_eq!(area[6..8], [17, 64]);
            assert_eq!((area[8], area[23], area[24], area[39]), (0xFD, 1, 0xFD, 2));
        } else {
            assert_eq!(area[..20], [0; 20]);
            assert_eq!(area[20..22], [0x45, 0]);
            assert_eq!(area[22..24], (udp_length + 20).to_be_bytes());
            assert_eq!(checksum(&area[20..]), 0);
            assert_eq!(area[32..], [10, 0, 0, 1, 10, 0, 0, 2]);
        }
    }
}

#[test]
fn no_datagram_gets_a_response() {
    let (mut pair, a, b, to) = pair();
    pair.fault("drop request");
    pair.post_recv(&b, &RecvWr::new(1, []));
    for id in 0..3 {
        pair.post_send(&a, &SendWr::send_to(id, to, Data::inline(b"x")));
    }
    pair.run();
    assert_eq!(a.send_outcomes(), all_ok(0..3, 0));
    assert_eq!(b.received(), []);
    assert_eq!(pair.trace.records.len(), 3);
    assert_eq!(pair.trace.psns(Side::A), [0, 1, 2]);
    assert!(pair.trace.from(Side::A).all(|record| !record.headers.bth().ack_req));
}

#[test]
fn immediate_data() {
    let (mut pair, a, b, to) = pair();
    let far = pair.b.buffer(64);
    pair.post_recv(&b, &RecvWr::new(1, [far.all()]));
    pair.post_send(&a, &SendWr::send_to(1, to, Data::empty()).with_immediate([9, 8, 7, 6]));
    pair.run();
    let ok = b.received()[0].result.unwrap();
    assert_eq!((ok.byte_len, ok.immediate), (40, Some(Immediate([9, 8, 7, 6]))));
}

/// The high bit selects the sender's key.
#[test]
fn queue_keys() {
    for (key, on_the_wire) in [
        (QKEY, QKEY),
        (QKey(0x2222), QKey(0x2222)),
        (QKey(0x8000_0000), QKEY),
        (QKey(0xFFFF_FFFF), QKEY),
    ] {
        let (mut pair, a, b, to) = pair();
        let far = pair.b.buffer(64);
        pair.allow(DropReason::QKey);
        pair.post_recv(&b, &RecvWr::new(1, [far.all()]));
        pair.post_send(&a, &SendWr::send_to(1, UdDestination { qkey: key, ..to }, Data::empty()));
        pair.run();
        let Ext::Deth(deth) = pair.trace.records[0].headers.ext() else { panic!() };
        assert_eq!((deth.qkey, deth.source_qp), (on_the_wire, a.qpn));
        assert_eq!(b.received().len(), usize::from(on_the_wire == QKEY));
        assert_eq!(pair.dropped(DropReason::QKey), u64::from(on_the_wire != QKEY));
    }
}

#[test]
fn without_a_receive_request_it_is_gone() {
    let (mut pair, a, b, to) = pair();
    pair.allow(DropReason::NoReceiveRequest);
    pair.post_send(&a, &SendWr::send_to(1, to, Data::empty()));
    pair.run();
    let far = pair.b.buffer(64);
    pair.post_recv(&b, &RecvWr::new(1, [far.all()]));
    pair.run();
    assert_eq!(b.received(), []);
    assert_eq!(pair.dropped(DropReason::NoReceiveRequest), 1);
}

#[test]
fn longer_than_the_buffer_it_is_gone() {
    let (mut pair, a, b, to) = pair();
    pair.allow(DropReason::TooLong);
    let far = pair.b.buffer(50);
    pair.post_recv(&b, &RecvWr::new(1, [far.all()]));
    pair.post_send(&a, &SendWr::send_to(1, to, Data::inline(&[1; 11])));
    pair.post_send(&a, &SendWr::send_to(2, to, Data::inline(&[2; 10])));
    pair.run();
    assert_eq!(b.recv_outcomes(), all_ok([1], 50));
    assert_eq!(far.part(40, 10), [2; 10]);
    assert_eq!(pair.dropped(DropReason::TooLong), 1);
}

#[test]
fn longer_than_the_port_carries_it_is_refused() {
    let (mut pair, a, _b, to) = pair();
    let near = pair.a.buffer(4097);
    pair.post_send(&a, &SendWr::send_to(1, to, near.all()));
    pair.run();
    let error = a.sent()[0].result.unwrap_err();
    assert_eq!(
        (error.status, error.cause),
        (WcStatus::LocLenErr, Cause::TooLong { length: 4097, limit: 4096 })
    );
    assert_eq!(pair.state(&a), State::Sqe);
    assert!(pair.trace.records.is_empty());
}

#[test]
fn as_long_as_the_port_carries_it_arrives() {
    let (mut pair, a, b, to) = pair();
    let (near, far) = (pair.a.buffer(4096).fill(1), pair.b.buffer(4136));
    pair.post_recv(&b, &RecvWr::new(1, [far.all()]));
    pair.post_send(&a, &SendWr::send_to(1, to, near.all()));
    pair.run();
    assert_eq!(b.recv_outcomes(), all_ok([1], 4136));
    assert_eq!(far.part(40, 4096), near.bytes());
}

/// Other operations fail at execution, as on adapters.
#[test]
fn other_operations_do_not_exist() {
    for op in ["write", "read", "fetch_add"] {
        let mut pair = Pair::new();
        let (a, b) = pair.datagrams(Options::default());
        let near = pair.a.buffer(8);
        let wr = match op {
            "write" => SendWr::write(2, near.remote(0), near.all()),
            "read" => SendWr::read(2, near.remote(0), near.all()),
            _ => SendWr::fetch_add(2, near.remote(0), 1, near.all()),
        };
        let to = pair.b.destination(b.qpn);
        pair.allow(DropReason::NoReceiveRequest);
        for wr in [&SendWr::send_to(1, to, near.all()), &wr, &SendWr::send_to(3, to, near.all())] {
            pair.post_send(&a, wr);
        }
        pair.run();
        let [failed, flushed] = [Err(WcStatus::LocQpOpErr), Err(WcStatus::WrFlushErr)];
        assert_eq!(a.send_outcomes(), [(1, Ok(0)), (2, failed), (3, flushed)], "{op}");
        assert_eq!((pair.state(&a), pair.trace.records.len()), (State::Sqe, 1), "{op}");
    }
}

#[test]
fn a_bad_local_buffer_ends_sending() {
    let (mut pair, a, _b, to) = pair();
    let bad = Sge { lkey: LKey(0xBAD), address: 0, length: 8 };
    pair.post_send(&a, &SendWr::send_to(1, to, bad));
    pair.post_send(&a, &SendWr::send_to(2, to, Data::empty()));
    pair.run();
    assert_eq!(a.send_outcomes(), [(1, Err(WcStatus::LocProtErr)), (2, Err(WcStatus::WrFlushErr))]);
    assert_eq!(pair.state(&a), State::Sqe);
}

#[test]
fn a_bad_receive_buffer_is_fatal() {
    let (mut pair, a, b, to) = pair();
    let bad = Sge { lkey: LKey(0xBAD), address: 0, length: 80 };
    pair.post_recv(&b, &RecvWr::new(1, [bad]));
    pair.post_recv(&b, &RecvWr::new(2, []));
    pair.post_send(&a, &SendWr::send_to(1, to, Data::empty()));
    pair.run();
    assert_eq!(b.recv_outcomes(), [(1, Err(WcStatus::LocProtErr)), (2, Err(WcStatus::WrFlushErr))]);
    assert_eq!((pair.state(&a), pair.state(&b)), (State::Rts, State::Err));
}

#[test]
fn to_whom_it_is_addressed() {
    let (mut pair, a, b, to_b) = pair();
    let to_a = pair.a.destination(a.qpn);
    pair.allow(DropReason::UnknownQp);
    let (near, far) = (pair.a.buffer(64), pair.b.buffer(64));
    pair.post_recv(&a, &RecvWr::new(1, [near.all()]));
    pair.post_recv(&b, &RecvWr::new(2, [far.all()]));
    pair.post_send(&a, &SendWr::send_to(1, to_a, Data::inline(b"me")));
    pair.post_send(&a, &SendWr::send_to(2, to_b, Data::inline(b"you")));
    pair.post_send(
        &a,
        &SendWr::send_to(3, UdDestination { qpn: Qpn::new(0x5555), ..to_b }, Data::inline(b"they")),
    );
    pair.run();
    assert_eq!((near.part(40, 2), far.part(40, 3)), (b"me".to_vec(), b"you".to_vec()));
    assert_eq!(pair.dropped(DropReason::UnknownQp), 1);
    assert_eq!(a.send_outcomes(), all_ok(1..=3, 0));
}

#[test]
fn the_path_mtu_of_connections_does_not_matter() {
    let mut pair = Pair::new();
    let (a, b) = pair.datagrams(Options { mtu: Mtu::B256, ..Options::default() });
    let to = pair.b.destination(b.qpn);
    let (near, far) = (pair.a.buffer(2000), pair.b.buffer(2040));
    pair.post_recv(&b, &RecvWr::new(1, [far.all()]));
    pair.post_send(&a, &SendWr::send_to(1, to, near.all()));
    pair.run();
    assert_eq!(b.recv_outcomes(), all_ok([1], 2040));
}
