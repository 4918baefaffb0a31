//! Decisions of a queue pair for the [record](crate::trace).

use alloc::vec::Vec;
use core::{fmt, time::Duration};

use derive_more::Display;

use super::state::State;
use crate::{
    event::{Disposition, Refusal},
    ids::CqId,
    named::named,
    psn::Psn,
    wire::{NakCode, Syndrome},
    work::{Wc, WcError},
};

/// Position in a work request.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct Part {
    /// Request identifier.
    pub wr_id: u64,
    /// Index from 0; for a READ, of the first response packet.
    pub index: u32,
    /// Total; for a READ, of the response.
    pub of: u32,
}

named! {
    /// Sign of a loss.
    Loss {
        /// A NAK "PSN sequence error".
        Nak "NAK";
        /// A later response without earlier READ or atomic data (9.7.5.1.2).
        ImpliedNak "implied NAK";
        /// Acknowledge timeout (9.7.6.1.3).
        Timeout "timeout";
        /// An acknowledged probe showed a gap behind it.
        Probe "probe";
        /// An RNR pause is over (9.7.5.2.8).
        NotReady "RNR";
    }
}

/// Recovery from a loss.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Display)]
#[allow(missing_docs, reason = "a recovery's comment describes its fields")]
pub enum Recovery {
    /// Retransmits from the lost packet on.
    #[display("retransmit from here")]
    Retransmit,
    /// Retransmits after a pause.
    #[display("retransmit from here in {_0:?}")]
    RetransmitAfter(Duration),
    /// Recovery is in progress.
    #[display("its recovery is under way")]
    UnderWay,
    /// Retry counter exhausted after so many transmissions.
    #[display("given up after {tries} transmissions")]
    GiveUp { tries: u8 },
}

/// Reason for sending a packet.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
#[allow(missing_docs, reason = "a reason's comment describes its fields")]
pub enum Reason {
    /// First transmission.
    First(Part),
    /// Retransmission after a loss.
    Retransmit(Part, Loss),
    /// Tail-loss probe: the packet, and whether it is the oldest.
    Probe { part: Part, oldest: bool },
    /// A datagram, with the request identifier.
    Datagram { wr_id: u64 },
    /// Acknowledges up to this PSN.
    Acknowledge(Psn),
    /// Refuses this PSN, acknowledging everything before.
    Negative(Psn, Syndrome),
    /// Response to a READ, atomic, ATOMIC WRITE or FLUSH. `again`: to a duplicate.
    Response { again: bool },
    /// CNP to the peer.
    Congestion,
}

/// A timer of a queue pair.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Display)]
pub enum Timer {
    /// Acknowledge timeout for this PSN.
    #[display("ACK timeout: no response from {_0} on")]
    Acknowledge(Psn),
    /// The acknowledge timer restarts: packets wait for credits.
    #[display("ACK timer: nothing was sent, restarted")]
    PutOff,
    /// A probe is due.
    #[display("no response within a few round trips: a probe is due")]
    Probe,
    /// An RNR pause is over.
    #[display("RNR wait over")]
    NotReady,
}

named! {
    /// Cause of a window change.
    WindowCause {
        Start "start";
        Acknowledged "full and acknowledged";
        /// Loss shown by NAK or probe.
        Loss "loss";
        Timeout "timeout";
        Notification "congestion notification";
    }
}

/// Cause of a state change.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Display)]
pub enum Failure {
    /// The program's transition (`ibv_modify_qp`).
    #[display("requested")]
    Asked,
    /// Failed send request.
    #[display("a request failed: {_0}")]
    Request(WcError),
    /// Refused request of the peer.
    #[display("a request of the peer was refused with {_0}: {_1}")]
    Refused(Syndrome, Refusal),
    /// Invalid receive request.
    #[display("an invalid receive request")]
    Receive,
    /// Completion queue overflow.
    #[display("completion queue {} has overflowed", _0.0)]
    CqOverrun(CqId),
    /// Link down.
    #[display("the link is lost")]
    Device,
    /// Injected failure.
    #[display("a fault rule")]
    Injected,
}

/// A decision. `Packet`: of the packet being built.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Decision {
    Packet(Reason),
    Acknowledged { before: Psn },
    Recovery { psn: Psn, loss: Loss, recovery: Recovery },
    Timer(Timer),
    Completed(Wc),
    Window(WindowCause),
    State { from: State, to: State, failure: Failure },
}

#[derive(Debug, Default)]
pub(crate) struct Decisions(Option<Vec<Decision>>);

impl Decisions {
    pub(crate) fn begin(&mut self) {
        self.0.get_or_insert_default();
    }

    #[inline]
    pub(crate) const fn are_recorded(&self) -> bool {
        self.0.is_some()
    }

    #[inline]
    pub(crate) fn take(&mut self, decision: impl FnOnce() -> Decision) {
        if self.are_recorded() {
            self.push(decision);
        }
    }

    #[cold]
    #[inline(never)]
    fn push(&mut self, decision: impl FnOnce() -> Decision) {
        if let Some(decisions) = &mut self.0 {
            decisions.push(decision());
        }
    }

    pub(crate) fn drain(&mut self) -> Vec<Decision> {
        self.0.as_mut().map(core::mem::take).unwrap_or_default()
    }
}

impl From<Disposition> for Failure {
    fn from(disposition: Disposition) -> Self {
        match disposition {
            Disposition::Refused(syndrome, refusal) => Self::Refused(syndrome, refusal),
            _ => Self::Receive,
        }
    }
}

impl fmt::Display for Part {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.of {
            0 | 1 => write!(f, "request {}", self.wr_id),
            of => write!(f, "request {}, packet {} of {of}", self.wr_id, self.index + 1),
        }
    }
}

impl fmt::Display for Reason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::First(part) => write!(f, "{part}"),
            Self::Retransmit(part, loss) => write!(f, "{part}, retransmitted: {loss}"),
            Self::Probe { part, oldest } => {
                let which = if *oldest { "oldest" } else { "last" };
                write!(f, "{part}, probe: the {which} packet")
            }
            Self::Datagram { wr_id } => write!(f, "request {wr_id}"),
            Self::Acknowledge(psn) => write!(f, "acknowledges up to {}", psn.get()),
            Self::Negative(psn, Syndrome::RnrNak { .. }) => {
                write!(f, "not ready for {}", psn.get())
            }
            Self::Negative(psn, Syndrome::Nak(NakCode::PsnSequenceError)) => {
                write!(f, "NAK for the gap at {}", psn.get())
            }
            Self::Negative(psn, syndrome) => write!(f, "{syndrome} for {}", psn.get()),
            Self::Response { again: false } => f.write_str("response"),
            Self::Response { again: true } => f.write_str("response to a duplicate"),
            Self::Congestion => f.write_str("congestion experienced"),
        }
    }
}
