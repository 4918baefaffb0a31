//! Multicast datagrams (9.5.2, 10.5).

use std::net::IpAddr;

use roce_transport::{
    adapter::{Adapter, AdapterConfig, Limits, McastError, PKeyTable},
    addr::{AddressVector, Gid, PKey, QKey, Qpn},
    event::{Disposition, DropReason},
    mem::LKey,
    psn::Psn,
    qp::{Init, QpType, QpUpdate, Rtr, State},
    time::Instant,
    wire::{Bth, Deth, Ext, Headers, Immediate, NetHeader, Opcode, Operation as Op, Service},
    work::{Data, RecvWr, SendWr, Sge, SrqAttr, UdDestination, WcOpcode, WcStatus},
};

use crate::common::{
    Buffer, End, Node, Options, Pair, QKEY, Side, all_ok, encode, net, qp_init, to_group,
};

const GROUP: IpAddr = IpAddr::V4(std::net::Ipv4Addr::new(239, 1, 2, 3));
const OTHER: IpAddr = IpAddr::V4(std::net::Ipv4Addr::new(239, 1, 2, 4));

fn attach(node: &mut Node, end: &End, group: IpAddr) -> Result<bool, McastError> {
    node.adapter.attach_mcast(end.qpn, group.into())
}

fn member(pair: &mut Pair, side: Side, group: IpAddr) -> (End, Buffer) {
    let options = Options::default();
    let node = pair.node(side);
    let end = node.qp(side, QpType::Ud, &options);
    node.start_datagrams(end.qpn, &options);
    attach(node, &end, group).unwrap();
    let memory = node.buffer(100);
    pair.post_recv(&end, &RecvWr::new(7, [memory.all()]));
    (end, memory)
}

fn say(pair: &mut Pair, from: &End, to: UdDestination) {
    pair.post_send(
        from,
        &SendWr::send_to(1, to, Data::inline(b"hello")).with_immediate([1, 2, 3, 4]),
    );
    pair.run();
}

/// Each side has two members, the sender included.
#[test]
fn every_attached_queue_pair_gets_a_copy() {
    for ipv6 in [false, true] {
        let mut pair = Pair::build(roce_fabric::Network::new(Pair::conditions(), 0), ipv6);
        let (group, other): (IpAddr, IpAddr) = if ipv6 {
            ("ff15::7".parse().unwrap(), "ff15::8".parse().unwrap())
        } else {
            (GROUP, OTHER)
        };
        let members =
            [Side::A, Side::A, Side::B, Side::B].map(|side| member(&mut pair, side, group));
        let outsider = member(&mut pair, Side::B, other);
        let sender = members[0].0.clone();
        say(&mut pair, &sender, to_group(group));
        assert_eq!(sender.send_outcomes(), all_ok([1], 0));
        for (end, memory) in &members {
            let [wc] = end.received()[..] else { panic!("one copy for each") };
            let ok = wc.result.unwrap();
            assert_eq!(
                (wc.wr_id, ok.opcode, ok.byte_len, ok.grh.is_some()),
                (7, WcOpcode::Recv, 45, true)
            );
            assert_eq!(
                (ok.src_qp, ok.immediate, ok.pkey_index),
                (Some(sender.qpn), Some(Immediate([1, 2, 3, 4])), 0)
            );
            assert_eq!(memory.part(40, 5), b"hello");
            let Gid(gid) = group.into();
            let to = memory.part(24, 16);
            assert_eq!(
                if ipv6 { &to[..] } else { &to[12..] },
                if ipv6 { &gid[..] } else { &gid[12..] }
            );
        }
        assert_eq!(outsider.0.received(), []);
        let [record] = &pair.trace.records[..] else { panic!("one packet, however many members") };
        let copies = Disposition::Replicated { taken: 2, copies: 2 };
        assert_eq!(
            record.arrivals.iter().map(|arrival| arrival.1).collect::<Vec<_>>(),
            [copies; 2]
        );
        assert_eq!((record.headers.bth().dest_qp, record.net.dst), (Qpn::MULTICAST, group));
    }
}

#[test]
fn from_outside_to_members_that_only_receive() {
    let mut pair = Pair::new();
    let (sender, receiver) = pair.datagrams(Options::default());
    pair.b.adapter.to_reset(receiver.qpn).unwrap();
    attach(&mut pair.b, &receiver, GROUP).unwrap();
    pair.b.enter_init(receiver.qpn, &Options::default());
    pair.b.adapter.to_rtr(receiver.qpn, &Rtr::Ud).unwrap();
    let memory = pair.b.buffer(100);
    pair.post_recv(&receiver, &RecvWr::new(7, [memory.all()]));
    say(&mut pair, &sender, to_group(GROUP));
    assert_eq!(receiver.recv_outcomes(), all_ok([7], 45));
    assert_eq!(sender.received(), [], "who is not attached gets nothing");
}

