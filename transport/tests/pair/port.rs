//! Port events (11.6.3) and queue pair counters.

use roce_transport::{
    addr::{Gid, Mtu, Qpn},
    event::{Counter, Counters, DropReason, Event, Refusal},
    mem::{AccessError, RKey},
    qp::{ModifyError, PeerAttr, ResponderAttr, Rtr, State},
    work::{Data, RecvWr, Remote, SendWr, SrqAttr, WcStatus},
};

use crate::common::{Half, Options, Pair, Side, all_ok, to_group};

fn gid(text: &str) -> Gid {
    text.parse::<std::net::IpAddr>().unwrap().into()
}

#[test]
fn a_change_of_the_table_raises_one_event() {
    let mut half = Half::reset(Options::default());
    half.node.drain_events();
    assert_eq!(half.node.events, [], "the first table is no change");
    let own = half.node.adapter.gids().entries()[0];
    half.node.adapter.set_gids(vec![own]);
    half.node.drain_events();
    assert_eq!(half.node.events, []);
    half.node.adapter.set_gids(vec![own, gid("10.0.0.9")]);
    half.node.drain_events();
    assert_eq!(half.node.events, [Event::GidChange]);
}

/// Existing connections keep the address.
#[test]
fn an_address_that_goes() {
    let (mut pair, a, b) = Pair::connected(Options::default());
    pair.a.adapter.set_gids(vec![Gid::default(), gid("10.0.0.9")]);
    pair.post_recv(&b, &RecvWr::new(1, []));
    pair.post_send(&a, &SendWr::send(1, Data::empty()));
    pair.run();
    assert_eq!(a.send_outcomes(), all_ok([1], 0));
    let options = Options::default();
    let fresh = pair.a.qp(Side::A, roce_transport::qp::QpType::Rc, &options);
    pair.a.enter_init(fresh.qpn, &options);
    let rtr = |sgid_index| {
        Rtr::Rc(
            PeerAttr {
                dest_qpn: Qpn::new(2),
                path_mtu: Mtu::B256,
                rq_psn: roce_transport::psn::Psn::new(0),
                av: roce_transport::addr::AddressVector::new(gid("10.0.0.2"), sgid_index),
            },
            ResponderAttr { max_dest_rd_atomic: 1, min_rnr_timer: 1 },
        )
    };
    assert_eq!(pair.a.adapter.to_rtr(fresh.qpn, &rtr(0)), Err(ModifyError::GidIndex(0)));
    assert_eq!(pair.a.adapter.to_rtr(fresh.qpn, &rtr(1)), Ok(()));
}

#[test]
fn the_port_goes_down_and_comes_back() {
    let mut half = Half::new(Options { mtu: Mtu::B1024, ..Options::default() });
    assert!(half.node.adapter.port_is_active());
    for (active, mtu, event) in [
        (true, Mtu::B4096, None),
        (false, Mtu::B4096, Some(Event::PortError)),
        (false, Mtu::B512, None),
        (true, Mtu::B512, Some(Event::PortActive)),
    ] {
        half.node.adapter.set_port(active, mtu);
        half.node.drain_events();
        assert_eq!(std::mem::take(&mut half.node.events), event.into_iter().collect::<Vec<_>>());
        assert_eq!(half.node.adapter.port_is_active(), active);
    }
    assert_eq!(half.state(), State::Rts, "queue pairs stay as they are");
    assert_eq!(half.node.adapter.query_qp(half.qp.qpn).unwrap().path_mtu, Mtu::B1024);
    assert_eq!(half.node.adapter.gids().port_mtu(), Mtu::B512);
}

#[test]
fn the_last_request_of_a_queue_pair_that_fails() {
    let mut pair = Pair::new();
    let srq = pair.b.adapter.create_srq(pair.b.pd, SrqAttr { max_wr: 4, max_sge: 1 }).unwrap();
    let (a, b) =
        pair.connect_with(Options::default(), Options { srq: Some(srq), ..Options::default() });
    let unmapped = Remote { address: 0, rkey: RKey(0x1234_5678) };
    pair.post_send(&a, &SendWr::write(1, unmapped, Data::inline(b"nothing")));
    pair.run();
    assert_eq!((pair.state(&a), pair.state(&b)), (State::Err, State::Err));
    let refused =
        Event::QpAccessError(b.qpn, Refusal::Access(AccessError::UnknownKey(0x1234_5678)));
    assert_eq!(pair.events(Side::B), [refused, Event::LastWqeReached(b.qpn)]);
    pair.b.adapter.to_error(pair.now, b.qpn).unwrap();
    pair.b.drain_events();
    assert_eq!(pair.events(Side::B), [], "once");
    let said = format!(
        "queue pair {}: the peer's access to memory was refused: R_Key: key 0x12345678 names no region",
        b.qpn
    );
    assert_eq!(refused.to_string(), said);
}

