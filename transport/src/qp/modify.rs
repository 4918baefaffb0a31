//! Transitions and queries (11.2.4.2, 11.2.4.3). Each checks everything first.

use super::{
    Qp,
    attr::{Init, PeerAttr, PostedSend, QpInfo, Reliability, Rtr, Rts, SendQueueInfo},
    common::{Admission, Env},
    congestion::Congestion,
    decision::Failure,
    error::ModifyError,
    state::{EDGES, QpType, State, is_legal},
    update::{Attribute, PathMigration, QpUpdate, optional_attributes},
};
use crate::{
    addr::{AddressVector, PKey, QKey},
    congestion::Rate,
    gids::Path,
    ids::Qpn,
    mem::Access,
    work::SrqTable,
};

/// ECN-capable transport (RFC 3168).
const ECT_0: u8 = 2;

struct Checked {
    pkey: Option<(u16, PKey)>,
    access: Option<Access>,
    qkey: Option<QKey>,
    path: Option<(AddressVector, Path)>,
}

#[allow(
    clippy::wrong_self_convention,
    reason = "transitions are named after the state that they lead to"
)]
impl Qp {
    fn check_edge(&self, to: State) -> Result<(), ModifyError> {
        let (from, qp_type) = (self.common.state, self.common.qp_type);
        if !is_legal(qp_type, from, to) {
            return Err(ModifyError::IllegalTransition { qp_type, from, to });
        }
        if self.is_draining() && to != State::Err && to != State::Reset {
            return Err(ModifyError::StillDraining);
        }
        Ok(())
    }

    const fn is_draining(&self) -> bool {
        matches!(self.common.state, State::Sqd) && !self.drained
    }

    /// Checks all but the numbers, which [`Reliability`] checks.
    fn check_changes(
        &self,
        to: State,
        changes: &QpUpdate,
        env: &Env<'_>,
    ) -> Result<Checked, ModifyError> {
        let (from, qp_type) = (self.common.state, self.common.qp_type);
        let taken = optional_attributes(qp_type, from, to);
        if let Some(attribute) = changes.given().find(|attribute| !taken.contains(attribute)) {
            return Err(ModifyError::NotTaken { attribute, qp_type, from, to });
        }
        if changes.current_state.is_some_and(|believed| believed != from) {
            return Err(ModifyError::OtherState(from));
        }
        if changes.alt_path.is_some() {
            return Err(ModifyError::NotSupported(Attribute::AltPath));
        }
        if changes.path_migration.is_some_and(|state| state != PathMigration::Migrated) {
            return Err(ModifyError::NotSupported(Attribute::PathMigration));
        }
        let path = |av: AddressVector| Ok((av, self.path_to(self.common.peer.qpn, &av, env)?));
        Ok(Checked {
            pkey: changes.pkey_index.map(|index| check_pkey(index, env)).transpose()?,
            access: changes.access,
            qkey: changes.qkey,
            path: changes.av.map(path).transpose()?,
        })
    }

    fn apply(&mut self, checked: &Checked) {
        let Checked { pkey, access, qkey, path } = *checked;
        let common = &mut self.common;
        (common.admission.pkey_index, common.admission.pkey) =
            pkey.unwrap_or((common.admission.pkey_index, common.admission.pkey));
        common.admission.access = access.unwrap_or(common.admission.access);
        common.admission.qkey = qkey.unwrap_or(common.admission.qkey);
        if let Some((av, path)) = path {
            common.peer.av = Some(av);
            common.peer.set_path(Some(path));
        }
    }

    pub(crate) fn to_init(&mut self, init: &Init, env: &Env<'_>) -> Result<(), ModifyError> {
        self.check_edge(State::Init)?;
        if [&self.common.completions.send_cq, &self.common.receiving.cq]
            .into_iter()
            .flatten()
            .any(|cq| cq.has_overrun())
        {
            return Err(ModifyError::CqOverrun);
        }
        let Init { pkey_index, access, qkey } = *init;
        let pkey = Some(check_pkey(pkey_index, env)?);
        self.apply(&Checked { pkey, access: Some(access), qkey: Some(qkey), path: None });
        self.common.state = State::Init;
        Ok(())
    }

