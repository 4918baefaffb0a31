use std::time::Duration;

use libc::sockaddr;

use roce_provider::calls::Call;

use super::{address, get_event::wait_after, id::Id};
use crate::prelude::*;

fn timeout(milliseconds: c_int) -> Duration {
    Duration::from_millis(u64::try_from(milliseconds).unwrap_or(0))
}

calls!(
    fn rdma_bind_addr(id: *mut rdma_cm_id, local: *mut sockaddr) -> c_int {
        bind(id, local)
    }

    fn rdma_listen(id: *mut rdma_cm_id, backlog: c_int) -> c_int {
        let id = Id::get(id)?;
        id.cm()?.listen(usize::try_from(backlog).unwrap_or(0))?;
        id.fill()
    }
);

pub(super) unsafe fn bind(id: *mut rdma_cm_id, local: *const sockaddr) -> Result<()> {
    let id = Id::get(id)?;
    id.cm()?.bind_addr(address::read(local)?)?;
    id.fill()
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

waiting_calls!(
    fn rdma_resolve_addr(
        id: *mut rdma_cm_id,
        local: *mut sockaddr,
        peer: *mut sockaddr,
        milliseconds: c_int,
    ) -> c_int {
        wait_after(id, || start_addr(id, local, peer, milliseconds))
    }

    fn rdma_resolve_route(id: *mut rdma_cm_id, milliseconds: c_int) -> c_int {
        wait_after(id, || start_route(id, milliseconds))
    }
);

pub(super) unsafe fn start_route(id: *mut rdma_cm_id, milliseconds: c_int) -> Result<()> {
    let _call = Call::begin();
    Id::get(id)?.cm()?.resolve_route(timeout(milliseconds)).map_err(Errno::from)
}

/// Network byte order.
unsafe extern "C" fn rdma_get_src_port(id: *mut rdma_cm_id) -> u16 {
    if id.is_null() { 0 } else { address::port(&(*id).route.addr.src_addr) }
}

unsafe extern "C" fn rdma_get_dst_port(id: *mut rdma_cm_id) -> u16 {
    if id.is_null() { 0 } else { address::port(&(*id).route.addr.dst_addr) }
}

export!(rdma_get_src_port, rdma_get_dst_port);
