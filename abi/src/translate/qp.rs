use std::mem::offset_of;

use roce_provider::transport::qp::{PathMigration, QpCaps, QpInfo, QpType, State};

use super::{address, mtu, number::numbers};
use crate::prelude::*;

numbers! {
    type_from_c, type_to_c: QpType {
        IBV_QPT_RC Rc,
        IBV_QPT_UC Uc,
        IBV_QPT_UD Ud,
        IBV_QPT_XRC_SEND XrcInitiator,
        IBV_QPT_XRC_RECV XrcTarget,
        IBV_QPT_RAW_PACKET RawPacket,
    }
    IBV_QPT_DRIVER => OtherQpType,
    _ => QpType,
}

numbers! {
    state_from_c, state_to_c: State {
        IBV_QPS_RESET Reset,
        IBV_QPS_INIT Init,
        IBV_QPS_RTR Rtr,
        IBV_QPS_RTS Rts,
        IBV_QPS_SQD Sqd,
        IBV_QPS_SQE Sqe,
        IBV_QPS_ERR Err,
    }
    _ => QpState,
}

numbers! {
    path_migration_from_c, path_migration_to_c: PathMigration {
        IBV_MIG_MIGRATED Migrated,
        IBV_MIG_REARM Rearm,
        IBV_MIG_ARMED Armed,
    }
    _ => Migration,
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
