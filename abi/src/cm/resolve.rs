use std::time::Duration;

use libc::sockaddr;

use roce_provider::calls::Call;

use super::{address, get_event::wait_after, id::Id};
use crate::prelude::*;

fn timeout(milliseconds: c_int) -> Duration {
    Duration::from_millis(u64::try_from(milliseconds).unwrap_or(0))
}

unsafe extern "C" fn rdma_bind_addr(id: *mut rdma_cm_id, local: *mut sockaddr) -> c_int {
    call::control(CallId::rdma_bind_addr, || bind(id, local))
}

pub(super) unsafe fn bind(id: *mut rdma_cm_id, local: *const sockaddr) -> Result<()> {
    let id = Id::get(id)?;
    id.cm()?.bind_addr(address::read(local)?)?;
    id.fill()
}

unsafe extern "C" fn rdma_listen(id: *mut rdma_cm_id, backlog: c_int) -> c_int {
    call::control(CallId::rdma_listen, || {
        let id = Id::get(id)?;
        id.cm()?.listen(usize::try_from(backlog).unwrap_or(0))?;
        id.fill()
    })
}

pub(super) unsafe fn start_addr(
    id: *mut rdma_cm_id,
    local: *const sockaddr,
    peer: *const sockaddr,
    milliseconds: c_int,
) -> Result<()> {
    let _call = Call::begin();
    let (local, peer) = (address::optional(local)?, address::read(peer)?);
    Id::get(id)?.cm()?.resolve_addr(local, peer, timeout(milliseconds))?;
    Ok(())
}

pub(super) unsafe extern "C-unwind" fn rdma_resolve_addr(
    id: *mut rdma_cm_id,
    local: *mut sockaddr,
    peer: *mut sockaddr,
    milliseconds: c_int,
) -> c_int {
    wait_after(CallId::rdma_resolve_addr, id, || start_addr(id, local, peer, milliseconds))
}

pub(super) unsafe fn start_route(id: *mut rdma_cm_id, milliseconds: c_int) -> Result<()> {
    let _call = Call::begin();
    Id::get(id)?.cm()?.resolve_route(timeout(milliseconds)).map_err(Errno::from)
}

pub(super) unsafe extern "C-unwind" fn rdma_resolve_route(
    id: *mut rdma_cm_id,
    milliseconds: c_int,
) -> c_int {
    wait_after(CallId::rdma_resolve_route, id, || start_route(id, milliseconds))
}

/// Network byte order.
unsafe extern "C" fn rdma_get_src_port(id: *mut rdma_cm_id) -> u16 {
    if id.is_null() { 0 } else { address::port(&(*id).route.addr.src_addr) }
}

unsafe extern "C" fn rdma_get_dst_port(id: *mut rdma_cm_id) -> u16 {
    if id.is_null() { 0 } else { address::port(&(*id).route.addr.dst_addr) }
}

export!(
    rdma_bind_addr,
    rdma_listen,
    rdma_resolve_addr,
    rdma_resolve_route,
    rdma_get_src_port,
    rdma_get_dst_port
);
