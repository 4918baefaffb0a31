//! RoCE v1 beside RoCEv2 (annexes A16, A17).

use roce_capture::explain::{Explained, ExplainedPacket, Network};
use roce_transport::{
    adapter::{ObjectError, RoceV1},
    addr::{AddressVector, Gid, RoceVersion},
    event::{Disposition, DropReason},
    trace::What,
    wire::{FrameFields, GRH_LEN, Grh, NetHeader, Operation as Op},
    work::{Data, GrhArea, RecvWr, SendWr, UdDestination},
};

use crate::common::{Half, Options, Pair, QKEY, Side, all_ok, pkt};

/// Adapters with both versions; connections use the first.
fn pair(network: Pair) -> Pair {
    let mut pair = network.recorded();
    for side in [Side::A, Side::B] {
        let node = pair.node(side);
        let gid = Gid::from(node.ip);
        node.adapter.set_gids(vec![gid, gid]);
        node.adapter.set_roce_v1(RoceV1::Used);
    }
    pair
}

fn arrived(pair: &mut Pair) -> Vec<RoceVersion> {
    let of = |pair: &mut Pair, side| -> Vec<_> {
        let records = pair.record(side).iter();
        records
            .filter_map(|record| match &record.what {
                What::Arrived { packet, .. } => Some(packet.net.frame.version()),
                _ => None,
            })
            .collect()
    };
    [of(pair, Side::A), of(pair, Side::B)].concat()
}

#[test]
fn a_connection_is_of_the_version_of_its_gid() {
    for ipv6 in [false, true] {
        let mut pair = pair(if ipv6 { Pair::over_ipv6() } else { Pair::new() });
        // only RoCEv2 has marks
        let (a, b) = pair.connect(Options { traffic_class: 3, ..Options::default() });
        let near = pair.a.buffer(10_000).fill(7);
        let (far, back) = (pair.b.buffer(10_000), pair.a.buffer(10_000));
        pair.post_recv(&b, &RecvWr::new(1, [far.all()]));
        pair.post_send(&a, &SendWr::send(2, near.all()));
        pair.post_send(&a, &SendWr::read(3, far.remote(0), back.all()));
        pair.run();
        assert_eq!(b.recv_outcomes(), all_ok([1], 10_000));
        assert_eq!((far.bytes(), back.bytes()), (near.bytes(), near.bytes()));
        let versions = arrived(&mut pair);
        assert!(versions.len() > 20 && versions.iter().all(|&version| version == RoceVersion::V1));
        for side in [Side::A, Side::B] {
            let counters = pair.node(side).adapter.counters().clone();
            assert_eq!((counters.ecn_marked, counters.cnp_sent), (0, 0));
        }
    }
}

#[test]
fn a_capture_has_packets_of_both_versions() {
    let mut pair = pair(Pair::new());
    let (a, b) = pair.datagrams(Options::default());
    let far = pair.b.buffer(500);
    for index in [0, 1, 0] {
        pair.post_recv(&b, &RecvWr::new(1, [far.all()]));
        let mut to = pair.b.destination(b.qpn);
        to.av.sgid_index = index;
        pair.post_send(&a, &SendWr::send_to(2, to, Data::inline(b"for a capture")));
        pair.run();
    }
    let file = tempfile::NamedTempFile::new().unwrap();
    pair.trace.write_pcapng(file.path()).unwrap();
    let explained = Explained::of_file(&std::fs::read(file.path()).unwrap()).unwrap();
    let version = |packet: &ExplainedPacket| match packet.net {
        Network::Roce(net) => net.frame.version(),
        Network::InfiniBand { .. } => panic!("{packet:?}"),
    };
    let versions: Vec<_> = explained.packets.iter().map(version).collect();
    assert_eq!(versions, [RoceVersion::V1, RoceVersion::V2, RoceVersion::V1]);
    for packet in &explained.packets {
        assert_eq!((packet.net.src(), packet.payload), (pair.a.ip.into(), 13), "{packet:?}");
    }
}