    pub(crate) fn to_rtr(
        &mut self,
        rtr: &Rtr,
        changes: &QpUpdate,
        env: &Env<'_>,
    ) -> Result<(), ModifyError> {
        self.check_edge(State::Rtr)?;
        let checked = self.check_changes(State::Rtr, changes, env)?;
        let (peer, responder) = match (self.common.qp_type, rtr) {
            (QpType::Ud, Rtr::Ud) | (QpType::RawPacket, Rtr::RawPacket) => (None, None),
            (QpType::Uc, Rtr::Uc(peer)) | (QpType::XrcInitiator, Rtr::XrcInitiator(peer)) => {
                (Some(peer), None)
            }
            (QpType::Rc, Rtr::Rc(peer, responder))
            | (QpType::XrcTarget, Rtr::XrcTarget(peer, responder)) => (Some(peer), Some(responder)),
            (qp_type, _) => return Err(ModifyError::WrongService(qp_type)),
        };
        let mut reliability = self.reliability;
        reliability.responder = responder.copied().unwrap_or(reliability.responder);
        reliability.check(env.resources.rd_atomic)?;
        if let Some(peer) = peer {
            self.set_peer(peer, env)?;
            self.reliability = reliability;
            self.responder.start(peer.rq_psn, responder.unwrap_or(&Reliability::NONE.responder));
        }
        self.apply(&checked);
        self.established = false;
        self.common.state = State::Rtr;
        Ok(())
    }

    fn path_to(&self, qpn: Qpn, av: &AddressVector, env: &Env<'_>) -> Result<Path, ModifyError> {
        if av.dgid.is_multicast() {
            return Err(ModifyError::MulticastPeer(av.dgid));
        }
        if env.resources.gids.is_only_shown(av.sgid_index) {
            return Err(ModifyError::RoceV1(av.sgid_index));
        }
        let path = env.resources.gids.path(av, self.common.qpn, qpn);
        let mut path = path.ok_or(ModifyError::GidIndex(av.sgid_index))?;
        // ECN is only for services that react to CNPs
        if env.resources.congestion.ecn
            && self.common.qp_type.is_reliable()
            && path.net.traffic_class & 3 == 0
        {
            path.net.traffic_class |= ECT_0;
        }
        Ok(path)
    }

    fn set_peer(&mut self, peer: &PeerAttr, env: &Env<'_>) -> Result<(), ModifyError> {
        let PeerAttr { dest_qpn, path_mtu, ref av, .. } = *peer;
        let port = env.resources.gids.port_mtu();
        if path_mtu > port {
            return Err(ModifyError::PathMtu { asked: path_mtu, port });
        }
        self.common.peer.set_path(Some(self.path_to(dest_qpn, av, env)?));
        self.common.peer.av = Some(*av);
        self.common.mtu = path_mtu;
        self.common.peer.qpn = dest_qpn;
        Ok(())
    }

    pub(crate) fn to_rts(
        &mut self,
        rts: &Rts,
        changes: &QpUpdate,
        env: &Env<'_>,
    ) -> Result<(), ModifyError> {
        self.check_edge(State::Rts)?;
        let checked = self.check_changes(State::Rts, changes, env)?;
        let mut reliability = self.reliability.updated(changes);
        match *rts {
            Rts::Rc(_, requester) | Rts::XrcInitiator(_, requester) => {
                reliability.requester = requester;
            }
            Rts::XrcTarget { timeout, .. } => reliability.requester.timeout = timeout,
            Rts::Uc(_) | Rts::Ud(_) | Rts::RawPacket | Rts::Resume => {}
        }
        reliability.check(env.resources.rd_atomic)?;
        match (self.common.state, self.common.qp_type, rts) {
            (State::Rtr, QpType::Ud, Rts::Ud(sq_psn))
            | (State::Rtr, QpType::Uc, Rts::Uc(sq_psn))
            | (State::Rtr, QpType::XrcTarget, Rts::XrcTarget { sq_psn, .. }) => {
                self.requester.start_unreliable(*sq_psn);
            }
            (State::Rtr, QpType::Rc, Rts::Rc(sq_psn, requester))
            | (State::Rtr, QpType::XrcInitiator, Rts::XrcInitiator(sq_psn, requester)) => {
                self.requester.start(*sq_psn, requester, env.resources);
            }
            (State::Rtr, QpType::RawPacket, Rts::RawPacket)
            | (State::Rts | State::Sqd | State::Sqe, _, Rts::Resume) => {}
            (_, qp_type, _) => return Err(ModifyError::WrongService(qp_type)),
        }
        if self.common.state == State::Rtr && self.common.posting.early_posts {
            self.requester.put_early_aside();
        }
        self.responder.min_rnr_timer = reliability.responder.min_rnr_timer;
        self.reliability = reliability;
        self.apply(&checked);
        self.common.state = State::Rts;
        Ok(())
    }

