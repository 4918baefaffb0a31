//! Address handles (11.2.2), also from arrivals.

use roce_transport::{
    adapter::ObjectError,
    addr::{AddressVector, Gid, RoceVersion},
    qp::State,
    wire::{GRH_LEN, Grh},
    work::{AhId, Cause, Data, RecvWr, SendWr, UdDestination, WcError, WcStatus},
};

use crate::common::{Options, Pair, QKEY, all_ok};

#[test]
fn what_a_handle_must_name() {
    let mut pair = Pair::new();
    let (pd, adapter) = (pair.a.pd, &mut pair.a.adapter);
    let gid = |text: &str| -> Gid { text.parse::<std::net::IpAddr>().unwrap().into() };
    let good = AddressVector::new(gid("10.0.0.2"), 0);
    let ah = adapter.create_ah(pd, &good).unwrap();
    assert_eq!(
        adapter.create_ah(pd, &AddressVector { sgid_index: 1, ..good }),
        Err(ObjectError::GidIndex(1))
    );
    assert_eq!(
        adapter.create_ah(pd, &AddressVector { dgid: gid("fd00::2"), ..good }),
        Err(ObjectError::GidIndex(0))
    );
    assert_eq!(
        adapter.create_ah(pd, &AddressVector { dgid: Gid::default(), ..good }),
        Err(ObjectError::GidIndex(0))
    );
    adapter.set_gids(vec![Gid::default(), gid("10.0.0.1")]);
    assert_eq!(adapter.create_ah(pd, &good), Err(ObjectError::GidIndex(0)), "an unused entry");
    adapter.set_gids(vec![gid("fd00::1")]);
    assert_eq!(
        adapter.create_ah(pd, &AddressVector { dgid: Gid::default(), ..good }),
        Err(ObjectError::GidIndex(0))
    );
    let other = adapter.alloc_pd().unwrap();
    adapter.dealloc_pd(other).unwrap();
    assert_eq!(adapter.create_ah(other, &good), Err(ObjectError::Unknown));
    assert_eq!(adapter.dealloc_pd(pd), Err(ObjectError::InUse));
    adapter.destroy_ah(ah).unwrap();
    assert_eq!(adapter.destroy_ah(ah), Err(ObjectError::Unknown));
    assert_eq!(adapter.destroy_ah(AhId(1000)), Err(ObjectError::Unknown));
    adapter.dealloc_pd(pd).unwrap();
}

#[test]
fn a_handle_is_for_its_own_domain() {
    let mut pair = Pair::new();
    let (a, b) = pair.datagrams(Options::default());
    let (own, other) = (pair.a.pd, pair.a.adapter.alloc_pd().unwrap());
    let to = pair.b.destination(b.qpn);
    let foreign = SendWr::send_to(1, UdDestination { pd: Some(other), ..to }, Data::empty());
    let near = pair.b.buffer(64);
    pair.post_recv(&b, &RecvWr::new(2, [near.all()]));
    pair.post_send(&a, &SendWr::send_to(2, UdDestination { pd: Some(own), ..to }, Data::empty()));
    pair.run();
    assert_eq!(a.send_outcomes(), all_ok([2], 0));
    let sent = pair.trace.records.len();
    pair.post_send(&a, &foreign);
    pair.run();
    let error = WcError { status: WcStatus::LocQpOpErr, cause: Cause::ForeignAddressHandle };
    assert_eq!(a.sent().first().map(|wc| wc.result), Some(Err(error)));
    assert_eq!((pair.state(&a), pair.trace.records.len()), (State::Sqe, sent), "nothing is sent");
}

#[test]
fn a_posted_request_outlives_its_handle() {
    let mut pair = Pair::new();
    let (a, b) = pair.datagrams(Options::default());
    let to = pair.b.destination(b.qpn);
    let buffer = pair.b.buffer(64);
    pair.post_recv(&b, &RecvWr::new(1, [buffer.all()]));
    let ah = pair.a.adapter.create_ah(pair.a.pd, &to.av).unwrap();
    pair.post_send(
        &a,
        &SendWr::send_to(1, UdDestination { pd: Some(pair.a.pd), ..to }, Data::inline(b"here")),
    );
    pair.a.adapter.destroy_ah(ah).unwrap();
    pair.run();
    assert_eq!(b.recv_outcomes(), all_ok([1], 44));
}

