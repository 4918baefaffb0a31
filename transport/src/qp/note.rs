//! Notes of a queue pair's decisions, for the [record](crate::trace): where a decision is made it
//! is noted, with the rule it followed. Nothing is noted unless someone reads the record.

use alloc::vec::Vec;
use core::{fmt, time::Duration};

use super::state::State;
use crate::{
    event::{Disposition, Refusal},
    ids::CqId,
    psn::Psn,
    wire::{NakCode, Syndrome},
    work::{Wc, WcError},
};

/// A packet's place in its work request.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct Part {
    /// The request's identifier.
    pub wr_id: u64,
    /// Number of the packet, from 0. Of a READ, that of the first packet of the answer asked for.
    pub index: u32,
    /// Number of packets of the request. Of a READ, of its answer.
    pub of: u32,
}

/// Sign by which a requester took what it had sent for lost, or not received.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Loss {
    /// A NAK "PSN sequence error".
    Nak,
    /// An answer to something later, without the data of a READ or an atomic before it (9.7.5.1.2).
    ImpliedNak,
    /// The acknowledge timer fired (9.7.6.1.3).
    Timeout,
    /// A probe that repeated the oldest packet was acknowledged, and nothing behind it.
    Probe,
    /// The responder was not ready, and the wait that it asked for is over (9.7.5.2.8).
    NotReady,
}

/// Recovery of a requester after a loss.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Recovery {
    /// Everything from the lost packet on is sent again.
    Again,
    /// The same, after a wait.
    AgainAfter(Duration),
    /// Nothing new: the recovery of this very loss is under way.
    UnderWay,
    /// The retry counter is used up after so many transmissions.
    GiveUp {
        /// Number of transmissions.
        tries: u8,
    },
}

/// Reason for which a queue pair sends a packet.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Reason {
    /// Part of a work request, for the first time.
    First(Part),
    /// The same again, after a loss.
    Again(Part, Loss),
    /// The same again, because no answer came within a few round trips: the last packet that was
    /// sent, or the oldest without an answer.
    Probe {
        /// The packet.
        part: Part,
        /// True for the oldest.
        oldest: bool,
    },
    /// A datagram.
    Datagram {
        /// The request's identifier.
        wr_id: u64,
    },
    /// Acknowledges everything up to this PSN.
    Acknowledge(Psn),
    /// Refuses the request with this PSN, and acknowledges everything before.
    Negative(Psn, Syndrome),
    /// The answer to a READ, an atomic, an ATOMIC WRITE or a FLUSH, or a part of it.
    Answer {
        /// True if the request was a duplicate.
        again: bool,
    },
    /// Tells the peer that its packets meet congestion.
    Congestion,
}

/// A timer of a queue pair.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Timer {
    /// The acknowledge timer fired: nothing from this PSN on has been answered.
    Acknowledge(Psn),
    /// The acknowledge timer fired and restarts: the packets to be answered wait for room.
    PutOff,
    /// A few round trips have passed without an answer: a probe is due.
    Probe,
    /// The wait that an RNR NAK asked for is over.
    NotReady,
}

/// Cause of a change of a window.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum WindowCause {
    /// The queue pair starts.
    Start,
    /// All of it was used and acknowledged.
    Acknowledged,
    /// A NAK, or a probe, showed a loss.
    Loss,
    /// The acknowledge timer fired.
    Timeout,
    /// The peer sent a congestion notification.
    Notification,
}

/// Cause of a change of state that no transition of the program asked for.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Failure {
    /// A transition of the program after all (`ibv_modify_qp`).
    Asked,
    /// A send request failed.
    Request(WcError),
    /// A request of the peer was refused for good.
    Refused(Syndrome, Refusal),
    /// A receive request was bad.
    Receive,
    /// A completion queue overflowed.
    CqOverrun(CqId),
    /// The link is lost.
    Device,
    /// It was to fail on request.
    Injected,
}

