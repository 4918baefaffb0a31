use std::{
    ffi::{c_int, c_void},
    net::IpAddr,
};

use libc::sockaddr;
use roce_provider::{calls::Call, cm::JoinFlags, transport::addr::Gid};

use super::{address, get_event::wait_for_event, id::Id, registry};
use crate::{
    call::{self, CallId},
    errno::{Errno, Result, refuse_if},
    export::export,
    layout::{consts::*, ibv_gid, rdma_cm_id, rdma_cm_join_mc_attr_ex},
    objects::{mcast::ibv_detach_mcast, object::Object},
    rule::Rule,
};

/// Address and flags, both required.
const JOIN_ATTRS: u32 = RDMA_CM_JOIN_MC_ATTR_ADDRESS | RDMA_CM_JOIN_MC_ATTR_JOIN_FLAGS;

unsafe fn join(
    id: *mut rdma_cm_id,
    group: *const sockaddr,
    flags: JoinFlags,
    context: *mut c_void,
) -> Result<()> {
    let _call = Call::begin();
    let object = Id::get(id)?;
    let cm = object.cm()?;
    let ip: IpAddr = address::read(group)?.ip();
    refuse_if(cm.is_member(ip), Rule::Joined)?;
    // the event may come before this returns
    registry::enter_group(object.serial, ip, context as usize, flags == JoinFlags::FullMember);
    cm.join_multicast_ex(ip, flags).map_err(|error| {
        registry::leave_group(object.serial, ip);
        error.into()
    })
}

unsafe extern "C-unwind" fn rdma_join_multicast(
    id: *mut rdma_cm_id,
    group: *mut sockaddr,
    context: *mut c_void,
) -> c_int {
    call::waiting(CallId::rdma_join_multicast, || {
        join(id, group, JoinFlags::FullMember, context)?;
        wait_for_event(id)
    })
}

unsafe fn join_as(
    id: *mut rdma_cm_id,
    attr: *const rdma_cm_join_mc_attr_ex,
    context: *mut c_void,
) -> Result<()> {
    let attr = attr
        .as_ref()
        .filter(|attr| attr.comp_mask == JOIN_ATTRS)
        .ok_or(Errno::of(Rule::Members))?;
    let flags = match attr.join_flags {
        RDMA_MC_JOIN_FLAG_FULLMEMBER => JoinFlags::FullMember,
        RDMA_MC_JOIN_FLAG_SENDONLY_FULLMEMBER => JoinFlags::SendOnlyFullMember,
        _ => return Err(Errno::of(Rule::Members)),
    };
    join(id, attr.addr, flags, context)
}

unsafe extern "C-unwind" fn rdma_join_multicast_ex(
    id: *mut rdma_cm_id,
    attr: *mut rdma_cm_join_mc_attr_ex,
    context: *mut c_void,
) -> c_int {
    call::waiting(CallId::rdma_join_multicast_ex, || {
        join_as(id, attr, context)?;
        wait_for_event(id)
    })
}

unsafe extern "C" fn rdma_leave_multicast(id: *mut rdma_cm_id, group: *mut sockaddr) -> c_int {
    call::control(CallId::rdma_leave_multicast, || {
        let object = Id::get(id)?;
        let ip = address::read(group)?.ip();
        object.cm()?.leave_multicast(ip)?;
        let left = registry::leave_group(object.serial, ip);
        if !(*id).qp.is_null() && left.is_some_and(|group| group.receives) {
            // perhaps detached by the program, or never attached
            ibv_detach_mcast((*id).qp, &ibv_gid { raw: Gid::from(ip).0 }, 0);
        }
        Ok(())
    })
}

export!(rdma_join_multicast, rdma_join_multicast_ex, rdma_leave_multicast);