#[test]
fn each_copy_passes_checks_of_its_own() {
    let mut pair = Pair::new();
    pair.b.adapter.set_pkeys(PKeyTable::new([PKey::DEFAULT, PKey(0x8001)]).unwrap()).unwrap();
    let sender = member(&mut pair, Side::A, OTHER).0;
    let members = [(); 7].map(|()| member(&mut pair, Side::B, GROUP).0);
    let [good, other_key, other_partition, no_request, not_ready, failed, bad_buffer] = &members;
    let adapter = &mut pair.b.adapter;
    let now = pair.now;
    let key = QpUpdate { qkey: Some(QKey(1)), ..QpUpdate::NONE };
    adapter.update(now, other_key.qpn, &key).unwrap();
    adapter.to_sqd(now, other_partition.qpn, false).unwrap();
    let partition = QpUpdate { pkey_index: Some(1), ..QpUpdate::NONE };
    adapter.update(now, other_partition.qpn, &partition).unwrap();
    adapter.to_error(now, failed.qpn).unwrap();
    adapter.to_reset(not_ready.qpn).unwrap();
    adapter.to_init(not_ready.qpn, &Init { qkey: QKEY, ..Init::default() }).unwrap();
    failed.received();
    for end in [no_request, bad_buffer] {
        pair.b.adapter.to_reset(end.qpn).unwrap();
        pair.b.start_datagrams(end.qpn, &Options::default());
    }
    pair.post_recv(
        bad_buffer,
        &RecvWr::new(7, [Sge { lkey: LKey(0xBAD), address: 0, length: 100 }]),
    );
    pair.allow_all(&[
        DropReason::QKey,
        DropReason::PKey,
        DropReason::NoReceiveRequest,
        DropReason::QpState,
    ]);
    say(&mut pair, &sender, to_group(GROUP));

    assert_eq!(good.recv_outcomes(), all_ok([7], 45));
    assert_eq!(bad_buffer.recv_outcomes(), [(7, Err(WcStatus::LocProtErr))]);
    assert_eq!((pair.state(bad_buffer), pair.state(good)), (State::Err, State::Rts));
    for end in [other_key, other_partition, no_request, not_ready, failed] {
        assert_eq!(end.received(), []);
    }
    let counters = pair.b.adapter.counters();
    let dropped = |reason| counters.dropped(reason);
    assert_eq!((dropped(DropReason::QKey), counters.qkey_violations), (1, 1));
    assert_eq!((dropped(DropReason::PKey), counters.pkey_violations), (1, 1));
    assert_eq!((dropped(DropReason::NoReceiveRequest), dropped(DropReason::QpState)), (1, 2));
    assert_eq!(
        pair.trace.records[0].arrivals[0].1,
        Disposition::Replicated { taken: 2, copies: 7 }
    );
    assert_eq!(counters.received_packets, 1);
}

/// In attachment order, one request each.
#[test]
fn members_with_a_shared_receive_queue() {
    let mut pair = Pair::new();
    let (sender, _) = pair.datagrams(Options::default());
    let pd = pair.b.pd;
    let srq = pair.b.adapter.create_srq(pd, SrqAttr { max_wr: 8, max_sge: 1 }).unwrap();
    let options = Options { srq: Some(srq), ..Options::default() };
    let members = [(); 3].map(|()| {
        let end = pair.b.qp(Side::B, QpType::Ud, &options);
        pair.b.start_datagrams(end.qpn, &options);
        attach(&mut pair.b, &end, GROUP).unwrap();
        end
    });
    let memory = pair.b.buffer(200);
    for id in 0..2 {
        pair.b
            .adapter
            .post_srq_recv(srq, &RecvWr::new(id, [memory.sge(100 * id as usize, 100)]))
            .unwrap();
    }
    pair.allow(DropReason::NoReceiveRequest);
    say(&mut pair, &sender, to_group(GROUP));
    let outcomes = members.each_ref().map(End::recv_outcomes);
    assert_eq!(outcomes, [all_ok([0], 45), all_ok([1], 45), vec![]]);
    assert_eq!(pair.dropped(DropReason::NoReceiveRequest), 1);
}

