//! Queue pair transitions: attribute masks become typed attributes.
//!
//! Source: table "QP state transition properties" (11.2.4.2): required attributes here, optional
//! ones in the transport.

use roce_provider::{
    QueuePair,
    transport::{
        addr::{QKey, Qpn},
        psn::Psn,
        qp::{
            Attribute, Init, ModifyError, PeerAttr, QpInfo, QpType, QpUpdate, RequesterAttr,
            ResponderAttr, Rtr, Rts, State, is_legal, optional_attributes,
        },
    },
};

use super::qp::Qp;
use crate::{
    hooks::check::{self, Kind, requests, settings},
    prelude::*,
    translate::{
        address, mtu,
        qp::{attr_from_c, path_migration_from_c, state_from_c},
        rights,
    },
};

/// `EOPNOTSUPP` for newer attributes.
const fn known(mask: c_int) -> Result<u32> {
    let mask = mask as u32;
    if mask >= IBV_QP_DEST_QPN << 1 { Err(Errno::of(Rule::QpMask)) } else { Ok(mask) }
}

const fn bit(attribute: Attribute) -> u32 {
    match attribute {
        Attribute::CurrentState => IBV_QP_CUR_STATE,
        Attribute::PKeyIndex => IBV_QP_PKEY_INDEX,
        Attribute::Access => IBV_QP_ACCESS_FLAGS,
        Attribute::QKey => IBV_QP_QKEY,
        Attribute::Av => IBV_QP_AV,
        Attribute::Timeout => IBV_QP_TIMEOUT,
        Attribute::RetryCnt => IBV_QP_RETRY_CNT,
        Attribute::RnrRetry => IBV_QP_RNR_RETRY,
        Attribute::MaxRdAtomic => IBV_QP_MAX_QP_RD_ATOMIC,
        Attribute::MaxDestRdAtomic => IBV_QP_MAX_DEST_RD_ATOMIC,
        Attribute::MinRnrTimer => IBV_QP_MIN_RNR_TIMER,
        Attribute::AltPath => IBV_QP_ALT_PATH,
        Attribute::PathMigration => IBV_QP_PATH_MIG_STATE,
    }
}

/// Attributes that this end of XRC lacks; the kernel ignores them.
const fn ignored(qp_type: QpType) -> u32 {
    match qp_type {
        QpType::XrcInitiator => IBV_QP_MAX_DEST_RD_ATOMIC | IBV_QP_MIN_RNR_TIMER,
        QpType::XrcTarget => IBV_QP_MAX_QP_RD_ATOMIC | IBV_QP_RETRY_CNT | IBV_QP_RNR_RETRY,
        _ => 0,
    }
}

pub(crate) const fn required(qp_type: QpType, from: State, to: State) -> u32 {
    match (qp_type, from, to) {
        (QpType::RawPacket, State::Reset, State::Init) => IBV_QP_PORT,
        (QpType::Ud, State::Reset, State::Init) => IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_QKEY,
        (_, State::Reset, State::Init) => IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_ACCESS_FLAGS,
        (QpType::Uc | QpType::XrcInitiator, State::Init, State::Rtr) => {
            IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_DEST_QPN | IBV_QP_RQ_PSN
        }
        (QpType::Rc | QpType::XrcTarget, State::Init, State::Rtr) => {
            IBV_QP_AV
                | IBV_QP_PATH_MTU
                | IBV_QP_DEST_QPN
                | IBV_QP_RQ_PSN
                | IBV_QP_MAX_DEST_RD_ATOMIC
                | IBV_QP_MIN_RNR_TIMER
        }
        (QpType::Uc | QpType::Ud, State::Rtr, State::Rts) => IBV_QP_SQ_PSN,
        (QpType::Rc | QpType::XrcInitiator, State::Rtr, State::Rts) => {
            IBV_QP_TIMEOUT
                | IBV_QP_RETRY_CNT
                | IBV_QP_RNR_RETRY
                | IBV_QP_SQ_PSN
                | IBV_QP_MAX_QP_RD_ATOMIC
        }
        (QpType::XrcTarget, State::Rtr, State::Rts) => IBV_QP_TIMEOUT | IBV_QP_SQ_PSN,
        _ => 0,
    }
}

/// The transport has no port or notification attribute.
fn optional(qp_type: QpType, from: State, to: State) -> u32 {
    let others = match (from, to) {
        _ if qp_type == QpType::RawPacket => 0,
        (State::Init, State::Init) => IBV_QP_PORT,
        (State::Sqd, State::Sqd) if qp_type.is_reliable() => IBV_QP_PORT,
        (State::Rts, State::Sqd) => IBV_QP_EN_SQD_ASYNC_NOTIFY,
        _ => 0,
    };
    optional_attributes(qp_type, from, to)
        .iter()
        .fold(others, |mask, &attribute| mask | bit(attribute))
}

