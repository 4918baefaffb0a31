//! Addresses: binding to an own one, listening there, finding the way to a peer's.

use std::{ffi::c_int, time::Duration};

use libc::sockaddr;
use roce_provider::cm::CmId;

use super::{address, event::complete, id::Id};
use crate::{
    errno::{self, Errno, Result},
    export::export,
    layout::{cm::rdma_cm_id, kernel::ibv_sa_path_rec},
    object::Object,
    port,
};

/// Packets live for 4.096 µs · 2^16, as the kernel says of such ways.
const LIFE_TIME: u8 = 16;
/// "Exactly so": what the selectors of a path record say of its values.
const EXACTLY: u8 = 2;

/// The way of an id, as a path record of InfiniBand.
pub(super) fn path(cm: &CmId, c: &rdma_cm_id) -> ibv_sa_path_rec {
    let setup = cm.qp_setup(); // of a request
    let av = setup.map(|setup| setup.av).or_else(|| cm.address_vector());
    let (flow_label, traffic_class, hop_limit) =
        av.map_or((0, 0, 0), |av| (av.flow_label, av.traffic_class, av.hop_limit));
    let mtu = setup.and_then(|setup| setup.path_mtu).unwrap_or_else(|| cm.path_mtu());
    ibv_sa_path_rec {
        dgid: c.route.addr.addr.dgid,
        sgid: c.route.addr.addr.sgid,
        flow_label: flow_label.to_be(),
        hop_limit,
        traffic_class,
        reversible: 1,
        numb_path: 1,
        pkey: c.route.addr.addr.pkey,
        mtu_selector: EXACTLY,
        mtu: port::mtu(mtu) as u8,
        rate_selector: EXACTLY,
        rate: rate(cm.context().and_then(|context| context.query_port().speed)),
        packet_life_time_selector: EXACTLY,
        packet_life_time: LIFE_TIME,
        ..ibv_sa_path_rec::zeroed()
    }
}

/// `enum ibv_rate` of so many Mbit/s, as the kernel rounds them for Ethernet; 0: that of the port,
/// whatever it is.
const fn rate(mbps: Option<u32>) -> u8 {
    match mbps {
        Some(40_000..) => 7,
        Some(30_000..) => 4,
        Some(20_000..) => 6,
        Some(10_000..) => 3,
        Some(_) | None => 0,
    }
}

fn timeout(milliseconds: c_int) -> Duration {
    Duration::from_millis(u64::try_from(milliseconds).unwrap_or(0))
}

unsafe extern "C" fn rdma_bind_addr(id: *mut rdma_cm_id, own: *mut sockaddr) -> c_int {
    errno::minus_one(bind(id, own))
}

pub(super) unsafe fn bind(id: *mut rdma_cm_id, own: *const sockaddr) -> Result<()> {
    let id = Id::get(id)?;
    id.cm()?.bind_addr(address::read(own)?)?;
    id.fill()
}

unsafe extern "C" fn rdma_listen(id: *mut rdma_cm_id, backlog: c_int) -> c_int {
    errno::minus_one(Id::get(id).and_then(|id| {
        id.cm()?.listen(usize::try_from(backlog).unwrap_or(0))?;
        id.fill()
    }))
}

unsafe fn start_addr(
    id: *mut rdma_cm_id,
    own: *const sockaddr,
    peer: *const sockaddr,
    milliseconds: c_int,
) -> Result<()> {
    let (own, peer) = (address::optional(own)?, address::read(peer)?);
    Id::get(id)?.cm()?.resolve_addr(own, peer, timeout(milliseconds))?;
    Ok(())
}

pub(super) unsafe extern "C-unwind" fn rdma_resolve_addr(
    id: *mut rdma_cm_id,
    own: *mut sockaddr,
    peer: *mut sockaddr,
    milliseconds: c_int,
) -> c_int {
    match errno::minus_one(start_addr(id, own, peer, milliseconds)) {
        0 => complete(id),
        failed => failed,
    }
}

unsafe fn start_route(id: *mut rdma_cm_id, milliseconds: c_int) -> Result<()> {
    Id::get(id)?.cm()?.resolve_route(timeout(milliseconds)).map_err(Errno::from)
}

pub(super) unsafe extern "C-unwind" fn rdma_resolve_route(
    id: *mut rdma_cm_id,
    milliseconds: c_int,
) -> c_int {
    match errno::minus_one(start_route(id, milliseconds)) {
        0 => complete(id),
        failed => failed,
    }
}

/// In network byte order, as its counterpart below.
unsafe extern "C" fn rdma_get_src_port(id: *mut rdma_cm_id) -> u16 {
    id.as_ref().map_or(0, |id| address::port(&id.route.addr.src_addr))
}

unsafe extern "C" fn rdma_get_dst_port(id: *mut rdma_cm_id) -> u16 {
    id.as_ref().map_or(0, |id| address::port(&id.route.addr.dst_addr))
}

export!(
    rdma_bind_addr,
    rdma_listen,
    rdma_resolve_addr,
    rdma_resolve_route,
    rdma_get_src_port,
    rdma_get_dst_port
);