#[test]
fn attached_twice_is_attached_once_and_detached_is_gone() {
    let mut pair = Pair::new();
    let (sender, receiver) = pair.datagrams(Options::default());
    let second = member(&mut pair, Side::B, OTHER).0;
    let memory = pair.b.buffer(100);
    pair.post_recvs(&receiver, 0..3, &[memory.all()]);
    assert_eq!(attach(&mut pair.b, &receiver, GROUP), Ok(true), "the link has to join");
    assert_eq!(attach(&mut pair.b, &receiver, GROUP), Ok(false));
    assert_eq!(attach(&mut pair.b, &second, GROUP), Ok(false));
    say(&mut pair, &sender, to_group(GROUP));
    assert_eq!((receiver.received().len(), second.received().len()), (1, 1));
    let groups = |pair: &Pair, of| pair.b.adapter.mcast_groups(of).collect::<Vec<_>>();
    assert_eq!(groups(&pair, Some(receiver.qpn)), [Gid::from(GROUP)]);
    assert_eq!(groups(&pair, Some(second.qpn)), [Gid::from(GROUP), Gid::from(OTHER)]);
    assert_eq!(groups(&pair, Some(Qpn::new(5))), []);
    assert_eq!(pair.b.adapter.detach_mcast(second.qpn, GROUP.into()), Ok(false));
    assert_eq!(
        pair.b.adapter.detach_mcast(second.qpn, GROUP.into()),
        Err(McastError::NotAttached(GROUP.into()))
    );
    say(&mut pair, &sender, to_group(GROUP));
    assert_eq!((receiver.received().len(), second.received().len()), (1, 0));
    assert_eq!(
        pair.b.adapter.detach_mcast(receiver.qpn, GROUP.into()),
        Ok(true),
        "the link has to leave"
    );
    assert_eq!(
        pair.b.adapter.detach_mcast(receiver.qpn, GROUP.into()),
        Err(McastError::NotAttached(GROUP.into()))
    );
    assert_eq!(groups(&pair, None), [Gid::from(OTHER)]);
    say(&mut pair, &sender, to_group(GROUP));
    assert_eq!(receiver.received(), []);
}

/// Only destruction ends a membership.
#[test]
fn memberships_of_queue_pairs_that_are_reset_or_destroyed() {
    let mut pair = Pair::new();
    let (sender, _) = pair.datagrams(Options::default());
    let (first, memory) = member(&mut pair, Side::B, GROUP);
    let second = member(&mut pair, Side::B, GROUP).0;
    pair.b.adapter.to_reset(first.qpn).unwrap();
    pair.b.start_datagrams(first.qpn, &Options::default());
    pair.post_recv(&first, &RecvWr::new(8, [memory.all()]));
    pair.b.adapter.destroy_qp(second.qpn).unwrap();
    // in the destroyed queue pair's slot, but no member
    let third = pair.b.qp(Side::B, QpType::Ud, &Options::default());
    pair.b.start_datagrams(third.qpn, &Options::default());
    pair.post_recv(&third, &RecvWr::new(9, [memory.all()]));
    say(&mut pair, &sender, to_group(GROUP));
    assert_eq!((first.recv_outcomes(), third.received().len()), (all_ok([8], 45), 0));
    assert_eq!(
        pair.trace.records[0].arrivals[0].1,
        Disposition::Replicated { taken: 1, copies: 1 }
    );
    pair.b.adapter.destroy_qp(first.qpn).unwrap();
    assert_eq!(pair.b.adapter.mcast_groups(None).count(), 0);
}

#[test]
fn what_cannot_be_attached() {
    let limits = Limits { max_mcast_grp: 2, max_mcast_qp_attach: 2, ..Limits::default() };
    let mut adapter = Adapter::new(AdapterConfig { limits, ..AdapterConfig::new([1; 32]) });
    let pd = adapter.alloc_pd().unwrap();
    let cq = adapter.create_cq(1).unwrap();
    let mut qp = |qp_type| adapter.create_qp(qp_init(qp_type, &cq, pd)).unwrap();
    let [rc, uc, one, two, three] =
        [QpType::Rc, QpType::Uc, QpType::Ud, QpType::Ud, QpType::Ud].map(&mut qp);
    let group = |n: u8| Gid::from(IpAddr::from([239, 0, 0, n]));
    let unicast = Gid::from(IpAddr::from([10, 0, 0, 1]));
    for qpn in [rc, uc] {
        assert!(matches!(adapter.attach_mcast(qpn, group(1)), Err(McastError::WrongService(_))));
        assert!(matches!(adapter.detach_mcast(qpn, group(1)), Err(McastError::WrongService(_))));
    }
    assert_eq!(adapter.attach_mcast(Qpn::new(7), group(1)), Err(McastError::UnknownQp));
    assert_eq!(adapter.attach_mcast(one, unicast), Err(McastError::NotMulticast(unicast)));
    assert_eq!(
        adapter.attach_mcast(one, Gid::default()),
        Err(McastError::NotMulticast(Gid::default()))
    );
    assert_eq!(adapter.attach_mcast(one, group(1)), Ok(true));
    assert_eq!(adapter.attach_mcast(two, group(1)), Ok(false));
    assert_eq!(adapter.attach_mcast(three, group(1)), Err(McastError::TooManyMembers { limit: 2 }));
    assert_eq!(adapter.attach_mcast(two, group(1)), Ok(false), "who is in is in");
    assert_eq!(adapter.attach_mcast(three, group(2)), Ok(true));
    assert_eq!(adapter.attach_mcast(three, group(3)), Err(McastError::TooManyGroups { limit: 2 }));
    assert_eq!(adapter.mcast_groups(None).collect::<Vec<_>>(), [group(1), group(2)]);
}

