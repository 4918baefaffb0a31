//! `ibv_sa_path_rec`.

use roce_provider::cm::CmId;

use crate::{
    layout::{ibv_sa_path_rec, rdma_ib_addr},
    translate::mtu,
};

/// Lifetime 4.096 µs · 2^16, the kernel's on Ethernet.
const LIFE_TIME: u8 = 16;
const EXACTLY: u8 = 2;

pub(super) fn path(cm: &CmId, addr: rdma_ib_addr) -> ibv_sa_path_rec {
    let setup = cm.qp_setup(); // a request's
    let av = setup.map(|setup| setup.av).or_else(|| cm.address_vector());
    let (flow_label, traffic_class, hop_limit) =
        av.map_or((0, 0, 0), |av| (av.flow_label, av.traffic_class, av.hop_limit));
    let mtu = setup.and_then(|setup| setup.path_mtu).unwrap_or_else(|| cm.path_mtu());
    ibv_sa_path_rec {
        dgid: addr.dgid,
        sgid: addr.sgid,
        flow_label: flow_label.to_be(),
        hop_limit,
        traffic_class,
        reversible: 1,
        numb_path: 1,
        pkey: addr.pkey,
        mtu_selector: EXACTLY,
        mtu: mtu::to_c(mtu) as u8,
        rate_selector: EXACTLY,
        rate: rate(cm.context().and_then(|context| context.query_port().speed)),
        packet_life_time_selector: EXACTLY,
        packet_life_time: LIFE_TIME,
        ..ibv_sa_path_rec::zeroed()
    }
}

/// Rate code from Mbit/s, rounded like the kernel; 0: the port's.
const fn rate(mbps: Option<u32>) -> u8 {
    match mbps {
        Some(40_000..) => 7,
        Some(30_000..) => 4,
        Some(20_000..) => 6,
        Some(10_000..) => 3,
        Some(_) | None => 0,
    }
}
