//! `rdma_init_qp_attr`.

use roce_provider::{
    cm::{CmId, IdState, UDP_QKEY},
    transport::{
        cm::QpSetup,
        qp::{QpType, State},
    },
};

use super::id::Id;
use crate::{
    objects::modify::required,
    prelude::*,
    translate::{
        address, mtu,
        qp::{QP_ATTR, attr_from_c},
    },
};

const REMOTE_ALL: c_uint =
    IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_READ | IBV_ACCESS_REMOTE_ATOMIC;

fn init_qp_attr(cm: &CmId, attr: &mut ibv_qp_attr) -> Result<c_uint> {
    let qp_type = cm.qp_type();
    let setup = cm.qp_setup().filter(|_| qp_type != QpType::Ud);
    match (attr.qp_state, setup) {
        (IBV_QPS_INIT, setup) => init(cm, qp_type, setup, attr),
        (IBV_QPS_RTR, Some(setup)) => Ok(to_rtr(qp_type, &setup, attr)),
        (IBV_QPS_RTS, Some(setup)) => Ok(to_rts(qp_type, &setup, attr)),
        // a datagram queue pair needs nothing more
        (IBV_QPS_RTR, None) if qp_type == QpType::Ud => init(cm, qp_type, None, attr),
        (IBV_QPS_RTS, None) if qp_type == QpType::Ud => {
            Ok(init(cm, qp_type, None, attr)? | IBV_QP_SQ_PSN)
        }
        _ => Err(Errno::of(Rule::IdWithoutDevice)),
    }
}

fn init(
    cm: &CmId,
    qp_type: QpType,
    setup: Option<QpSetup>,
    attr: &mut ibv_qp_attr,
) -> Result<c_uint> {
    let is_unbound = matches!(cm.state(), IdState::Idle | IdState::Listening);
    refuse_if(cm.context().is_none() || is_unbound, Rule::IdWithoutDevice)?;
    (attr.pkey_index, attr.port_num) = (0, 1);
    if qp_type == QpType::Ud {
        attr.qkey = UDP_QKEY.0;
        return Ok(mask(qp_type, State::Reset, State::Init));
    }
    let responds = setup.is_none_or(|setup| setup.max_dest_rd_atomic > 0);
    attr.qp_access_flags = if responds { REMOTE_ALL } else { IBV_ACCESS_REMOTE_WRITE };
    Ok(mask(qp_type, State::Reset, State::Init))
}

fn to_rtr(qp_type: QpType, setup: &QpSetup, attr: &mut ibv_qp_attr) -> c_uint {
    attr.ah_attr = address::to_c(&setup.av);
    attr.path_mtu = setup.path_mtu.map_or(attr.path_mtu, mtu::to_c);
    attr.dest_qp_num = setup.dest_qpn.get();
    attr.rq_psn = setup.rq_psn.get();
    let mask = mask(qp_type, State::Init, State::Rtr);
    if mask & IBV_QP_MAX_DEST_RD_ATOMIC != 0 {
        attr.max_dest_rd_atomic = setup.max_dest_rd_atomic;
        attr.min_rnr_timer = setup.min_rnr_timer;
    }
    mask
}

fn to_rts(qp_type: QpType, setup: &QpSetup, attr: &mut ibv_qp_attr) -> c_uint {
    attr.sq_psn = setup.sq_psn.get();
    (attr.timeout, attr.retry_cnt, attr.rnr_retry) =
        (setup.timeout, setup.retry_cnt, setup.rnr_retry);
    attr.max_rd_atomic = setup.max_rd_atomic;
    mask(qp_type, State::Rtr, State::Rts)
}

const fn mask(qp_type: QpType, from: State, to: State) -> c_uint {
    IBV_QP_STATE | required(qp_type, from, to)
}

calls!(
    fn rdma_init_qp_attr(id: *mut rdma_cm_id, attr: *mut ibv_qp_attr, mask: *mut c_int) -> c_int {
        let id = Id::get(id)?;
        refuse_if(mask.is_null(), Rule::NullArgument)?;
        let mut full = attr_from_c(attr)?;
        *mask = init_qp_attr(&id.cm()?, &mut full)? as c_int;
        copy_sized(&full, attr, QP_ATTR);
        Ok(())
    }
);
