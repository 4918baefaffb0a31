use std::sync::Arc;

use roce_provider::{
    QpInitAttr,
    transport::qp::{QpType, Quirks},
};

use super::{
    context::Ctx,
    cq::Cq,
    pd::Pd,
    qp::Qp,
    qp_ex,
    srq::Srq,
    xrc::{Target, Xrcd},
};
use crate::{
    prelude::*,
    translate::qp::{caps_from_c, caps_to_c, init_attr_from_c, state_to_c, type_from_c, with_pd},
};

/// Most inline bytes given unasked.
const MAX_INLINE_GIVEN: u32 = 512;

unsafe fn create(context: *mut ibv_context, attr: &mut ibv_qp_init_attr_ex) -> Result<*mut ibv_qp> {
    let known = IBV_QP_INIT_ATTR_PD
        | IBV_QP_INIT_ATTR_XRCD
        | IBV_QP_INIT_ATTR_CREATE_FLAGS
        | IBV_QP_INIT_ATTR_SEND_OPS_FLAGS;
    refuse_if(attr.comp_mask & !known != 0, Rule::UnknownMask)?;
    let has_flags = attr.comp_mask & IBV_QP_INIT_ATTR_CREATE_FLAGS != 0 && attr.create_flags != 0;
    refuse_if(has_flags, Rule::CreateFlags)?;
    let qp_type = type_from_c(attr.qp_type)?;
    let mut min_inline = 0;
    if attr.comp_mask & IBV_QP_INIT_ATTR_SEND_OPS_FLAGS != 0 {
        qp_ex::check_operations(qp_type, attr.send_ops_flags)?;
        min_inline = qp_ex::inline_needed(attr.send_ops_flags);
    }
    if qp_type == QpType::XrcTarget {
        return create_target(context, attr);
    }
    refuse_if(attr.comp_mask & IBV_QP_INIT_ATTR_PD == 0, Rule::NeedsDomain)?;
    let pd = Pd::get(attr.pd)?;
    let send_cq = Cq::get(attr.send_cq)?;
    let is_initiator = qp_type == QpType::XrcInitiator;
    let recv_cq = if is_initiator { send_cq } else { Cq::get(attr.recv_cq)? };
    let srq = Srq::get_optional(attr.srq)?;
    // the kernel's handles belong to one context
    let contexts = [Some(&send_cq.ctx), Some(&recv_cq.ctx), srq.map(Srq::context)];
    let are_several = contexts.into_iter().flatten().any(|ctx| !ctx.is_one_with(&pd.ctx));
    refuse_if(are_several, Rule::OtherContext)?;
    let mut caps = caps_from_c(&attr.cap);
    // elements give inline room, as on other devices: programs send inline without requesting it
    let room = caps.max_send_sge.saturating_mul(size_of::<ibv_sge>() as u32).min(MAX_INLINE_GIVEN);
    let given = min_inline.max(room).min(pd.ctx.context.limits().max_inline_data);
    caps.max_inline_data = caps.max_inline_data.max(given);
    if is_initiator || srq.is_some() {
        (caps.max_recv_wr, caps.max_recv_sge) = (0, 0);
    }
    let qp = pd.domain.create_qp(&QpInitAttr {
        qp_type,
        send_cq: send_cq.cq.clone(),
        recv_cq: recv_cq.cq.clone(),
        srq: srq.map(|srq| srq.srq.clone()),
        caps,
        sq_sig_all: attr.sq_sig_all != 0,
        quirks: Quirks::default(),
    })?;
    attr.cap = caps_to_c(&caps);
    let mut made_from = vec![pd.users.add(), send_cq.users.add(), recv_cq.users.add()];
    made_from.extend(srq.map(|srq| srq.users.add()));
    Ok(Qp::create_raw(qp, None, made_from, &pd.ctx, attr, context, qp_ex::set_operations))
}

unsafe fn create_target(
    context: *mut ibv_context,
    attr: &mut ibv_qp_init_attr_ex,
) -> Result<*mut ibv_qp> {
    refuse_if(attr.comp_mask & IBV_QP_INIT_ATTR_XRCD == 0, Rule::NeedsXrcDomain)?;
    let xrcd = Xrcd::get(attr.xrcd)?;
    let target = xrcd.create_target()?;
    attr.cap = caps_to_c(&target.qp.query().caps);
    let none = ibv_qp_init_attr_ex {
        qp_context: attr.qp_context,
        comp_mask: attr.comp_mask,
        send_ops_flags: attr.send_ops_flags,
        ..ibv_qp_init_attr_ex::zeroed()
    };
    Ok(open_target(target, xrcd, &none, context))
}

unsafe fn open_target(
    target: Arc<Target>,
    xrcd: &Xrcd,
    attr: &ibv_qp_init_attr_ex,
    context: *mut ibv_context,
) -> *mut ibv_qp {
    let (qp, made_from) = (target.qp.clone(), vec![xrcd.users.add()]);
    let target = Some(target);
    Qp::create_raw(qp, target, made_from, &xrcd.ctx, attr, context, qp_ex::set_operations)
}

operations!(
    fn ibv_open_qp(context: *mut ibv_context, attr: *mut ibv_qp_open_attr) -> *mut ibv_qp {
        let attr = attr.as_ref().ok_or(Rule::NullArgument)?;
        let needed = IBV_QP_OPEN_ATTR_NUM | IBV_QP_OPEN_ATTR_XRCD | IBV_QP_OPEN_ATTR_TYPE;
        refuse_if(attr.comp_mask & !(needed | IBV_QP_OPEN_ATTR_CONTEXT) != 0, Rule::UnknownMask)?;
        if attr.comp_mask & needed != needed || type_from_c(attr.qp_type)? != QpType::XrcTarget {
            return Err(Errno::of(Rule::NoTarget));
        }
        let xrcd = Xrcd::get(attr.xrcd)?;
        let target = xrcd.find_target(attr.qp_num).ok_or(Rule::NoTarget)?;
        let mut new = ibv_qp_init_attr_ex::zeroed();
        if attr.comp_mask & IBV_QP_OPEN_ATTR_CONTEXT != 0 {
            new.qp_context = attr.qp_context;
        }
        let qp = open_target(target, xrcd, &new, context);
        (*qp).state = state_to_c(Qp::get(qp)?.qp.query().state);
        Ok(qp)
    }

    fn ibv_create_qp_ex(context: *mut ibv_context, attr: *mut ibv_qp_init_attr_ex) -> *mut ibv_qp {
        Ctx::get(context)?;
        let mut full = init_attr_from_c(attr)?;
        let qp = create(context, &mut full)?;
        (*attr).cap = full.cap;
        Ok(qp)
    }
);

calls!(
    fn ibv_create_qp(pd: *mut ibv_pd, attr: *mut ibv_qp_init_attr) -> *mut ibv_qp {
        let mut full = with_pd(attr.as_ref().ok_or(Rule::NullArgument)?, pd);
        let qp = create(Pd::get(pd)?.context(), &mut full)?;
        (*attr).cap = full.cap;
        Ok(qp)
    }
);
