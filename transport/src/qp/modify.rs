//! Transitions of a queue pair, and what it tells of itself (11.2.4.2, 11.2.4.3).

use super::{
    Qp,
    attr::{Init, MAX_RD_ATOMIC, ModifyError, QpInfo, Rtr, Rts},
    common::Env,
    congestion::Congestion,
    state::{QpType, State, is_legal},
};
use crate::{
    addr::{AddressVector, Mtu, Qpn},
    gids::GidTable,
};

#[allow(clippy::wrong_self_convention, reason = "transitions are named after the state that they lead to")]
impl Qp {
    // Transitions. Each checks everything before it changes anything.

    fn check_edge(&self, to: State) -> Result<(), ModifyError> {
        let (from, qp_type) = (self.common.state, self.common.qp_type);
        if !is_legal(qp_type, from, to) {
            return Err(ModifyError::IllegalTransition { qp_type, from, to });
        }
        if from == State::Sqd && to != State::Err && to != State::Reset && !self.drained {
            return Err(ModifyError::StillDraining);
        }
        Ok(())
    }

    pub(crate) fn to_init(&mut self, init: &Init) -> Result<(), ModifyError> {
        self.check_edge(State::Init)?;
        if init.pkey_index != 0 {
            return Err(ModifyError::PKeyIndex(init.pkey_index));
        }
        self.common.access = init.access;
        self.common.qkey = init.qkey;
        self.common.state = State::Init;
        Ok(())
    }

    pub(crate) fn to_rtr(&mut self, rtr: &Rtr, gids: &GidTable) -> Result<(), ModifyError> {
        self.check_edge(State::Rtr)?;
        match (self.common.qp_type, rtr) {
            (QpType::Ud, Rtr::Ud) => {}
            (QpType::Rc, Rtr::Rc { dest_qpn, path_mtu, rq_psn, av, max_dest_rd_atomic, min_rnr_timer })
            | (QpType::XrcTarget, Rtr::XrcTarget { dest_qpn, path_mtu, rq_psn, av, max_dest_rd_atomic, min_rnr_timer }) => {
                if *min_rnr_timer > 31 {
                    return Err(ModifyError::Range { what: "min_rnr_timer", limit: 31 });
                }
                if *max_dest_rd_atomic > MAX_RD_ATOMIC {
                    return Err(ModifyError::Range { what: "max_dest_rd_atomic", limit: MAX_RD_ATOMIC.into() });
                }
                self.set_peer(*dest_qpn, *path_mtu, av, gids)?;
                self.responder.start(*rq_psn, *max_dest_rd_atomic, *min_rnr_timer);
            }
            (QpType::Uc, Rtr::Uc { dest_qpn, path_mtu, rq_psn, av })
            | (QpType::XrcInitiator, Rtr::XrcInitiator { dest_qpn, path_mtu, rq_psn, av }) => {
                self.set_peer(*dest_qpn, *path_mtu, av, gids)?;
                self.responder.start(*rq_psn, 0, 0);
            }
            (qp_type, _) => return Err(ModifyError::WrongService(qp_type)),
        }
        self.established = false;
        self.common.state = State::Rtr;
        Ok(())
    }

    fn set_peer(&mut self, qpn: Qpn, path_mtu: Mtu, av: &AddressVector, gids: &GidTable) -> Result<(), ModifyError> {
        if path_mtu > gids.port_mtu() {
            return Err(ModifyError::PathMtu { asked: path_mtu, port: gids.port_mtu() });
        }
        let path = gids.path(av, self.common.qpn, qpn).ok_or(ModifyError::GidIndex(av.sgid_index))?;
        self.common.path = Some(path);
        self.common.av = Some(*av);
        self.common.mtu = path_mtu;
        self.common.dest_qpn = qpn;
        Ok(())
    }

    pub(crate) fn to_rts(&mut self, rts: &Rts) -> Result<(), ModifyError> {
        self.check_edge(State::Rts)?;
        match (self.common.state, self.common.qp_type, rts) {
            (State::Rtr, QpType::Ud, Rts::Ud { sq_psn }) | (State::Rtr, QpType::Uc, Rts::Uc { sq_psn }) => {
                self.requester.start_unreliable(*sq_psn);
            }
            (State::Rtr, QpType::XrcTarget, Rts::XrcTarget { timeout: 32.., .. }) => {
                return Err(ModifyError::Range { what: "timeout", limit: 31 });
            }
            (State::Rtr, QpType::XrcTarget, Rts::XrcTarget { sq_psn, .. }) => self.requester.start_unreliable(*sq_psn),
            (State::Rtr, QpType::Rc, Rts::Rc { sq_psn, timeout, retry_cnt, rnr_retry, max_rd_atomic })
            | (State::Rtr, QpType::XrcInitiator, Rts::XrcInitiator { sq_psn, timeout, retry_cnt, rnr_retry, max_rd_atomic }) => {
                for (what, value, limit) in [
                    ("timeout", *timeout, 31),
                    ("retry_cnt", *retry_cnt, 7),
                    ("rnr_retry", *rnr_retry, 7),
                    ("max_rd_atomic", *max_rd_atomic, MAX_RD_ATOMIC),
                ] {
                    if value > limit {
                        return Err(ModifyError::Range { what, limit: limit.into() });
                    }
                }
                self.requester.start(*sq_psn, *timeout, *retry_cnt, *rnr_retry, *max_rd_atomic);
            }
            (State::Sqd | State::Sqe, _, Rts::Resume) => {}
            (_, qp_type, _) => return Err(ModifyError::WrongService(qp_type)),
        }
        self.common.state = State::Rts;
        Ok(())
    }

    pub(crate) fn to_sqd(&mut self, notify: bool, env: &mut Env<'_>) -> Result<(), ModifyError> {
        self.check_edge(State::Sqd)?;
        self.common.state = State::Sqd;
        self.drained = false;
        self.drain_event = notify;
        self.settle(env);
        Ok(())
    }

    pub(crate) fn to_error(&mut self, env: &mut Env<'_>) -> Result<(), ModifyError> {
        self.check_edge(State::Err)?;
        self.fail(env);
        Ok(())
    }

    /// Drops everything that was posted, without completions, and starts anew.
    pub(crate) fn to_reset(&mut self) {
        self.requester.reset();
        self.responder.reset();
        self.congestion = Congestion::default();
        if self.common.qp_type == QpType::XrcTarget {
            self.leave_srq();
        }
        self.common.state = State::Reset;
        self.common.path = None;
        self.common.av = None;
    }

    pub(crate) fn info(&self) -> QpInfo {
        QpInfo {
            qpn: self.common.qpn,
            qp_type: self.common.qp_type,
            state: self.common.state,
            dest_qpn: self.common.dest_qpn,
            path_mtu: self.common.mtu,
            rq_psn: self.responder.expected(),
            sq_psn: self.requester.next_psn(),
            access: self.common.access,
            qkey: self.common.qkey,
            av: self.common.av,
            caps: self.common.caps,
        }
    }
}
