use alloc::boxed::Box;
use core::{mem, time::Duration};

use super::{
    command::ListenerId,
    credit::Credit,
    message::{CmMad, Message, Rep},
    path::CmPath,
    probe::Probe,
    qp_setup::{QpSetup, Terms},
    resend::Resend,
    state::{CmState, Trigger, is_edge},
};
use crate::ids::Qpn;

pub(super) struct Connection {
    pub(super) state: ConnState,
    pub(super) path: CmPath,
    /// On the passive side, 0 until `prepare`.
    pub(super) local_qpn: Qpn,
    pub(super) transaction: u64,
    pub(super) credit: Credit,
    /// Destroyed by the program (`rdma_destroy_id`).
    pub(super) abandoned: bool,
    pub(super) probe: Option<Probe>,
    /// After the RTU, if the program moves the queue pair.
    pub(super) setup: Option<Box<QpSetup>>,
    pub(super) time_wait: Duration,
}

/// See [`EDGES`](super::EDGES) for the transitions.
pub(super) enum ConnState {
    ReqSent(Requested),
    MraReqRcvd(Requested),
    RepRcvd(Replied),
    ReqRcvd(Received),
    RepSent(Accepted),
    MraRepRcvd(Accepted),
    Established(Remote),
    DreqSent(Remote, Resend),
    DreqRcvd(Remote),
    TimeWait(Remote),
}

#[derive(Clone, Copy, Default)]
pub(super) struct Remote {
    pub(super) id: u32,
    pub(super) guid: u64,
    pub(super) qpn: Qpn,
}

pub(super) struct Requested {
    pub(super) terms: Box<Terms>,
    /// The adapter moves the queue pair.
    pub(super) managed: bool,
    pub(super) fits_ack_delay: bool,
    pub(super) resend: Resend,
}

pub(super) struct Replied {
    pub(super) remote: Remote,
    pub(super) terms: Box<Terms>,
    pub(super) rep: Box<Rep>,
}

pub(super) struct Received {
    pub(super) remote: Remote,
    pub(super) listener: ListenerId,
    pub(super) terms: Box<Terms>,
    pub(super) rep: Box<Rep>,
}

pub(super) struct Accepted {
    pub(super) remote: Remote,
    pub(super) terms: Box<Terms>,
    pub(super) rep: Box<Rep>,
    pub(super) managed: bool,
    pub(super) resend: Resend,
}

impl ConnState {
    pub(super) const fn name(&self) -> CmState {
        match self {
            Self::ReqSent(_) => CmState::ReqSent,
            Self::MraReqRcvd(_) => CmState::MraReqRcvd,
            Self::RepRcvd(_) => CmState::RepRcvd,
            Self::ReqRcvd(_) => CmState::ReqRcvd,
            Self::RepSent(_) => CmState::RepSent,
            Self::MraRepRcvd(_) => CmState::MraRepRcvd,
            Self::Established(_) => CmState::Established,
            Self::DreqSent(..) => CmState::DreqSent,
            Self::DreqRcvd(_) => CmState::DreqRcvd,
            Self::TimeWait(_) => CmState::TimeWait,
        }
    }

    pub(super) const fn remote(&self) -> Option<&Remote> {
        match self {
            Self::ReqSent(_) | Self::MraReqRcvd(_) => None,
            Self::RepRcvd(replied) => Some(&replied.remote),
            Self::ReqRcvd(received) => Some(&received.remote),
            Self::RepSent(accepted) | Self::MraRepRcvd(accepted) => Some(&accepted.remote),
            Self::Established(remote)
            | Self::DreqSent(remote, _)
            | Self::DreqRcvd(remote)
            | Self::TimeWait(remote) => Some(remote),
        }
    }

    pub(super) const fn resend_mut(&mut self) -> Option<&mut Resend> {
        match self {
            Self::ReqSent(requested) | Self::MraReqRcvd(requested) => Some(&mut requested.resend),
            Self::RepSent(accepted) | Self::MraRepRcvd(accepted) => Some(&mut accepted.resend),
            Self::DreqSent(_, resend) => Some(resend),
            _ => None,
        }
    }
}

impl Connection {
    /// Returns 0 while unknown.
    pub(super) fn remote_id(&self) -> u32 {
        self.state.remote().map_or(0, |remote| remote.id)
    }

    pub(super) const fn mad(&self, message: Message) -> CmMad {
        CmMad::new(self.transaction, message)
    }

    pub(super) fn advance(&mut self, on: Trigger, next: impl FnOnce(ConnState) -> ConnState) {
        let from = self.state.name();
        let state = mem::replace(&mut self.state, ConnState::TimeWait(Remote::default()));
        self.state = next(state);
        let to = self.state.name();
        debug_assert!(is_edge(Some(from), on, Some(to)), "{from:?} / {on:?} > {to:?}");
    }

    /// Available until established, or later if the program moves the passive queue pair.
    pub(super) fn qp_setup(&self) -> Option<QpSetup> {
        match &self.state {
            ConnState::RepRcvd(Replied { terms, rep, .. }) => {
                Some(QpSetup::active(self.local_qpn, terms, rep))
            }
            ConnState::ReqRcvd(Received { terms, rep, .. })
            | ConnState::RepSent(Accepted { terms, rep, .. })
            | ConnState::MraRepRcvd(Accepted { terms, rep, .. }) => {
                Some(QpSetup::passive(self.local_qpn, terms, rep))
            }
            ConnState::Established(_) => self.setup.as_deref().copied(),
            _ => None,
        }
    }
}