/// `Stay`: same state, no change.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Transition {
    Stay,
    Init(Init),
    Rtr(Rtr, QpUpdate),
    Rts(Rts, QpUpdate),
    Sqd { notify: bool },
    Change(QpUpdate),
    Error,
    Reset,
}

impl Transition {
    fn of(qp_type: QpType, from: State, attr: &ibv_qp_attr, mask: u32) -> Result<Self> {
        let mask = mask & !ignored(qp_type);
        let to = if mask & IBV_QP_STATE != 0 { state_from_c(attr.qp_state)? } else { from };
        let (required, optional) = (required(qp_type, from, to), optional(qp_type, from, to));
        let illegal = ModifyError::IllegalTransition { qp_type, from, to };
        refuse_if(!is_legal(qp_type, from, to), Rule::Modify(illegal))?;
        let missing = required & !mask;
        refuse_if(missing != 0, Rule::MissingAttributes { qp_type, from, to, mask: missing })?;
        let extra = mask & !(required | optional | IBV_QP_STATE);
        refuse_if(extra != 0, Rule::ExtraAttributes { qp_type, from, to, mask: extra })?;
        refuse_if(mask & IBV_QP_PORT != 0 && attr.port_num != 1, Rule::Port)?;
        let changes = changes(attr, mask & optional)?;
        Ok(match (from, to) {
            (_, State::Reset) if mask & IBV_QP_STATE == 0 => Self::Stay,
            (_, State::Reset) => Self::Reset,
            (_, State::Err) if mask & IBV_QP_STATE == 0 => Self::Stay,
            (_, State::Err) => Self::Error,
            (State::Reset, State::Init) => Self::Init(init(attr, mask)?),
            (State::Init, State::Rtr) => Self::Rtr(rtr(qp_type, attr)?, changes),
            (State::Rtr, State::Rts) => Self::Rts(rts(qp_type, attr), changes),
            (State::Rts | State::Sqd | State::Sqe, State::Rts) => Self::Rts(Rts::Resume, changes),
            (State::Rts, State::Sqd) => Self::Sqd {
                notify: mask & IBV_QP_EN_SQD_ASYNC_NOTIFY != 0 && attr.en_sqd_async_notify != 0,
            },
            (State::Init, State::Init) | (State::Sqd, State::Sqd) => Self::Change(changes),
            _ => return Err(Errno::of(Rule::Modify(illegal))),
        })
    }

    fn apply(self, qp: &QueuePair) -> Result<()> {
        match self {
            Self::Stay => return Ok(()),
            Self::Init(init) => qp.to_init(init),
            Self::Rtr(rtr, changes) => qp.to_rtr_with(rtr, changes),
            Self::Rts(rts, changes) => qp.to_rts_with(rts, changes),
            Self::Sqd { notify } => qp.to_sqd(notify),
            Self::Change(changes) => qp.update(changes),
            Self::Error => qp.to_error(),
            Self::Reset => qp.to_reset().inspect(|()| qp.discard_completions()),
        }?;
        Ok(())
    }
}

fn init(attr: &ibv_qp_attr, mask: u32) -> Result<Init> {
    let access = if mask & IBV_QP_ACCESS_FLAGS != 0 {
        rights::from_c(attr.qp_access_flags)?
    } else {
        Default::default()
    };
    let qkey = if mask & IBV_QP_QKEY != 0 { QKey(attr.qkey) } else { QKey::default() };
    let pkey_index = if mask & IBV_QP_PKEY_INDEX != 0 { attr.pkey_index } else { 0 };
    Ok(Init { pkey_index, access, qkey })
}

fn rtr(qp_type: QpType, attr: &ibv_qp_attr) -> Result<Rtr> {
    match qp_type {
        // other members may be uninitialized
        QpType::Ud => return Ok(Rtr::Ud),
        QpType::RawPacket => return Ok(Rtr::RawPacket),
        _ => {}
    }
    let ibv_qp_attr { max_dest_rd_atomic, min_rnr_timer, .. } = *attr;
    let peer = PeerAttr {
        dest_qpn: Qpn::new(attr.dest_qp_num),
        path_mtu: mtu::from_c(attr.path_mtu)?,
        rq_psn: Psn::new(attr.rq_psn),
        av: address::from_c(&attr.ah_attr)?,
    };
    Ok(Rtr::new(qp_type, peer, ResponderAttr { max_dest_rd_atomic, min_rnr_timer }))
}