#[test]
fn the_other_version_is_refused() {
    for (gids, other) in [(RoceV1::Used, RoceVersion::V2), (RoceV1::Absent, RoceVersion::V1)] {
        let mut half = Half::reset(Options::default());
        half.node.adapter.set_roce_v1(gids);
        let (qpn, options) = (half.qp.qpn, Options::default());
        half.node.connect(qpn, Half::PEER_IP, Half::PEER, Half::THEIRS, Half::OURS, &options);
        half.post_recv(&RecvWr::new(1, []));
        let own = half.net();
        let version = match other {
            RoceVersion::V1 => RoceVersion::V2,
            RoceVersion::V2 => RoceVersion::V1,
        };
        let with = |version| {
            let frame = FrameFields::new(version, 0, 0);
            NetHeader { frame, ..own }
        };
        let packet = pkt(Op::SendOnly, Half::THEIRS).ask();
        let headers = |half: &Half| {
            let none = roce_transport::wire::Ext::None;
            roce_transport::wire::Headers::new(half.bth(&packet), none).unwrap()
        };
        let refused = half.send_as(&with(other), headers(&half), b"");
        assert_eq!(refused, Disposition::Dropped(DropReason::RoceVersion));
        assert_eq!(half.send_as(&with(version), headers(&half), b""), Disposition::Executed);
    }
}

/// The GRH area gives the version.
#[test]
fn a_datagram_gets_a_response_in_its_version() {
    for (index, version) in [(0, RoceVersion::V1), (1, RoceVersion::V2)] {
        let mut pair = pair(Pair::new());
        let (a, b) = pair.datagrams(Options::default());
        let far = pair.b.buffer(100);
        let mut to = pair.b.destination(b.qpn);
        to.av = AddressVector { sgid_index: index, flow_label: 0x1_2345, ..to.av };
        pair.post_recv(&b, &RecvWr::new(1, [far.all()]));
        pair.post_send(&a, &SendWr::send_to(1, to, Data::inline(b"which one is this?")));
        pair.run();
        let area: [u8; GRH_LEN] = far.part(0, GRH_LEN).try_into().unwrap();
        let grh = Grh::parse(&area).unwrap();
        let label = if version == RoceVersion::V1 { 0x1_2345 } else { 0 };
        assert_eq!((grh.version, grh.flow_label, grh.src), (version, label, pair.a.ip));
        let wc = b.received()[0].result.unwrap();
        let kind = if version == RoceVersion::V1 { GrhArea::GlobalRoute } else { GrhArea::Ipv4 };
        assert_eq!(wc.grh, Some(kind));
        let av = pair.b.adapter.gids().reply_path(&grh).unwrap();
        assert_eq!((av.sgid_index, av.dgid), (index, pair.a.ip.into()));
        let near = pair.a.buffer(100);
        pair.post_recv(&a, &RecvWr::new(2, [near.all()]));
        let back = UdDestination::new(av, wc.src_qp.unwrap(), QKEY);
        pair.post_send(&b, &SendWr::send_to(2, back, Data::inline(b"the same")));
        pair.run();
        assert_eq!(a.recv_outcomes(), all_ok([2], 48));
        assert!(arrived(&mut pair).iter().all(|&arrived| arrived == version));
    }
}

#[test]
fn an_entry_that_is_only_shown_is_refused() {
    let mut pair = pair(Pair::new());
    let to = |index| AddressVector { sgid_index: index, ..AddressVector::new(pair.b.ip.into(), 0) };
    let (shown, used) = (to(0), to(1));
    let pd = pair.a.pd;
    pair.a.adapter.set_roce_v1(RoceV1::Shown);
    assert_eq!(pair.a.adapter.create_ah(pd, &shown), Err(ObjectError::RoceV1(0)));
    pair.a.adapter.create_ah(pd, &used).unwrap();
    pair.a.adapter.set_roce_v1(RoceV1::Used);
    pair.a.adapter.create_ah(pd, &shown).unwrap();
}
