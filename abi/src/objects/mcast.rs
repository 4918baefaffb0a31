use std::ffi::c_int;

use roce_provider::transport::addr::Gid;

use super::{object::Object, qp::Qp};
use crate::{
    call::{self, CallId},
    errno::Errno,
    export::export,
    layout::{ibv_gid, ibv_qp},
    rule::Rule,
};

/// The LID is ignored.
pub(crate) unsafe extern "C" fn ibv_attach_mcast(
    qp: *mut ibv_qp,
    group: *const ibv_gid,
    _lid: u16,
) -> c_int {
    call::control(CallId::ibv_attach_mcast, || {
        let qp = Qp::get(qp)?;
        let group = Gid(group.as_ref().ok_or(Errno::of(Rule::NullArgument))?.raw);
        let mut groups = qp.groups.lock();
        if !groups.contains(&group) {
            qp.qp.attach_mcast(group)?;
            groups.push(group);
        }
        Ok(())
    })
}

pub(crate) unsafe extern "C" fn ibv_detach_mcast(
    qp: *mut ibv_qp,
    group: *const ibv_gid,
    _lid: u16,
) -> c_int {
    call::control(CallId::ibv_detach_mcast, || {
        let qp = Qp::get(qp)?;
        let group = Gid(group.as_ref().ok_or(Errno::of(Rule::NullArgument))?.raw);
        let mut groups = qp.groups.lock();
        qp.qp.detach_mcast(group)?;
        groups.retain(|&other| other != group);
        Ok(())
    })
}

export!(ibv_attach_mcast, ibv_detach_mcast);