/// A decision.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Note {
    /// Of the packet that is being built.
    Packet(Reason),
    Acknowledged {
        before: Psn,
    },
    Recovery {
        psn: Psn,
        loss: Loss,
        recovery: Recovery,
    },
    Timer(Timer),
    Completed(Wc),
    Window(WindowCause),
    State {
        from: State,
        to: State,
        failure: Failure,
    },
}

/// Notes of one call, in their order, if they are taken.
#[derive(Debug, Default)]
pub(crate) struct Notes(Option<Vec<Note>>);

impl Notes {
    /// Takes notes from now on.
    pub(crate) fn begin(&mut self) {
        self.0.get_or_insert_default();
    }

    /// True if notes are taken.
    #[inline]
    pub(crate) const fn are_taken(&self) -> bool {
        self.0.is_some()
    }

    /// Takes a note.
    #[inline]
    pub(crate) fn take(&mut self, note: impl FnOnce() -> Note) {
        if self.are_taken() {
            self.push(note);
        }
    }

    /// Out of the way of packets: hardly anyone reads.
    #[cold]
    #[inline(never)]
    fn push(&mut self, note: impl FnOnce() -> Note) {
        if let Some(notes) = &mut self.0 {
            notes.push(note());
        }
    }

    /// Hands over the notes of a call.
    pub(crate) fn drain(&mut self) -> Vec<Note> {
        self.0.as_mut().map(core::mem::take).unwrap_or_default()
    }
}

impl From<Disposition> for Failure {
    /// Of a request that was refused for good.
    fn from(disposition: Disposition) -> Self {
        match disposition {
            Disposition::Refused(syndrome, refusal) => Self::Refused(syndrome, refusal),
            _ => Self::Receive,
        }
    }
}

impl fmt::Display for Loss {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Nak => "NAK",
            Self::ImpliedNak => "implied NAK",
            Self::Timeout => "timeout",
            Self::Probe => "probe",
            Self::NotReady => "RNR",
        })
    }
}

impl fmt::Display for Recovery {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Again => f.write_str("all from there on again"),
            Self::AgainAfter(wait) => write!(f, "all from there on again in {wait:?}"),
            Self::UnderWay => f.write_str("its recovery is under way"),
            Self::GiveUp { tries } => write!(f, "given up after {tries} transmissions"),
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
            Self::Again(part, loss) => write!(f, "{part}, again: {loss}"),
            Self::Probe { part, oldest: false } => {
                write!(f, "{part}, probe: the last packet again")
            }
            Self::Probe { part, oldest: true } => {
                write!(f, "{part}, probe: the oldest packet again")
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
            Self::Answer { again: false } => f.write_str("answer"),
            Self::Answer { again: true } => f.write_str("answer to a duplicate"),
            Self::Congestion => f.write_str("its packets meet congestion"),
        }
    }
}

impl fmt::Display for Timer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Acknowledge(psn) => {
                write!(f, "acknowledge timer: no answer from {} on", psn.get())
            }
            Self::PutOff => f.write_str("acknowledge timer: nothing has been sent, starts anew"),
            Self::Probe => f.write_str("no answer within a few round trips: a probe is due"),
            Self::NotReady => f.write_str("the wait for the receiver is over"),
        }
    }
}

impl fmt::Display for WindowCause {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Start => "start",
            Self::Acknowledged => "all of it was used and acknowledged",
            Self::Loss => "loss",
            Self::Timeout => "timeout",
            Self::Notification => "congestion notification",
        })
    }
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Asked => f.write_str("as asked"),
            Self::Request(error) => write!(f, "a request failed: {error}"),
            Self::Refused(syndrome, refusal) => {
                write!(f, "a request of the peer was refused with {syndrome}: {refusal}")
            }
            Self::Receive => f.write_str("a receive request was bad"),
            Self::CqOverrun(CqId(id)) => write!(f, "completion queue {id} has overflowed"),
            Self::Device => f.write_str("the link is lost"),
            Self::Injected => f.write_str("a rule has it fail"),
        }
    }
}
