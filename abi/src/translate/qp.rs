use std::{ffi::c_uint, mem::offset_of};

use roce_provider::transport::qp::{PathMigration, QpCaps, QpInfo, QpType, State};

use super::{address, mtu};
use crate::{
    errno::{Errno, Result},
    layout::{
        consts::*, ibv_ah_attr, ibv_pd, ibv_qp_attr, ibv_qp_cap, ibv_qp_init_attr,
        ibv_qp_init_attr_ex, read_sized,
    },
    rule::Rule,
};

pub(crate) const fn type_from_c(number: c_uint) -> Result<QpType> {
    match number {
        IBV_QPT_RC => Ok(QpType::Rc),
        IBV_QPT_UC => Ok(QpType::Uc),
        IBV_QPT_UD => Ok(QpType::Ud),
        IBV_QPT_XRC_SEND => Ok(QpType::XrcInitiator),
        IBV_QPT_XRC_RECV => Ok(QpType::XrcTarget),
        IBV_QPT_RAW_PACKET => Ok(QpType::RawPacket),
        IBV_QPT_DRIVER => Err(Errno::of(Rule::OtherQpType)),
        _ => Err(Errno::of(Rule::QpType)),
    }
}

pub(crate) const fn type_to_c(qp_type: QpType) -> c_uint {
    match qp_type {
        QpType::Rc => IBV_QPT_RC,
        QpType::Uc => IBV_QPT_UC,
        QpType::Ud => IBV_QPT_UD,
        QpType::XrcInitiator => IBV_QPT_XRC_SEND,
        QpType::XrcTarget => IBV_QPT_XRC_RECV,
        QpType::RawPacket => IBV_QPT_RAW_PACKET,
    }
}

pub(crate) const fn state_from_c(number: c_uint) -> Result<State> {
    match number {
        IBV_QPS_RESET => Ok(State::Reset),
        IBV_QPS_INIT => Ok(State::Init),
        IBV_QPS_RTR => Ok(State::Rtr),
        IBV_QPS_RTS => Ok(State::Rts),
        IBV_QPS_SQD => Ok(State::Sqd),
        IBV_QPS_SQE => Ok(State::Sqe),
        IBV_QPS_ERR => Ok(State::Err),
        _ => Err(Errno::of(Rule::QpState)),
    }
}

pub(crate) const fn state_to_c(state: State) -> c_uint {
    match state {
        State::Reset => IBV_QPS_RESET,
        State::Init => IBV_QPS_INIT,
        State::Rtr => IBV_QPS_RTR,
        State::Rts => IBV_QPS_RTS,
        State::Sqd => IBV_QPS_SQD,
        State::Sqe => IBV_QPS_SQE,
        State::Err => IBV_QPS_ERR,
    }
}

pub(crate) const fn path_migration_from_c(number: c_uint) -> Result<PathMigration> {
    match number {
        IBV_MIG_MIGRATED => Ok(PathMigration::Migrated),
        IBV_MIG_REARM => Ok(PathMigration::Rearm),
        IBV_MIG_ARMED => Ok(PathMigration::Armed),
        _ => Err(Errno::of(Rule::Migration)),
    }
}

const fn path_migration_to_c(state: PathMigration) -> c_uint {
    match state {
        PathMigration::Migrated => IBV_MIG_MIGRATED,
        PathMigration::Rearm => IBV_MIG_REARM,
        PathMigration::Armed => IBV_MIG_ARMED,
    }
}

pub(crate) const fn caps_from_c(cap: &ibv_qp_cap) -> QpCaps {
    let ibv_qp_cap { max_send_wr, max_recv_wr, max_send_sge, max_recv_sge, max_inline_data } = *cap;
    QpCaps { max_send_wr, max_recv_wr, max_send_sge, max_recv_sge, max_inline_data }
}

pub(crate) const fn caps_to_c(caps: &QpCaps) -> ibv_qp_cap {
    let QpCaps { max_send_wr, max_recv_wr, max_send_sge, max_recv_sge, max_inline_data } = *caps;
    ibv_qp_cap { max_send_wr, max_recv_wr, max_send_sge, max_recv_sge, max_inline_data }
}

pub(crate) fn attributes(info: &QpInfo) -> ibv_qp_attr {
    let state = state_to_c(info.state);
    ibv_qp_attr {
        qp_state: state,
        cur_qp_state: state,
        path_mtu: mtu::to_c(info.path_mtu),
        path_mig_state: path_migration_to_c(info.path_migration),
        qkey: info.qkey.0,
        rq_psn: info.rq_psn.get(),
        sq_psn: info.sq_psn.get(),
        dest_qp_num: info.dest_qpn.get(),
        qp_access_flags: info.access.bits(),
        cap: caps_to_c(&info.caps),
        ah_attr: info.av.map_or(ibv_ah_attr::zeroed(), |av| address::to_c(&av)),
        pkey_index: info.pkey_index,
        sq_draining: info.sq_draining.into(),
        max_rd_atomic: info.requester.max_rd_atomic,
        max_dest_rd_atomic: info.responder.max_dest_rd_atomic,
        min_rnr_timer: info.responder.min_rnr_timer,
        port_num: 1,
        timeout: info.requester.timeout,
        retry_cnt: info.requester.retry_cnt,
        rnr_retry: info.requester.rnr_retry,
        ..ibv_qp_attr::zeroed()
    }
}

/// Without `rate_limit`: older programs lack it, and no queue pair here has it.
pub(crate) const QP_ATTR: usize = offset_of!(ibv_qp_attr, rate_limit);

pub(crate) unsafe fn attr_from_c(attr: *const ibv_qp_attr) -> Result<ibv_qp_attr> {
    read_sized(attr, ibv_qp_attr::zeroed(), |_| QP_ATTR).ok_or(Errno::of(Rule::NullArgument))
}

/// Reads attributes up to the first unknown member.
pub(crate) unsafe fn init_attr_from_c(
    attr: *const ibv_qp_init_attr_ex,
) -> Result<ibv_qp_init_attr_ex> {
    read_sized(attr, ibv_qp_init_attr_ex::zeroed(), |attr| match (*attr).comp_mask {
        mask if mask & IBV_QP_INIT_ATTR_SEND_OPS_FLAGS != 0 => size_of::<ibv_qp_init_attr_ex>(),
        mask if mask & IBV_QP_INIT_ATTR_CREATE_FLAGS != 0 => {
            offset_of!(ibv_qp_init_attr_ex, max_tso_header)
        }
        // the mask always came with these
        _ => offset_of!(ibv_qp_init_attr_ex, create_flags),
    })
    .ok_or(Errno::of(Rule::NullArgument))
}

pub(crate) fn with_pd(attr: &ibv_qp_init_attr, pd: *mut ibv_pd) -> ibv_qp_init_attr_ex {
    let ibv_qp_init_attr { qp_context, send_cq, recv_cq, srq, cap, qp_type, sq_sig_all } = *attr;
    ibv_qp_init_attr_ex {
        qp_context,
        send_cq,
        recv_cq,
        srq,
        cap,
        qp_type,
        sq_sig_all,
        comp_mask: IBV_QP_INIT_ATTR_PD,
        pd,
        ..ibv_qp_init_attr_ex::zeroed()
    }
}
