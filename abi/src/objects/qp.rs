use std::{cell::UnsafeCell, sync::Arc};

use roce_provider::{
    QueuePair,
    transport::{
        addr::Gid,
        mem::RKey,
        qp::{QpCaps, QpInfo, QpType},
        work::SendWr,
    },
};

use super::{
    batch::Batch,
    context::ContextInner,
    object::{User, Users, impl_object},
    xrc::Target,
};
use crate::{
    hooks::check::{
        Kind,
        requests::{self, QpKey},
        single,
    },
    prelude::*,
    sync::Mutex,
    translate::{
        event::Subject,
        qp::{QP_ATTR, attributes, type_to_c},
    },
};

#[repr(C)]
pub(crate) struct Qp {
    c: UnsafeCell<ibv_qp_ex>,
    pub(crate) qp: QueuePair,
    pub(crate) qp_type: QpType,
    pub(crate) caps: QpCaps,
    pub(crate) ctx: Arc<ContextInner>,
    /// Attached groups prevent destruction.
    groups: Mutex<Vec<Gid>>,
    /// Flows prevent destruction.
    pub(crate) users: Users,
    /// Created for `ibv_wr_start`.
    pub(crate) is_extended: bool,
    pub(crate) batch: Batch<Requests>,
    pub(crate) sq_sig_all: bool,
    target: Option<Arc<Target>>,
    _made_from: Vec<User>,
}

// `ibv_qp_ex` starts with `ibv_qp`.
impl_object!(Qp, ibv_qp, context, handle);

/// Requests of a batch; none after an error.
#[derive(Default)]
pub(crate) struct Requests {
    pub(crate) wrs: Vec<SendWr>,
    /// Bound windows, and their new keys.
    pub(crate) keys: Vec<(*mut ibv_mw, RKey)>,
    pub(crate) error: Option<Errno>,
}

impl Qp {
    pub(crate) unsafe fn create_raw(
        qp: QueuePair,
        target: Option<Arc<Target>>,
        _made_from: Vec<User>,
        ctx: &Arc<ContextInner>,
        attr: &ibv_qp_init_attr_ex,
        context: *mut ibv_context,
        set_operations: fn(&mut ibv_qp_ex, QpType, u64),
    ) -> *mut ibv_qp {
        let QpInfo { qpn, qp_type, caps, .. } = qp.query();
        let mut c = ibv_qp_ex::zeroed();
        c.qp_base = ibv_qp {
            context,
            qp_context: attr.qp_context,
            pd: attr.pd,
            send_cq: attr.send_cq,
            recv_cq: attr.recv_cq,
            srq: attr.srq,
            handle: ctx.new_handle(),
            qp_num: qpn.get(),
            state: IBV_QPS_RESET,
            qp_type: type_to_c(qp_type),
            mutex: libc::PTHREAD_MUTEX_INITIALIZER,
            cond: libc::PTHREAD_COND_INITIALIZER,
            events_completed: 0,
        };
        let send_ops =
            (attr.comp_mask & IBV_QP_INIT_ATTR_SEND_OPS_FLAGS != 0).then_some(attr.send_ops_flags);
        if let Some(send_ops) = send_ops {
            set_operations(&mut c, qp_type, send_ops);
        }
        let qp = Self {
            c: UnsafeCell::new(c),
            qp,
            qp_type,
            caps,
            ctx: ctx.clone(),
            groups: Mutex::default(),
            users: Users::default(),
            is_extended: send_ops.is_some(),
            batch: Batch::new(Requests::default()),
            sq_sig_all: attr.sq_sig_all != 0,
            target,
            _made_from,
        };
        let qp = qp.into_raw();
        single::made_with(qp as usize, attr.pd as usize);
        ctx.add_object(Subject::Qp(qpn.get()), qp as usize);
        if qp_type != QpType::XrcTarget {
            requests::add_qp((ctx.device(), qpn.get()), || requests::NewQp {
                qp: (*qp.cast::<Self>()).qp.clone(),
                send_cq: attr.send_cq as usize,
                recv_cq: attr.recv_cq as usize,
                srq: Some(attr.srq as usize).filter(|srq| *srq != 0),
                max_send: caps.max_send_wr as usize,
            });
        }
        qp
    }

    pub(crate) fn key(&self) -> QpKey {
        (self.ctx.device(), self.qp.qpn().get())
    }
}

calls!(
    fn ibv_destroy_qp(qp: *mut ibv_qp) -> c_int {
        call::destroy::<Qp>(qp, |object| {
            refuse_if(!object.groups.lock().is_empty(), Rule::StillUsed)?;
            object.users.none_left()?;
            if object.target.as_ref().is_none_or(|target| Arc::strong_count(target) == 1) {
                object.qp.discard_completions();
            }
            let subject = Subject::Qp(object.qp.qpn().get());
            object.ctx.remove_object(subject, qp as usize, Kind::AsyncEventsUnacknowledged);
            requests::remove_qp(object.key());
            Ok(())
        })
    }

    fn ibv_query_qp(
        qp: *mut ibv_qp,
        attr: *mut ibv_qp_attr,
        mask: c_int,
        init: *mut ibv_qp_init_attr,
    ) -> c_int {
        let object = Qp::get(qp)?;
        let mask = mask as u32;
        refuse_if(mask >= IBV_QP_RATE_LIMIT, Rule::QpMask)?;
        let found = attributes(&object.qp.query());
        refuse_if(attr.is_null(), Rule::NullArgument)?;
        copy_sized(&found, attr, QP_ATTR);
        if mask & IBV_QP_STATE != 0 {
            (*qp).state = found.qp_state;
        }
        if !init.is_null() {
            let ibv_qp { qp_context, send_cq, recv_cq, srq, qp_type, .. } = *qp;
            let (cap, sq_sig_all) = (found.cap, object.sq_sig_all.into());
            *init =
                ibv_qp_init_attr { qp_context, send_cq, recv_cq, srq, cap, qp_type, sq_sig_all };
        }
        Ok(())
    }

    /// The LID is ignored.
    fn ibv_attach_mcast(qp: *mut ibv_qp, group: *const ibv_gid, _lid: u16) -> c_int {
        let qp = Qp::get(qp)?;
        let group = Gid(group.as_ref().ok_or(Rule::NullArgument)?.raw);
        let mut groups = qp.groups.lock();
        if !groups.contains(&group) {
            qp.qp.attach_mcast(group)?;
            groups.push(group);
        }
        Ok(())
    }

    fn ibv_detach_mcast(qp: *mut ibv_qp, group: *const ibv_gid, _lid: u16) -> c_int {
        let qp = Qp::get(qp)?;
        let group = Gid(group.as_ref().ok_or(Rule::NullArgument)?.raw);
        let mut groups = qp.groups.lock();
        qp.qp.detach_mcast(group)?;
        groups.retain(|&other| other != group);
        Ok(())
    }
);
