use std::{collections::BTreeMap, ptr};

use roce_provider::transport::qp::QpType;

use super::id::Id;
use crate::{
    hooks::check::records,
    objects::{
        channel::{ibv_create_comp_channel, ibv_destroy_comp_channel},
        cq::{Cq, ibv_create_cq, ibv_destroy_cq},
        qp::{Qp, ibv_destroy_qp},
        qp_create::ibv_create_qp_ex,
        srq, xrc,
    },
    prelude::*,
    sync::Mutex,
    translate::qp::{init_attr_from_c, state_to_c, type_from_c, with_pd},
};

/// The failed call has explained itself.
fn check<T>(pointer: *mut T) -> Result<*mut T> {
    if pointer.is_null() { Err(Errno::plain(Errno::last().number())) } else { Ok(pointer) }
}

/// The queue's context is the id.
unsafe fn create_cq(
    id: *mut rdma_cm_id,
    size: u32,
) -> Result<(*mut ibv_cq, *mut ibv_comp_channel)> {
    let size = c_int::try_from(size).map_err(|_| Rule::CqSize)?;
    let channel = check(ibv_create_comp_channel((*id).verbs))?;
    let cq = check(ibv_create_cq((*id).verbs, size, id.cast::<c_void>(), channel, 0));
    let cq = cq.inspect_err(|_| {
        ibv_destroy_comp_channel(channel);
    })?;
    Ok((cq, channel))
}

/// Unless in use.
unsafe fn destroy_cqs(id: *mut rdma_cm_id) {
    for (cq, channel) in [
        (&raw mut (*id).send_cq, &raw mut (*id).send_cq_channel),
        (&raw mut (*id).recv_cq, &raw mut (*id).recv_cq_channel),
    ] {
        if !(*cq).is_null() && ibv_destroy_cq(*cq) == 0 {
            ibv_destroy_comp_channel(*channel);
            (*cq, *channel) = (ptr::null_mut(), ptr::null_mut());
        }
    }
}

fn differs<T>(given: *mut T, own: *mut T) -> bool {
    !given.is_null() && !own.is_null() && given != own
}

pub(super) unsafe fn create_qp(id: *mut rdma_cm_id, attr: &mut ibv_qp_init_attr_ex) -> Result<()> {
    let object = Id::get(id)?;
    refuse_if((*id).verbs.is_null() || !(*id).qp.is_null(), Rule::IdHasObject)?;
    if attr.comp_mask & IBV_QP_INIT_ATTR_PD == 0 || attr.pd.is_null() {
        attr.comp_mask |= IBV_QP_INIT_ATTR_PD;
        attr.pd = (*id).pd;
    }
    // may be another device's
    let is_foreign = (*attr.pd).context != (*id).verbs;
    let has_others = differs(attr.send_cq, (*id).send_cq) || differs(attr.recv_cq, (*id).recv_cq);
    refuse_if(is_foreign || has_others, Rule::IdHasObject)?;
    let qp_type = type_from_c(attr.qp_type)?;
    if qp_type == QpType::XrcTarget
        && (attr.comp_mask & IBV_QP_INIT_ATTR_XRCD == 0 || attr.xrcd.is_null())
    {
        attr.comp_mask |= IBV_QP_INIT_ATTR_XRCD;
        attr.xrcd = xrcd((*id).verbs)?;
    }
    let done = (|| -> Result<()> {
        let needs_one = |given: *mut ibv_cq, own: *mut ibv_cq, size: u32| {
            qp_type != QpType::XrcTarget && given.is_null() && own.is_null() && size > 0
        };
        if needs_one(attr.send_cq, (*id).send_cq, attr.cap.max_send_wr) {
            ((*id).send_cq, (*id).send_cq_channel) = create_cq(id, attr.cap.max_send_wr)?;
        }
        if needs_one(attr.recv_cq, (*id).recv_cq, attr.cap.max_recv_wr) {
            ((*id).recv_cq, (*id).recv_cq_channel) = create_cq(id, attr.cap.max_recv_wr)?;
        }
        attr.send_cq = if attr.send_cq.is_null() { (*id).send_cq } else { attr.send_cq };
        attr.recv_cq = if attr.recv_cq.is_null() { (*id).recv_cq } else { attr.recv_cq };
        attr.srq = if attr.srq.is_null() { (*id).srq } else { attr.srq };
        for cq in [attr.send_cq, attr.recv_cq].into_iter().filter(|cq| !cq.is_null()) {
            Cq::get(cq)?.cq.prefer_first_shard();
        }
        let qp = check(ibv_create_qp_ex((*id).verbs, attr))?;
        let made = &Qp::get(qp)?.qp;
        if let Err(error) = object.cm()?.adopt_qp(made) {
            ibv_destroy_qp(qp);
            return Err(error.into());
        }
        (*qp).state = state_to_c(made.query().state);
        ((*id).qp, (*id).pd) = (qp, attr.pd);
        Ok(())
    })();
    if done.is_err() {
        destroy_cqs(id);
    }
    done
}