fn rts(qp_type: QpType, attr: &ibv_qp_attr) -> Rts {
    let ibv_qp_attr { timeout, retry_cnt, rnr_retry, max_rd_atomic, .. } = *attr;
    let requester = RequesterAttr { timeout, retry_cnt, rnr_retry, max_rd_atomic };
    Rts::new(qp_type, Psn::new(attr.sq_psn), requester)
}

fn changes(attr: &ibv_qp_attr, mask: u32) -> Result<QpUpdate> {
    let given = |bit: u32| mask & bit != 0;
    let number = |bit: u32, value: u8| given(bit).then_some(value);
    Ok(QpUpdate {
        current_state: given(IBV_QP_CUR_STATE)
            .then(|| state_from_c(attr.cur_qp_state))
            .transpose()?,
        pkey_index: given(IBV_QP_PKEY_INDEX).then_some(attr.pkey_index),
        access: given(IBV_QP_ACCESS_FLAGS)
            .then(|| rights::from_c(attr.qp_access_flags))
            .transpose()?,
        qkey: given(IBV_QP_QKEY).then_some(QKey(attr.qkey)),
        av: given(IBV_QP_AV).then(|| address::from_c(&attr.ah_attr)).transpose()?,
        timeout: number(IBV_QP_TIMEOUT, attr.timeout),
        retry_cnt: number(IBV_QP_RETRY_CNT, attr.retry_cnt),
        rnr_retry: number(IBV_QP_RNR_RETRY, attr.rnr_retry),
        max_rd_atomic: number(IBV_QP_MAX_QP_RD_ATOMIC, attr.max_rd_atomic),
        max_dest_rd_atomic: number(IBV_QP_MAX_DEST_RD_ATOMIC, attr.max_dest_rd_atomic),
        min_rnr_timer: number(IBV_QP_MIN_RNR_TIMER, attr.min_rnr_timer),
        alt_path: given(IBV_QP_ALT_PATH).then(|| address::from_c(&attr.alt_ah_attr)).transpose()?,
        path_migration: given(IBV_QP_PATH_MIG_STATE)
            .then(|| path_migration_from_c(attr.path_mig_state))
            .transpose()?,
    })
}

calls!(
    fn ibv_modify_qp(qp: *mut ibv_qp, attr: *mut ibv_qp_attr, mask: c_int) -> c_int {
        let object = Qp::get(qp)?;
        let (attr, mask) = (attr_from_c(attr)?, known(mask)?);
        let QpInfo { qp_type, state, .. } = object.qp.query();
        let transition = Transition::of(qp_type, state, &attr, mask);
        transition.map_err(|error| error.on(&object.qp, "ibv_modify_qp"))?.apply(&object.qp)?;
        if mask & IBV_QP_STATE != 0 {
            (*qp).state = attr.qp_state;
        }
        checked(object, &attr, mask);
        Ok(())
    }
);

fn checked(qp: &Qp, attr: &ibv_qp_attr, mask: u32) {
    if !check::is_on() {
        return;
    }
    if mask & IBV_QP_STATE != 0 && attr.qp_state == IBV_QPS_RESET {
        requests::reset_qp(qp.key());
    }
    if qp.qp_type != QpType::XrcTarget {
        let qpn = qp.qp.qpn().get();
        for (bit, value, kind) in [
            (IBV_QP_TIMEOUT, attr.timeout, Kind::TimeoutZero),
            (IBV_QP_RETRY_CNT, attr.retry_cnt, Kind::RetryZero),
            (IBV_QP_MIN_RNR_TIMER, attr.min_rnr_timer, Kind::RnrTimerZero),
        ] {
            if mask & bit != 0 && value == 0 {
                check::emit_here(kind, "called", format!("qp {qpn:#x}: ibv_modify_qp"));
            }
        }
        if mask & IBV_QP_STATE != 0 && matches!(attr.qp_state, IBV_QPS_RTR | IBV_QPS_RTS) {
            settings::connected(qpn);
        }
    }
}

operations!(
    /// Only raw packet queue pairs have a rate limit; here none.
    fn ibv_modify_qp_rate_limit(_qp: *mut ibv_qp, _attr: *mut ibv_qp_rate_limit_attr) -> c_int {
        Err::<(), _>(Errno::of(Rule::RateLimit))
    }
);

#[cfg(test)]
mod tests;
