use alloc::boxed::Box;
use core::time::Duration;

use super::{
    arrival::CmPath,
    command::ListenerId,
    credit::Credit,
    message::{CmMad, Message},
    qp_setup::{QpSetup, Terms},
    resend::Resend,
    service::ServiceId,
    state::{CmState, Trigger, is_edge},
};
use crate::{event::DropReason, ids::Qpn, time::Instant};

/// A connection, or a service ID resolution.
pub(super) struct Connection {
    /// See [`EDGES`](super::EDGES) for the transitions.
    pub(super) state: CmState,
    pub(super) path: CmPath,
    /// On the passive side, 0 until `prepare`.
    pub(super) local_qpn: Qpn,
    pub(super) transaction: u64,
    /// From REQ or REP on.
    pub(super) remote: Option<Remote>,
    /// Until established.
    pub(super) terms: Option<Box<Terms>>,
    /// Of a message that awaits its response.
    pub(super) resend: Option<Resend>,
    /// Its backlog has this request.
    pub(super) listener: Option<ListenerId>,
    /// Request ID and service of a resolution that the program responds to.
    pub(super) request: Option<(u32, ServiceId)>,
    pub(super) credit: Credit,
    /// Destroyed by the program (`rdma_destroy_id`).
    pub(super) abandoned: bool,
    pub(super) probe: Option<Probe>,
    /// After the RTU, if the program moves the queue pair.
    pub(super) setup: Option<Box<QpSetup>>,
    pub(super) time_wait: Duration,
}

#[derive(Clone, Copy, Default)]
pub(super) struct Remote {
    pub(super) id: u32,
    pub(super) guid: u64,
    pub(super) qpn: Qpn,
}

impl Connection {
    pub(super) fn new(state: CmState, path: CmPath, transaction: u64) -> Self {
        Self {
            state,
            path,
            local_qpn: Qpn::default(),
            transaction,
            remote: None,
            terms: None,
            resend: None,
            listener: None,
            request: None,
            credit: Credit::PROVEN,
            abandoned: false,
            probe: None,
            setup: None,
            time_wait: Duration::ZERO,
        }
    }

    pub(super) const fn is_resolution(&self) -> bool {
        matches!(self.state, CmState::SidrReqSent | CmState::SidrReqRcvd)
    }

    /// Returns 0 while unknown.
    pub(super) fn remote_id(&self) -> u32 {
        self.remote.map_or(0, |remote| remote.id)
    }

    pub(super) fn check(&self, on: Trigger) -> Result<(), DropReason> {
        if self.state.expects(on) { Ok(()) } else { Err(DropReason::CmWrongState) }
    }

    pub(super) const fn mad(&self, message: Message) -> CmMad {
        CmMad::new(self.transaction, message)
    }

    /// Drops what the next state lacks.
    pub(super) fn advance(&mut self, on: Trigger, to: CmState) {
        let from = self.state;
        debug_assert!(is_edge(Some(from), on, Some(to)), "{from:?} / {on:?} > {to:?}");
        self.state = to;
        match to {
            CmState::MraReqRcvd | CmState::MraRepRcvd => {}
            CmState::RepRcvd | CmState::RepSent => self.resend = None,
            _ => (self.terms, self.resend) = (None, None),
        }
    }

    /// Available until established, or later if the program moves the passive queue pair.
    pub(super) fn qp_setup(&self) -> Option<QpSetup> {
        match self.state {
            CmState::RepRcvd => Some(QpSetup::active(self.local_qpn, self.terms.as_deref()?)),
            CmState::ReqRcvd | CmState::RepSent | CmState::MraRepRcvd => {
                Some(QpSetup::passive(self.local_qpn, self.terms.as_deref()?))
            }
            CmState::Established => self.setup.as_deref().copied(),
            _ => None,
        }
    }
}

/// Probe whether the peer has a connection.
#[derive(Clone, Copy)]
pub(super) struct Probe {
    /// Same for all probes and the response.
    pub(super) transaction: u64,
    pub(super) sent: Instant,
}