#[test]
fn the_own_address_goes() {
    let mut pair = Pair::new();
    let (a, b) = pair.datagrams(Options::default());
    let to = pair.b.destination(b.qpn);
    pair.a.adapter.create_ah(pair.a.pd, &to.av).unwrap();
    pair.a.adapter.set_gids(vec![Gid::default()]);
    pair.post_send(&a, &SendWr::send_to(1, to, Data::empty()));
    pair.run();
    let error = a.sent()[0].result.unwrap_err();
    assert_eq!((error.status, error.cause), (WcStatus::LocQpOpErr, Cause::NoRoute));
}

#[test]
fn the_grh_area_has_the_reply_path() {
    for ipv6 in [false, true] {
        let mut pair = Pair::build(roce_fabric::Network::new(Pair::conditions(), 0), ipv6);
        let (a, b) = pair.datagrams(Options::default());
        let (near, far) = (pair.a.buffer(100), pair.b.buffer(100));
        let mut to = pair.b.destination(b.qpn);
        to.av.traffic_class = 0x68 | 2;
        pair.post_recv(&b, &RecvWr::new(1, [far.all()]));
        pair.post_send(&a, &SendWr::send_to(1, to, Data::inline(b"who is there?")));
        pair.run();
        let wc = b.received()[0].result.unwrap();
        let area: [u8; GRH_LEN] = far.part(0, GRH_LEN).try_into().unwrap();
        let av = pair.b.adapter.gids().reply_path(&Grh::parse(&area).unwrap()).unwrap();
        assert_eq!(
            av,
            AddressVector { traffic_class: 0x68 | 2, ..AddressVector::new(pair.a.ip.into(), 0) }
        );
        pair.post_recv(&a, &RecvWr::new(2, [near.all()]));
        let back = UdDestination::new(av, wc.src_qp.unwrap(), QKEY);
        pair.post_send(&b, &SendWr::send_to(2, back, Data::inline(b"me")));
        pair.run();
        assert_eq!((a.recv_outcomes(), near.part(40, 2)), (all_ok([2], 42), b"me".to_vec()));
    }
}

#[test]
fn the_way_back_starts_where_the_message_went() {
    let mut pair = Pair::new();
    let ip = |text: &str| -> std::net::IpAddr { text.parse().unwrap() };
    let table =
        ["::", "fd00::1", "10.0.0.1", "10.0.0.9", "fd00::9"].map(|text| Gid::from(ip(text)));
    pair.a.adapter.set_gids(table.to_vec());
    let gids = pair.a.adapter.gids();
    let grh = |src, dst, traffic_class| Grh {
        src: ip(src),
        dst: ip(dst),
        traffic_class,
        flow_label: 7,
        hop_limit: 1,
        version: RoceVersion::V2,
    };
    let index =
        |src, dst| gids.reply_path(&grh(src, dst, 0)).map(|av| (av.sgid_index, av.dgid.to_ip()));
    assert_eq!(index("10.0.0.2", "10.0.0.9"), Some((3, ip("10.0.0.2"))));
    assert_eq!(index("fd00::2", "fd00::9"), Some((4, ip("fd00::2"))));
    assert_eq!(
        index("10.0.0.2", "224.1.2.3"),
        Some((2, ip("10.0.0.2"))),
        "the first of the family for a group"
    );
    assert_eq!(index("fd00::2", "ff0e::1"), Some((1, ip("fd00::2"))));
    assert_eq!(index("10.0.0.2", "10.0.0.3"), None);
    assert_eq!(index("::2", "::"), None, "an unused entry is no address");
    let congested = gids.reply_path(&grh("10.0.0.2", "10.0.0.9", 0x68 | 3)).unwrap();
    assert_eq!(
        (congested.traffic_class, congested.flow_label, congested.hop_limit),
        (0x68 | 2, 7, 64)
    );
}