#[test]
fn a_lost_link_fails_everything() {
    let mut half = Half::new(Options::default());
    let idle = half.node.qp(Side::A, roce_transport::qp::QpType::Rc, &Options::default());
    half.post_recv(&RecvWr::new(1, []));
    half.post_send(&SendWr::send(2, Data::empty()));
    for _ in 0..2 {
        half.node.adapter.fail(half.now);
    }
    half.node.drain_events();
    assert_eq!(half.node.events, [Event::DeviceFatal], "said once");
    assert_eq!((half.state(), half.node.state(idle.qpn)), (State::Err, State::Reset));
    assert_eq!(half.qp.send_outcomes(), [(2, Err(WcStatus::WrFlushErr))]);
    assert_eq!(half.qp.recv_outcomes(), [(1, Err(WcStatus::WrFlushErr))]);
}

fn values(counters: &Counters, names: &[&str]) -> Vec<u64> {
    let value = |name: &&str| counters.iter().find(|counter| counter.name == *name).unwrap().value;
    names.iter().map(value).collect()
}

#[test]
fn a_queue_pair_counts_for_itself() {
    let (mut pair, a, b) = Pair::connected(Options::default());
    let (other_a, other_b) = pair.connect(Options::default());
    assert_eq!(
        pair.a.adapter.qp_counters(a.qpn),
        None,
        "counters of a queue pair are kept on request"
    );
    pair.post_recv(&b, &RecvWr::new(0, []));
    pair.post_send(&a, &SendWr::send(0, Data::empty()));
    pair.run();
    pair.a.adapter.count_qp(a.qpn).unwrap();
    pair.b.adapter.count_qp(b.qpn).unwrap();
    let rule = pair.fault("drop send only every 3");
    pair.allow(DropReason::OutOfSequence);
    for id in 0..12 {
        pair.post_recv(&b, &RecvWr::new(id, []));
        pair.post_send(&a, &SendWr::send(id, Data::empty()));
        pair.post_recv(&other_b, &RecvWr::new(id, []));
        pair.post_send(&other_a, &SendWr::send(id, Data::empty()));
    }
    pair.run();
    assert!(pair.network.faults().hits(rule) > 2);
    let record = |pair: &Pair, side, qpn| {
        // counting starts after each side's first packet
        pair.trace.from(side).skip(1).filter(|record| record.headers.bth().dest_qp == qpn).count()
            as u64
    };
    let counters = pair.a.adapter.qp_counters(a.qpn).unwrap();
    assert_eq!(values(counters, &["sent_packets"]), [record(&pair, Side::A, b.qpn)]);
    assert_eq!(values(counters, &["received_packets"]), [record(&pair, Side::B, a.qpn)]);
    let all = pair.a.adapter.counters();
    assert!(
        counters.retransmitted_packets > 0
            && counters.retransmitted_packets < all.retransmitted_packets
    );
    let far = pair.b.adapter.qp_counters(b.qpn).unwrap();
    assert!(far.dropped(DropReason::OutOfSequence) > 0);
    assert!(
        far.dropped(DropReason::OutOfSequence)
            < pair.b.adapter.counters().dropped(DropReason::OutOfSequence)
    );
    assert!(far.sequence_naks_sent > 0);
    pair.a.adapter.destroy_qp(a.qpn).unwrap();
    assert_eq!(pair.a.adapter.qp_counters(a.qpn), None);
}

