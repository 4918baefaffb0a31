//! Partitions (10.9.1, C9-42 to C9-44).

use roce_transport::{
    adapter::{ObjectError, PKeyTable},
    addr::PKey,
    event::{DropReason, Event},
    qp::{Init, ModifyError, QpType, QpUpdate, Rts},
    wire::{Headers, NetHeader, Operation as Op, Service},
    work::{Data, RecvWr, SendWr, WcStatus},
};

use crate::common::{End, Half, Options, Pair, Side, all_ok, pkt};

fn table<const N: usize>(entries: [u16; N]) -> PKeyTable {
    PKeyTable::new(entries.map(PKey)).unwrap()
}

fn pair_with(qp_type: QpType, a: u16, b: u16) -> (Pair, End, End) {
    let mut pair = Pair::new();
    pair.a.adapter.set_pkeys(table([0xFFFF, a])).unwrap();
    pair.b.adapter.set_pkeys(table([0xFFFF, b])).unwrap();
    let options = Options { pkey_index: 1, retry_cnt: 0, ..Options::default() };
    let (a, b) = match qp_type {
        QpType::Rc => pair.connect(options),
        QpType::Uc => pair.connect_unreliably(options),
        QpType::Ud => pair.datagrams(options),
        QpType::XrcInitiator | QpType::XrcTarget => pair.connect_xrc(Side::A, options),
        QpType::RawPacket => panic!("raw packets have no partition"),
    };
    (pair, a, b)
}

fn hello(pair: &Pair, qp_type: QpType, b: &End) -> SendWr {
    match qp_type {
        QpType::Ud => SendWr::send_to(1, pair.b.destination(b.qpn), Data::inline(b"hello")),
        _ => SendWr::send(1, Data::inline(b"hello")),
    }
}

#[test]
fn the_same_partition_and_one_full_member() {
    for qp_type in [QpType::Rc, QpType::Uc, QpType::Ud] {
        for (key_a, key_b, may) in [
            (0x8001, 0x8001, true),
            (0x8001, 0x0001, true),
            (0x0001, 0x8001, true),
            (0x0001, 0x0001, false),
            (0x8001, 0x8002, false),
            (0x8001, 0xFFFF, false),
            (0x7FFF, 0xFFFF, true),
        ] {
            let (mut pair, a, b) = pair_with(qp_type, key_a, key_b);
            pair.allow(DropReason::PKey);
            let memory = pair.b.buffer(64);
            pair.post_recv(&b, &RecvWr::new(2, [memory.all()]));
            let wr = hello(&pair, qp_type, &b);
            pair.post_send(&a, &wr);
            pair.run();
            let what = format!("{qp_type}: {key_a:#06x} to {key_b:#06x}");
            let counters = pair.b.adapter.counters();
            let refused = u64::from(!may);
            assert_eq!(
                (counters.dropped(DropReason::PKey), counters.pkey_violations),
                (refused, refused),
                "{what}"
            );
            assert_eq!(b.received().len(), usize::from(may), "{what}");
            assert!(
                pair.trace.from(Side::A).all(|record| record.headers.bth().pkey == PKey(key_a)),
                "{what}"
            );
            assert!(
                pair.trace.from(Side::B).all(|record| record.headers.bth().pkey == PKey(key_b)),
                "{what}"
            );
            let expected = match (qp_type, may) {
                (QpType::Rc, false) => vec![(1, Err(WcStatus::RetryExcErr))],
                _ => all_ok([1], 0),
            };
            assert_eq!(a.send_outcomes(), expected, "{what}");
        }
    }
}

/// Responses and CNPs too.
#[test]
fn every_packet_carries_the_queue_pairs_key() {
    let (mut pair, a, b) = pair_with(QpType::Rc, 0x8005, 0x0005);
    let (near, far) = (pair.a.buffer(4000), pair.b.buffer(4000));
    pair.fault("mark 100%");
    pair.post_recv(&b, &RecvWr::new(9, [far.all()]));
    pair.post_send(&a, &SendWr::send(1, near.all()));
    pair.post_send(&a, &SendWr::read(2, far.remote(0), near.all()));
    pair.post_send(&a, &SendWr::fetch_add(3, far.remote(0), 1, near.sge(0, 8)));
    pair.post_send(&a, &SendWr::write(4, far.remote(0), near.all()));
    pair.run();
    assert_eq!(a.send_outcomes().len(), 4);
    assert!(
        pair.trace
            .records
            .iter()
            .any(|record| record.headers.bth().opcode.service() == Service::Cnp)
    );
    assert!(pair.trace.from(Side::A).all(|record| record.headers.bth().pkey == PKey(0x8005)));
    assert!(pair.trace.from(Side::B).all(|record| record.headers.bth().pkey == PKey(0x0005)));
}