    /// INIT→INIT, RTS→RTS and SQD→SQD.
    pub(crate) fn update(&mut self, changes: &QpUpdate, env: &Env<'_>) -> Result<(), ModifyError> {
        let (state, qp_type) = (self.common.state, self.common.qp_type);
        if !EDGES.contains(&(state, state)) {
            return Err(ModifyError::IllegalTransition { qp_type, from: state, to: state });
        }
        self.check_edge(state)?;
        let checked = self.check_changes(state, changes, env)?;
        let reliability = self.reliability.updated(changes);
        reliability.check(env.resources.rd_atomic)?;
        self.reliability = reliability;
        self.apply(&checked);
        let Reliability { requester, responder } = reliability;
        self.responder.min_rnr_timer = responder.min_rnr_timer;
        // the rest changes only in SQD, with nothing outstanding
        if state == State::Sqd && qp_type.is_reliable() {
            self.requester.configure(&requester, env.resources.ack_timer);
            self.responder.replay.resize(responder.max_dest_rd_atomic);
        }
        Ok(())
    }

    pub(crate) fn to_sqd(&mut self, notify: bool, env: &mut Env<'_>) -> Result<(), ModifyError> {
        let (from, qp_type) = (self.common.state, self.common.qp_type);
        if from == State::Sqd {
            // `update` takes that edge
            return Err(ModifyError::IllegalTransition { qp_type, from, to: State::Sqd });
        }
        self.check_edge(State::Sqd)?;
        self.common.state = State::Sqd;
        self.drained = false;
        self.drain_event = notify;
        self.settle(env);
        Ok(())
    }

    pub(crate) fn to_error(&mut self, env: &mut Env<'_>) -> Result<(), ModifyError> {
        self.check_edge(State::Err)?;
        self.fail(Failure::Asked, env);
        Ok(())
    }

    /// Drops requests without completions.
    pub(crate) fn to_reset(&mut self, srqs: &mut SrqTable) {
        self.requester.reset();
        self.responder.reset();
        self.congestion = Congestion::default();
        self.rate = Rate::default();
        if self.common.qp_type == QpType::XrcTarget {
            self.leave_srq(srqs);
        }
        self.reliability = Reliability::NONE;
        self.flushing = None;
        let common = &mut self.common;
        common.state = State::Reset;
        common.admission = Admission::default();
        common.peer.set_path(None);
        common.peer.av = None;
    }

    pub(crate) fn info(&self) -> QpInfo {
        let Reliability { requester, responder } = self.reliability;
        let (window, rate) = self.pace();
        QpInfo {
            qpn: self.common.qpn,
            qp_type: self.common.qp_type,
            state: self.common.state,
            sq_draining: self.is_draining(),
            pkey_index: self.common.admission.pkey_index,
            dest_qpn: self.common.peer.qpn,
            path_mtu: self.common.mtu,
            rq_psn: self.responder.expected,
            sq_psn: self.requester.next_psn,
            access: self.common.admission.access,
            qkey: self.common.admission.qkey,
            av: self.common.peer.av,
            requester,
            responder,
            path_migration: PathMigration::Migrated,
            caps: self.common.caps,
            window,
            rate,
            congestion: self.congestion.counters,
        }
    }

    pub(crate) fn send_queue_info(&self) -> SendQueueInfo {
        let requester = &self.requester;
        let requests = requester.queue.iter().map(|wqe| PostedSend {
            wr_id: wqe.id,
            op: wqe.op,
            length: wqe.length,
            psns: wqe
                .started
                .then(|| (wqe.first_psn, wqe.first_psn.plus(wqe.packets.saturating_sub(1)))),
        });
        SendQueueInfo {
            oldest_unacked: requester.oldest_unacked,
            in_flight: requester.flight.bytes,
            requests: requests.collect(),
        }
    }
}

fn check_pkey(index: u16, env: &Env<'_>) -> Result<(u16, PKey), ModifyError> {
    let pkey = env.resources.pkeys.get(index).ok_or(ModifyError::PKeyIndex(index))?;
    Ok((index, pkey))
}