#[test]
fn requests_are_counted_by_kind_and_by_fate() {
    let (mut pair, a, b) = Pair::connected(Options { mtu: Mtu::B256, ..Options::default() });
    let (from, to) = (pair.a.buffer(600), pair.b.buffer(600));
    pair.post_recv(&b, &RecvWr::new(0, [to.all()]));
    for wr in [
        SendWr::send(1, from.all()),
        SendWr::write(2, to.remote(0), from.all()),
        SendWr::read(3, to.remote(0), from.all()),
        SendWr::fetch_add(4, to.remote(8), 1, from.sge(0, 8)),
        SendWr::write(5, to.remote(0), Data::empty()),
    ] {
        pair.post_send(&a, &wr);
    }
    pair.run();
    let (ours, theirs) = (pair.a.adapter.counters().clone(), pair.b.adapter.counters().clone());
    assert_eq!((ours.completed_sends, theirs.completed_receives), (1, 1));
    let received = ["received_writes", "received_reads", "received_atomics"];
    assert_eq!(values(&theirs, &received), [2, 1, 1], "in packets or not");
    assert_eq!(values(&ours, &received), [0; 3]);
    let octets = |side| pair.trace.from(side).map(|record| record.bytes.len() as u64).sum::<u64>();
    assert_eq!((ours.sent_bytes, theirs.received_bytes), (octets(Side::A), octets(Side::A)));
    assert_eq!((theirs.sent_bytes, ours.received_bytes), (octets(Side::B), octets(Side::B)));
    assert_eq!((ours.failed_sends, theirs.failed_receives), (0, 0));

    // a wrong key flushes the rest on both sides
    pair.post_recv(&b, &RecvWr::new(6, []));
    let wrong = Remote { rkey: RKey(to.region.rkey().0 ^ 0x100), ..to.remote(0) };
    pair.post_send(&a, &SendWr::write(7, wrong, from.all()));
    pair.post_send(&a, &SendWr::send(8, Data::empty()));
    pair.allow_all(&[DropReason::QpState]);
    pair.run();
    let (ours, theirs) = (pair.a.adapter.counters(), pair.b.adapter.counters());
    assert_eq!((ours.failed_sends, ours.remote_access_errors, ours.flushed_sends), (1, 1, 1));
    assert_eq!((theirs.refused_accesses, theirs.flushed_receives), (1, 1));
    assert_eq!((ours.remote_invalid_requests, ours.retries_exceeded), (0, 0));

    // a small buffer fails both sides
    let (c, d) = pair.connect(Options::default());
    pair.post_recv(&d, &RecvWr::new(9, [to.sge(0, 4)]));
    pair.post_send(&c, &SendWr::send(10, from.all()));
    pair.run();
    let (ours, theirs) = (pair.a.adapter.counters(), pair.b.adapter.counters());
    assert_eq!((ours.failed_sends, ours.remote_invalid_requests), (2, 1));
    assert_eq!((theirs.failed_receives, theirs.local_length_errors), (1, 1));
}

#[test]
fn a_member_of_a_group_counts_its_copies() {
    let mut pair = Pair::new();
    let (a, b) = pair.datagrams(Options::default());
    let (_, other) = pair.datagrams(Options::default());
    let group: std::net::IpAddr = [239, 1, 2, 3].into();
    for end in [&b, &other] {
        pair.b.adapter.attach_mcast(end.qpn, group.into()).unwrap();
        pair.b.adapter.count_qp(end.qpn).unwrap();
    }
    let buffer = pair.b.buffer(100);
    pair.post_recv(&b, &RecvWr::new(1, [buffer.all()]));
    pair.allow(DropReason::NoReceiveRequest);
    pair.post_send(&a, &SendWr::send_to(2, to_group(group), Data::empty()));
    pair.run();
    let counted = |qpn| {
        let counters = pair.b.adapter.qp_counters(qpn).unwrap();
        (
            counters.received_packets,
            counters.multicast_packets,
            counters.dropped(DropReason::NoReceiveRequest),
        )
    };
    assert_eq!((counted(b.qpn), counted(other.qpn)), ((1, 1, 0), (1, 1, 1)));
    assert_eq!(pair.b.adapter.counters().received_packets, 1);
}

#[test]
fn every_counter_has_a_name_and_an_explanation() {
    let counters = Counters::default();
    let mut names: Vec<&str> = counters.iter().map(|counter| counter.name).collect();
    assert!(
        counters
            .iter()
            .all(|Counter { explanation, value, .. }| value == 0 && explanation.len() > 10)
    );
    let count = names.len();
    names.sort_unstable();
    names.dedup();
    assert_eq!(names.len(), count);
    assert!(DropReason::ALL.iter().all(|reason| names.contains(&reason.name())));
}
