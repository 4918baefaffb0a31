use std::net::IpAddr;

use libc::sockaddr;
use roce_provider::{cm::JoinFlags, transport::addr::Gid};

use super::{address, get_event::wait_after, id::Id, registry};
use crate::{objects::qp::ibv_detach_mcast, prelude::*};

/// Address and flags, both required.
const JOIN_ATTRS: u32 = RDMA_CM_JOIN_MC_ATTR_ADDRESS | RDMA_CM_JOIN_MC_ATTR_JOIN_FLAGS;

unsafe fn join(
    id: *mut rdma_cm_id,
    group: *const sockaddr,
    flags: JoinFlags,
    context: *mut c_void,
) -> Result<()> {
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

waiting_calls!(
    fn rdma_join_multicast(
        id: *mut rdma_cm_id,
        group: *mut sockaddr,
        context: *mut c_void,
    ) -> c_int {
        wait_after(id, || join(id, group, JoinFlags::FullMember, context))
    }

    fn rdma_join_multicast_ex(
        id: *mut rdma_cm_id,
        attr: *mut rdma_cm_join_mc_attr_ex,
        context: *mut c_void,
    ) -> c_int {
        wait_after(id, || {
            let attr =
                attr.as_ref().filter(|attr| attr.comp_mask == JOIN_ATTRS).ok_or(Rule::Members)?;
            let flags = match attr.join_flags {
                RDMA_MC_JOIN_FLAG_FULLMEMBER => JoinFlags::FullMember,
                RDMA_MC_JOIN_FLAG_SENDONLY_FULLMEMBER => JoinFlags::SendOnlyFullMember,
                _ => return Err(Errno::of(Rule::Members)),
            };
            join(id, attr.addr, flags, context)
        })
    }
);

calls!(
    fn rdma_leave_multicast(id: *mut rdma_cm_id, group: *mut sockaddr) -> c_int {
        let object = Id::get(id)?;
        let ip = address::read(group)?.ip();
        object.cm()?.leave_multicast(ip)?;
        let left = registry::leave_group(object.serial, ip);
        if !(*id).qp.is_null() && left.is_some_and(|group| group.receives) {
            // perhaps detached by the program, or never attached
            ibv_detach_mcast((*id).qp, &ibv_gid { raw: Gid::from(ip).0 }, 0);
        }
        Ok(())
    }
);