calls!(
    fn rdma_create_qp_ex(id: *mut rdma_cm_id, attr: *mut ibv_qp_init_attr_ex) -> c_int {
        let mut full = init_attr_from_c(attr)?;
        create_qp(id, &mut full)?;
        let ibv_qp_init_attr_ex { send_cq, recv_cq, srq, cap, comp_mask, pd, xrcd, .. } = full;
        ((*attr).send_cq, (*attr).recv_cq, (*attr).srq) = (send_cq, recv_cq, srq);
        ((*attr).cap, (*attr).comp_mask, (*attr).pd, (*attr).xrcd) = (cap, comp_mask, pd, xrcd);
        Ok(())
    }

    fn rdma_create_qp(id: *mut rdma_cm_id, pd: *mut ibv_pd, attr: *mut ibv_qp_init_attr) -> c_int {
        let attr = attr.as_mut().ok_or(Rule::NullArgument)?;
        create_plain_qp(id, pd, attr)
    }

    fn rdma_destroy_qp(id: *mut rdma_cm_id) {
        let Ok(object) = Id::get(id) else { return };
        if (*id).qp.is_null() {
            return;
        }
        if let Ok(cm) = object.cm() {
            cm.destroy_qp();
        }
        ibv_destroy_qp((*id).qp);
        (*id).qp = ptr::null_mut();
        destroy_cqs(id);
    }

    fn rdma_create_srq_ex(id: *mut rdma_cm_id, attr: *mut ibv_srq_init_attr_ex) -> c_int {
        let mut full = srq::init_attr_from_c(attr)?;
        let srq = create_srq(id, &mut full)?;
        ((*id).srq, (*id).pd) = (srq, full.pd);
        ((*attr).attr, (*attr).comp_mask, (*attr).pd) = (full.attr, full.comp_mask, full.pd);
        ((*attr).xrcd, (*attr).cq) = (full.xrcd, full.cq);
        Ok(())
    }

    fn rdma_create_srq(
        id: *mut rdma_cm_id,
        pd: *mut ibv_pd,
        attr: *mut ibv_srq_init_attr,
    ) -> c_int {
        let attr = attr.as_mut().ok_or(Rule::NullArgument)?;
        let is_xrc = !id.is_null() && type_from_c((*id).qp_type) == Ok(QpType::XrcTarget);
        let mut full = ibv_srq_init_attr_ex {
            srq_context: attr.srq_context,
            attr: attr.attr,
            comp_mask: IBV_SRQ_INIT_ATTR_TYPE | IBV_SRQ_INIT_ATTR_PD,
            srq_type: if is_xrc { IBV_SRQT_XRC } else { IBV_SRQT_BASIC },
            pd,
            ..ibv_srq_init_attr_ex::zeroed()
        };
        let srq = create_srq(id, &mut full)?;
        ((*id).srq, (*id).pd) = (srq, full.pd);
        attr.attr = full.attr;
        Ok(())
    }

    fn rdma_destroy_srq(id: *mut rdma_cm_id) {
        if Id::get(id).is_err() || (*id).srq.is_null() || srq::ibv_destroy_srq((*id).srq) != 0 {
            return;
        }
        (*id).srq = ptr::null_mut();
        if (*id).qp.is_null() {
            destroy_cqs(id);
        }
    }
);

pub(super) unsafe fn create_plain_qp(
    id: *mut rdma_cm_id,
    pd: *mut ibv_pd,
    attr: &mut ibv_qp_init_attr,
) -> Result<()> {
    let mut full = with_pd(attr, pd);
    create_qp(id, &mut full)?;
    let ibv_qp_init_attr_ex { send_cq, recv_cq, srq, cap, .. } = full;
    *attr = ibv_qp_init_attr { send_cq, recv_cq, srq, cap, ..*attr };
    Ok(())
}

/// Default XRC domain of a device's ids.
unsafe fn xrcd(verbs: *mut ibv_context) -> Result<*mut ibv_xrcd> {
    /// By context, which is never closed.
    static SHARED: Mutex<BTreeMap<usize, usize>> = Mutex::new(BTreeMap::new());
    let mut shared = SHARED.lock();
    if let Some(&xrcd) = shared.get(&(verbs as usize)) {
        return Ok(xrcd as *mut ibv_xrcd);
    }
    // -1: no file
    let comp_mask = IBV_XRCD_INIT_ATTR_FD | IBV_XRCD_INIT_ATTR_OFLAGS;
    let mut attr = ibv_xrcd_init_attr { comp_mask, fd: -1, oflags: libc::O_CREAT };
    let xrcd = check(records::for_itself(|| xrc::ibv_open_xrcd(verbs, &raw mut attr)))?;
    shared.insert(verbs as usize, xrcd as usize);
    Ok(xrcd)
}

unsafe fn create_srq(id: *mut rdma_cm_id, attr: &mut ibv_srq_init_attr_ex) -> Result<*mut ibv_srq> {
    Id::get(id)?;
    let has_type = attr.comp_mask & IBV_SRQ_INIT_ATTR_TYPE != 0;
    refuse_if((*id).verbs.is_null() || !(*id).srq.is_null() || !has_type, Rule::IdHasObject)?;
    if attr.comp_mask & IBV_SRQ_INIT_ATTR_PD == 0 || attr.pd.is_null() {
        attr.comp_mask |= IBV_SRQ_INIT_ATTR_PD;
        attr.pd = (*id).pd;
    }
    let mut made_cq = false;
    if attr.srq_type == IBV_SRQT_XRC {
        if attr.comp_mask & IBV_SRQ_INIT_ATTR_XRCD == 0 || attr.xrcd.is_null() {
            attr.comp_mask |= IBV_SRQ_INIT_ATTR_XRCD;
            attr.xrcd = xrcd((*id).verbs)?;
        }
        if attr.comp_mask & IBV_SRQ_INIT_ATTR_CQ == 0 || attr.cq.is_null() {
            made_cq = (*id).recv_cq.is_null();
            if made_cq {
                ((*id).recv_cq, (*id).recv_cq_channel) = create_cq(id, attr.attr.max_wr)?;
            }
            attr.comp_mask |= IBV_SRQ_INIT_ATTR_CQ;
            attr.cq = (*id).recv_cq;
        }
    }
    check(srq::ibv_create_srq_ex((*id).verbs, attr)).inspect_err(|_| {
        if made_cq {
            destroy_cqs(id);
        }
    })
}
