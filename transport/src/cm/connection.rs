//! One connection, from the first message to the end of its time wait.

use alloc::boxed::Box;
use core::{mem, time::Duration};

use super::{
    command::ListenerId,
    credit::Credit,
    message::{CmMad, Message, Rep, Req},
    path::CmPath,
    probe::Probe,
    qp_setup::{Local, QpSetup},
    resend::Resend,
    state::{CmState, Trigger, is_edge},
};
use crate::{addr::AddressVector, ids::Qpn};

/// A connection.
pub(super) struct Connection {
    pub(super) state: ConnState,
    pub(super) path: CmPath,
    /// Own queue pair; 0 before a passive side has named it.
    pub(super) local_qpn: Qpn,
    pub(super) transaction: u64,
    /// Messages that may go to the peer.
    pub(super) credit: Credit,
    /// True once the program has no more interest in it.
    pub(super) abandoned: bool,
    /// The last question whether the peer still has it.
    pub(super) probe: Option<Probe>,
    /// Attributes for an own queue pair that the program moves, kept when the peer's confirmation
    /// comes before it has done so.
    pub(super) setup: Option<Box<QpSetup>>,
    /// Time for which packets of it may be under way after its end.
    pub(super) time_wait: Duration,
}

/// State of a connection with all that only this state has. [`CmState`] names the states; the edges
/// between them stand in [`EDGES`](super::EDGES).
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

/// The peer's names: its communication ID, its adapter, its queue pair.
#[derive(Clone, Copy, Default)]
pub(super) struct Remote {
    pub(super) id: u32,
    pub(super) guid: u64,
    pub(super) qpn: Qpn,
}

/// The request, and what goes with it on this side.
pub(super) struct Terms {
    pub(super) req: Req,
    pub(super) av: AddressVector,
    /// Acknowledge timeout's code of this side's queue pair.
    pub(super) ack_timeout: u8,
    /// RNR NAK timer's code of this side's queue pair.
    pub(super) min_rnr_timer: u8,
}

/// Active side: the request waits for its answer.
pub(super) struct Requested {
    pub(super) terms: Box<Terms>,
    /// True if this side's queue pair is one of the same adapter, which is moved when the reply
    /// comes.
    pub(super) managed: bool,
    /// True if this side's acknowledge timeout leaves the peer the time that it takes.
    pub(super) fits_ack_delay: bool,
    pub(super) resend: Resend,
}

/// Active side: the reply is here.
pub(super) struct Replied {
    pub(super) remote: Remote,
    pub(super) terms: Box<Terms>,
    pub(super) rep: Box<Rep>,
}

/// Passive side: the request is here, and counts in a listener's backlog.
pub(super) struct Received {
    pub(super) remote: Remote,
    pub(super) listener: ListenerId,
    pub(super) terms: Box<Terms>,
    /// The reply, as far as it is prepared.
    pub(super) rep: Box<Rep>,
}

/// Passive side: the reply waits for its answer.
pub(super) struct Accepted {
    pub(super) remote: Remote,
    pub(super) terms: Box<Terms>,
    pub(super) rep: Box<Rep>,
    /// True if this side's queue pair is one of the same adapter, which has moved it.
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

    /// The peer's names, once they are known.
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

    /// The message that waits for an answer.
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
    /// The peer's communication ID; 0 before it is known.
    pub(super) fn remote_id(&self) -> u32 {
        self.state.remote().map_or(0, |remote| remote.id)
    }

    /// A message in the exchange that set the connection up, or that ends it.
    pub(super) const fn mad(&self, message: Message) -> CmMad {
        CmMad::new(self.transaction, message)
    }

    /// Moves along an edge. `next` is given the old state and makes the new one of it.
    pub(super) fn advance(&mut self, on: Trigger, next: impl FnOnce(ConnState) -> ConnState) {
        let from = self.state.name();
        let state = mem::replace(&mut self.state, ConnState::TimeWait(Remote::default()));
        self.state = next(state);
        let to = self.state.name();
        debug_assert!(is_edge(Some(from), on, Some(to)), "{from:?} / {on:?} > {to:?}");
    }

    /// Attributes for this side's queue pair until the connection is established: on the passive
    /// side from the request on, on the active side from the reply on. Where the program moves a
    /// queue pair of the passive side, also then.
    pub(super) fn qp_setup(&self) -> Option<QpSetup> {
        let local = |terms: &Terms| Local {
            qpn: self.local_qpn,
            av: terms.av,
            ack_timeout: terms.ack_timeout,
            min_rnr_timer: terms.min_rnr_timer,
        };
        match &self.state {
            ConnState::RepRcvd(Replied { terms, rep, .. }) => {
                Some(QpSetup::active(local(terms), &terms.req, rep))
            }
            ConnState::ReqRcvd(Received { terms, rep, .. })
            | ConnState::RepSent(Accepted { terms, rep, .. })
            | ConnState::MraRepRcvd(Accepted { terms, rep, .. }) => {
                Some(QpSetup::passive(local(terms), &terms.req, rep))
            }
            ConnState::Established(_) => self.setup.as_deref().copied(),
            _ => None,
        }
    }
}