/// The target's; the SRQ has none.
#[test]
fn of_an_xrc_connection() {
    for (key, may) in [(0x8001, true), (0x0001, true), (0x8002, false)] {
        let (mut pair, a, _) = pair_with(QpType::XrcInitiator, 0x8001, key);
        pair.allow(DropReason::PKey);
        let (srq, cq) = pair.b.xrc_srq();
        pair.b.adapter.post_srq_recv(srq, &RecvWr::new(2, [])).unwrap();
        pair.post_send(&a, &SendWr::send(1, Data::empty()).to_srq(srq));
        pair.run();
        assert_eq!(cq.pop().is_some(), may, "{key:#06x}");
        assert_eq!(a.sent()[0].result.is_ok(), may, "{key:#06x}");
        assert!(pair.trace.from(Side::B).all(|record| record.headers.bth().pkey == PKey(key)));
    }
}

#[test]
fn a_datagram_tells_the_index_of_its_key() {
    let (mut pair, a, b) = pair_with(QpType::Ud, 0x8001, 0x8001);
    let memory = pair.b.buffer(64);
    pair.post_recv(&b, &RecvWr::new(2, [memory.all()]));
    let wr = hello(&pair, QpType::Ud, &b);
    pair.post_send(&a, &wr);
    pair.run();
    assert_eq!(b.received()[0].result.unwrap().pkey_index, 1);
    assert_eq!(a.sent()[0].result.unwrap().pkey_index, 0, "of a send there is nothing to tell");
}

#[test]
fn only_used_entries_can_be_named() {
    let mut half = Half::reset(Options::default());
    half.node.adapter.set_pkeys(table([0xFFFF, 0, 0x8000, 0x0007])).unwrap();
    for (pkey_index, result) in
        [(1, Err(ModifyError::PKeyIndex(1))), (2, Err(ModifyError::PKeyIndex(2))), (3, Ok(()))]
    {
        let init = Init { pkey_index, ..Init::default() };
        assert_eq!(half.node.adapter.to_init(half.qp.qpn, &init), result);
    }
    assert_eq!(half.node.adapter.query_qp(half.qp.qpn).unwrap().pkey_index, 3);
}

/// A table applies at once in both directions; an entry in use stays.
#[test]
fn the_table_changes_under_a_connection() {
    let (mut pair, a, b) = pair_with(QpType::Rc, 0x8001, 0x8001);
    pair.allow(DropReason::PKey);
    assert_eq!(pair.a.adapter.set_pkeys(table([0xFFFF])), Err(ObjectError::InUse));
    assert_eq!(pair.a.adapter.set_pkeys(table([0xFFFF, 0x8000])), Err(ObjectError::InUse));
    assert_eq!(pair.a.adapter.pkeys().entries(), [PKey(0xFFFF), PKey(0x8001)]);
    let far = pair.b.buffer(8);
    let write = |id| SendWr::write(id, far.remote(0), Data::inline(&[1; 8]));
    while pair.a.adapter.poll_event().is_some() {}
    pair.a.adapter.set_pkeys(table([0x0009, 0x8002])).unwrap();
    pair.b.adapter.set_pkeys(table([0x0009, 0x8002])).unwrap();
    pair.post_send(&a, &write(1));
    pair.run();
    assert_eq!(pair.events(Side::A), [Event::PKeyChange]);
    assert_eq!(a.send_outcomes(), all_ok([1], 0));
    assert_eq!(pair.trace.records.last().unwrap().headers.bth().pkey, PKey(0x8002));
    pair.b.adapter.set_pkeys(table([0xFFFF, 0x8003])).unwrap();
    pair.post_send(&a, &write(2));
    pair.run();
    assert_eq!(a.send_outcomes(), [(2, Err(WcStatus::RetryExcErr))]);
    assert!(pair.b.adapter.counters().pkey_violations > 0);
    // RESET needs no entry
    pair.b.adapter.to_reset(b.qpn).unwrap();
    pair.b.adapter.set_pkeys(table([0xFFFF])).unwrap();
}

#[test]
fn another_index_in_sqd() {
    let mut half = Half::new(Options::default());
    half.node.adapter.set_pkeys(table([0xFFFF, 0x8004])).unwrap();
    let (now, qpn) = (half.now, half.qp.qpn);
    half.node.adapter.to_sqd(now, qpn, false).unwrap();
    let change = QpUpdate { pkey_index: Some(1), ..QpUpdate::NONE };
    half.node.adapter.update(now, qpn, &change).unwrap();
    half.node.adapter.to_rts(now, qpn, &Rts::Resume).unwrap();
    half.post_send(&SendWr::send(1, Data::empty()));
    half.node.transmit.clear();
    half.node.adapter.poll_transmit(now, &mut half.node.transmit);
    let sent: Vec<_> =
        half.node.transmit.datagrams().map(|(_, bytes)| [bytes[2], bytes[3]]).collect();
    assert_eq!(sent, [[0x80, 0x04]]);
}

#[test]
fn another_partition_changes_nothing() {
    let mut half = Half::new(Options::default());
    let before = half.node.adapter.query_qp(half.qp.qpn);
    let mut bth = half.bth(&pkt(Op::SendOnly, Half::THEIRS));
    bth.pkey = PKey(0x8001);
    let headers = Headers::new(bth, roce_transport::wire::Ext::None).unwrap();
    half.send_as(&NetHeader { traffic_class: 3, ..half.net() }, headers, b"");
    assert_eq!((half.node.adapter.query_qp(half.qp.qpn), half.node.events.len()), (before, 0));
    assert_eq!(half.node.adapter.counters().pkey_violations, 1);
}
