//! What moves a queue pair that a program moves by itself.

use std::ffi::{c_int, c_uint};

use roce_provider::{
    cm::{CmId, IdState, UDP_QKEY},
    transport::{cm::QpSetup, qp::QpType},
};

use super::id::Id;
use crate::{
    ah,
    errno::{self, Errno, Result},
    export::export,
    layout::{cm::rdma_cm_id, verbs::ibv_qp_attr},
    object::Object,
    port,
};

/// `enum ibv_qp_state`.
const INIT: c_uint = 1;
const RTR: c_uint = 2;
const RTS: c_uint = 3;

/// `enum ibv_qp_attr_mask`.
const STATE: c_uint = 1;
const ACCESS_FLAGS: c_uint = 1 << 3;
const PKEY_INDEX: c_uint = 1 << 4;
const PORT: c_uint = 1 << 5;
const QKEY: c_uint = 1 << 6;
const AV: c_uint = 1 << 7;
const PATH_MTU: c_uint = 1 << 8;
const TIMEOUT: c_uint = 1 << 9;
const RETRY_CNT: c_uint = 1 << 10;
const RNR_RETRY: c_uint = 1 << 11;
const RQ_PSN: c_uint = 1 << 12;
const MAX_QP_RD_ATOMIC: c_uint = 1 << 13;
const MIN_RNR_TIMER: c_uint = 1 << 15;
const SQ_PSN: c_uint = 1 << 16;
const MAX_DEST_RD_ATOMIC: c_uint = 1 << 17;
const DEST_QPN: c_uint = 1 << 20;

/// `IBV_ACCESS_REMOTE_WRITE`, and with it `IBV_ACCESS_REMOTE_READ` and `IBV_ACCESS_REMOTE_ATOMIC`.
const REMOTE_WRITE: c_uint = 1 << 1;
const REMOTE_ALL: c_uint = 1 << 1 | 1 << 2 | 1 << 3;

unsafe fn init_qp_attr(cm: &CmId, attr: &mut ibv_qp_attr) -> Result<c_uint> {
    let qp_type = cm.qp_type();
    let setup = cm.qp_setup().filter(|_| qp_type != QpType::Ud);
    match (attr.qp_state, setup) {
        (INIT, setup) => init(cm, qp_type, setup, attr),
        (RTR, Some(setup)) => Ok(to_rtr(qp_type, &setup, attr)),
        (RTS, Some(setup)) => Ok(to_rts(qp_type, &setup, attr)),
        // a datagram queue pair needs nothing more, and gets what it has
        (RTR, None) if qp_type == QpType::Ud => init(cm, qp_type, None, attr),
        (RTS, None) if qp_type == QpType::Ud => Ok(init(cm, qp_type, None, attr)? | SQ_PSN),
        _ => Err(Errno::INVAL),
    }
}

fn init(
    cm: &CmId,
    qp_type: QpType,
    setup: Option<QpSetup>,
    attr: &mut ibv_qp_attr,
) -> Result<c_uint> {
    if cm.context().is_none() || matches!(cm.state(), IdState::Idle | IdState::Listening) {
        return Err(Errno::INVAL);
    }
    (attr.pkey_index, attr.port_num) = (0, 1);
    if qp_type == QpType::Ud {
        attr.qkey = UDP_QKEY.0;
        return Ok(STATE | PKEY_INDEX | PORT | QKEY);
    }
    let answers = setup.is_none_or(|setup| setup.max_dest_rd_atomic > 0);
    attr.qp_access_flags = if answers { REMOTE_ALL } else { REMOTE_WRITE };
    Ok(STATE | PKEY_INDEX | PORT | ACCESS_FLAGS)
}

fn to_rtr(qp_type: QpType, setup: &QpSetup, attr: &mut ibv_qp_attr) -> c_uint {
    attr.ah_attr = ah::attributes(&setup.av);
    attr.path_mtu = setup.path_mtu.map_or(attr.path_mtu, port::mtu);
    attr.dest_qp_num = setup.dest_qpn.get();
    attr.rq_psn = setup.rq_psn.get();
    let mask = STATE | AV | PATH_MTU | DEST_QPN | RQ_PSN;
    if !matches!(qp_type, QpType::Rc | QpType::XrcTarget) {
        return mask;
    }
    (attr.max_dest_rd_atomic, attr.min_rnr_timer) = (setup.max_dest_rd_atomic, setup.min_rnr_timer);
    mask | MAX_DEST_RD_ATOMIC | MIN_RNR_TIMER
}

fn to_rts(qp_type: QpType, setup: &QpSetup, attr: &mut ibv_qp_attr) -> c_uint {
    attr.sq_psn = setup.sq_psn.get();
    (attr.timeout, attr.retry_cnt, attr.rnr_retry) =
        (setup.timeout, setup.retry_cnt, setup.rnr_retry);
    attr.max_rd_atomic = setup.max_rd_atomic;
    let mask = STATE | SQ_PSN;
    match qp_type {
        QpType::Uc | QpType::Ud => mask,
        QpType::XrcTarget => mask | TIMEOUT,
        QpType::Rc | QpType::XrcInitiator => {
            mask | TIMEOUT | RETRY_CNT | RNR_RETRY | MAX_QP_RD_ATOMIC
        }
    }
}

unsafe extern "C" fn rdma_init_qp_attr(
    id: *mut rdma_cm_id,
    attr: *mut ibv_qp_attr,
    mask: *mut c_int,
) -> c_int {
    errno::minus_one(Id::get(id).and_then(|id| {
        let (Some(attr), Some(mask)) = (attr.as_mut(), mask.as_mut()) else {
            return Err(Errno::INVAL);
        };
        *mask = init_qp_attr(&id.cm()?, attr)? as c_int;
        Ok(())
    }))
}

export!(rdma_init_qp_attr);
