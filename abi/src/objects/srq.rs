use std::{cell::UnsafeCell, mem::offset_of, sync::Arc};

use roce_provider::{SharedReceiveQueue, transport::work::SrqAttr};

use super::{
    context::{ContextInner, Ctx},
    cq::Cq,
    object::{User, Users, impl_object},
    pd::Pd,
    xrc::Xrcd,
};
use crate::{
    hooks::check::{Kind, requests},
    prelude::*,
    translate::event::Subject,
};

#[repr(C)]
pub(crate) struct Srq {
    c: UnsafeCell<ibv_srq>,
    pub(crate) srq: SharedReceiveQueue,
    pub(crate) max_sge: u32,
    ctx: Arc<ContextInner>,
    pub(crate) users: Users,
    _made_from: Vec<User>,
}

impl_object!(Srq, ibv_srq, context, handle);

impl Srq {
    pub(crate) const fn context(&self) -> &Arc<ContextInner> {
        &self.ctx
    }
}

/// The limit is set later.
unsafe fn create(
    pd: &Pd,
    srq_context: *mut c_void,
    attr: &mut ibv_srq_attr,
    xrc: Option<(&Xrcd, &Cq)>,
) -> Result<*mut ibv_srq> {
    let sizes = SrqAttr { max_wr: attr.max_wr, max_sge: attr.max_sge };
    let srq = match xrc {
        None => pd.domain.create_srq(sizes)?,
        Some((xrcd, cq)) => pd.domain.create_xrc_srq(sizes, xrcd.domain(), &cq.cq)?,
    };
    let made = srq.query().attr;
    (attr.max_wr, attr.max_sge) = (made.max_wr, made.max_sge);
    let mut made_from = vec![pd.users.add()];
    if let Some((xrcd, cq)) = xrc {
        made_from.extend([xrcd.users.add(), cq.users.add()]);
    }
    let c = ibv_srq {
        context: pd.context(),
        srq_context,
        pd: pd.c(),
        handle: pd.ctx.new_handle(),
        mutex: libc::PTHREAD_MUTEX_INITIALIZER,
        cond: libc::PTHREAD_COND_INITIALIZER,
        events_completed: 0,
    };
    let (id, ctx) = (srq.id().get(), pd.ctx.clone());
    let srq = Srq {
        c: UnsafeCell::new(c),
        srq,
        max_sge: made.max_sge,
        ctx,
        users: Users::default(),
        _made_from: made_from,
    }
    .into_raw();
    pd.ctx.add_object(Subject::Srq(id), srq as usize);
    let cq = xrc.map(|(_, cq)| std::ptr::from_ref(cq).addr());
    requests::add_shared(pd.ctx.device(), srq as usize, cq);
    Ok(srq)
}

calls!(
    fn ibv_create_srq(pd: *mut ibv_pd, attr: *mut ibv_srq_init_attr) -> *mut ibv_srq {
        let pd = Pd::get(pd)?;
        let attr = attr.as_mut().ok_or(Rule::NullArgument)?;
        create(pd, attr.srq_context, &mut attr.attr, None)
    }

    fn ibv_destroy_srq(srq: *mut ibv_srq) -> c_int {
        call::destroy::<Srq>(srq, |object| {
            object.users.none_left()?;
            let subject = Subject::Srq(object.srq.id().get());
            object.ctx.remove_object(subject, srq as usize, Kind::AsyncEventsUnacknowledged);
            requests::remove_shared(srq as usize);
            Ok(())
        })
    }

    fn ibv_modify_srq(srq: *mut ibv_srq, attr: *mut ibv_srq_attr, mask: c_int) -> c_int {
        let object = Srq::get(srq)?;
        let (attr, srq) = (attr.as_ref().ok_or(Rule::NullArgument)?, &object.srq);
        let max_wr = if mask & IBV_SRQ_MAX_WR != 0 { attr.max_wr } else { srq.query().attr.max_wr };
        let exceeds = mask & IBV_SRQ_LIMIT != 0 && attr.srq_limit > max_wr;
        refuse_if(mask & !(IBV_SRQ_MAX_WR | IBV_SRQ_LIMIT) != 0 || exceeds, Rule::SrqAttributes)?;
        if mask & IBV_SRQ_MAX_WR != 0 {
            srq.resize(max_wr)?;
        }
        if mask & IBV_SRQ_LIMIT != 0 {
            srq.set_limit(attr.srq_limit)?;
        }
        Ok(())
    }

    fn ibv_query_srq(srq: *mut ibv_srq, attr: *mut ibv_srq_attr) -> c_int {
        let object = Srq::get(srq)?;
        let info = object.srq.query();
        let SrqAttr { max_wr, max_sge } = info.attr;
        *attr.as_mut().ok_or(Rule::NullArgument)? =
            ibv_srq_attr { max_wr, max_sge, srq_limit: info.limit };
        Ok(())
    }
);

/// Omits tag matching, a later member.
pub(crate) unsafe fn init_attr_from_c(
    attr: *const ibv_srq_init_attr_ex,
) -> Result<ibv_srq_init_attr_ex> {
    read_sized(attr, ibv_srq_init_attr_ex::zeroed(), |_| offset_of!(ibv_srq_init_attr_ex, tm_cap))
        .ok_or(Errno::of(Rule::NullArgument))
}

operations!(
    fn ibv_create_srq_ex(
        context: *mut ibv_context,
        attr: *mut ibv_srq_init_attr_ex,
    ) -> *mut ibv_srq {
        Ctx::get(context)?;
        let mut full = init_attr_from_c(attr)?;
        let given = |bit: u32| full.comp_mask & bit != 0;
        let known = IBV_SRQ_INIT_ATTR_TYPE
            | IBV_SRQ_INIT_ATTR_PD
            | IBV_SRQ_INIT_ATTR_XRCD
            | IBV_SRQ_INIT_ATTR_CQ
            | IBV_SRQ_INIT_ATTR_TM;
        refuse_if(full.comp_mask & !known != 0, Rule::UnknownMask)?;
        refuse_if(!given(IBV_SRQ_INIT_ATTR_PD), Rule::NeedsDomain)?;
        let pd = Pd::get(full.pd)?;
        let xrc = match if given(IBV_SRQ_INIT_ATTR_TYPE) { full.srq_type } else { IBV_SRQT_BASIC } {
            IBV_SRQT_BASIC => None,
            IBV_SRQT_XRC if given(IBV_SRQ_INIT_ATTR_XRCD) && given(IBV_SRQ_INIT_ATTR_CQ) => {
                Some((Xrcd::get(full.xrcd)?, Cq::get(full.cq)?))
            }
            IBV_SRQT_TM => return Err(Errno::of(Rule::NotSupported)),
            _ => return Err(Errno::of(Rule::SrqType)),
        };
        let srq = create(pd, full.srq_context, &mut full.attr, xrc)?;
        (*attr).attr = full.attr;
        Ok(srq)
    }

    fn ibv_get_srq_num(srq: *mut ibv_srq, number: *mut u32) -> c_int {
        let object = Srq::get(srq)?;
        *number.as_mut().ok_or(Rule::NullArgument)? =
            object.srq.number().ok_or(Rule::SrqType)?.get();
        Ok(())
    }
);