#[test]
fn what_is_no_multicast_packet() {
    let mut pair = Pair::new();
    let (end, memory) = member(&mut pair, Side::B, GROUP);
    let node = &mut pair.b;
    let net = NetHeader { hop_limit: 1, ..net([10, 0, 0, 1].into(), GROUP) };
    let deth = Ext::Deth(Deth { qkey: QKEY, source_qp: Qpn::new(5) });
    let bth =
        |service, dest| Bth::new(Opcode::new(service, Op::SendOnly).unwrap(), dest, Psn::new(0));
    let good = Headers::new(bth(Service::Ud, Qpn::MULTICAST), deth).unwrap();
    let to_one = Headers::new(bth(Service::Ud, end.qpn), deth).unwrap();
    let reliable = Headers::new(bth(Service::Rc, Qpn::MULTICAST), Ext::None).unwrap();
    let unreliable = Headers::new(bth(Service::Uc, Qpn::MULTICAST), Ext::None).unwrap();
    for (headers, dst, reason) in [
        (good, OTHER, DropReason::NotAttached),
        (good, node.ip, DropReason::DestinationAddress),
        (to_one, GROUP, DropReason::DestinationAddress),
        (reliable, GROUP, DropReason::WrongService),
        (unreliable, GROUP, DropReason::WrongService),
    ] {
        let net = NetHeader { dst, ..net };
        let (disposition, dropped) =
            node.handle_datagram(Instant::ZERO, &net, &encode(&net, headers, b""));
        assert_eq!((disposition, dropped), (Disposition::Dropped(reason), vec![reason]));
    }
    let mut damaged = encode(&net, good, b"");
    damaged[20] ^= 1;
    assert_eq!(
        node.handle_datagram(Instant::ZERO, &net, &damaged).0,
        Disposition::Dropped(DropReason::Icrc)
    );
    assert_eq!((end.received(), memory.part(0, 1)), (vec![], vec![0]));
    let (disposition, _) = node.handle_datagram(Instant::ZERO, &net, &encode(&net, good, b"hello"));
    assert_eq!(disposition, Disposition::Replicated { taken: 1, copies: 1 });
    assert_eq!(end.recv_outcomes(), all_ok([7], 45));
}

/// The address vector gives the hop limit.
#[test]
fn how_far_it_goes() {
    let mut pair = Pair::new();
    let (sender, _) = pair.datagrams(Options::default());
    member(&mut pair, Side::B, GROUP);
    for (hop_limit, on_the_wire) in [(64, 64), (1, 1), (0, 64)] {
        let to = to_group(GROUP);
        say(&mut pair, &sender, UdDestination { av: AddressVector { hop_limit, ..to.av }, ..to });
        assert_eq!(pair.trace.records.last().unwrap().net.hop_limit, on_the_wire);
        pair.allow(DropReason::NoReceiveRequest); // only one was posted
    }
}

#[test]
fn lost_and_doubled() {
    let mut pair = Pair::new();
    let (sender, _) = pair.datagrams(Options::default());
    let (end, memory) = member(&mut pair, Side::B, GROUP);
    let drop = pair.fault("drop request once");
    say(&mut pair, &sender, to_group(GROUP));
    pair.assert_hit(drop);
    assert_eq!(end.received(), []);
    pair.post_recv(&end, &RecvWr::new(8, [memory.all()]));
    pair.fault("duplicate request once");
    say(&mut pair, &sender, to_group(GROUP));
    assert_eq!(end.recv_outcomes(), all_ok([7, 8], 45));
}
