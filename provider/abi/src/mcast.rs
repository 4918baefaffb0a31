//! Multicast groups.

use std::ffi::c_int;

use roce_provider::{
    AttachError,
    calls::Call,
    transport::{adapter::McastError, addr::Gid},
};

use crate::{
    errno::{self, Errno, Result},
    export::export,
    layout::{ibv_gid, ibv_qp},
    object::Object,
    qp::Qp,
    rule::Rule,
};

impl From<McastError> for Errno {
    fn from(error: McastError) -> Self {
        match error {
            McastError::TooManyGroups { .. } | McastError::TooManyMembers { .. } => {
                Self::told(libc::ENOMEM)
            }
            _ => Self::told(libc::EINVAL),
        }
    }
}

impl From<AttachError> for Errno {
    fn from(error: AttachError) -> Self {
        match error {
            AttachError::Adapter(error) => error.into(),
            AttachError::Join { source, .. } => source.into(),
            _ => Self::told(libc::EINVAL),
        }
    }
}

/// The LID means nothing here.
pub(crate) unsafe extern "C" fn ibv_attach_mcast(
    qp: *mut ibv_qp,
    group: *const ibv_gid,
    _lid: u16,
) -> c_int {
    let _call = Call::begin();
    errno::status(
        "ibv_attach_mcast",
        Qp::get(qp).and_then(|qp| {
            let group = Gid(group.as_ref().ok_or(Errno::of(Rule::NullArgument))?.raw);
            let mut groups = qp.groups.lock();
            if !groups.contains(&group) {
                qp.qp.attach_mcast(group)?;
                groups.push(group);
            }
            Ok(())
        }),
    )
}

pub(crate) unsafe extern "C" fn ibv_detach_mcast(
    qp: *mut ibv_qp,
    group: *const ibv_gid,
    _lid: u16,
) -> c_int {
    let _call = Call::begin();
    errno::status(
        "ibv_detach_mcast",
        Qp::get(qp).and_then(|qp| -> Result<()> {
            let group = Gid(group.as_ref().ok_or(Errno::of(Rule::NullArgument))?.raw);
            let mut groups = qp.groups.lock();
            qp.qp.detach_mcast(group)?;
            groups.retain(|&other| other != group);
            Ok(())
        }),
    )
}

export!(ibv_attach_mcast, ibv_detach_mcast);
