//! The record of decisions: what an adapter did, when, and by which rule.
//!
//! An adapter with a [`Trace`] records every packet that it sends, with the reason, and every
//! packet that arrives, with its outcome. It records calls with their results, timers, completions,
//! and changes of state, window and rate. Ladders, explanations and tests read these records and
//! derive nothing themselves.
//!
//! Records are handed to the [`Sink`] in their order: a call or an arrival comes before what
//! followed from it. Records of one call of the adapter come together, at its end. An adapter
//! without a trace records nothing.
//!
//! A sink runs where the adapter runs, under the lock of its engine: it must not wait, and must
//! not call the adapter.

mod call;
mod latest;
mod packet;
mod text;

use alloc::boxed::Box;
use core::fmt;

pub use crate::{
    cm::MadReason,
    qp::{Failure, Loss, Part, Reason, Recovery, Timer, WindowCause},
};
pub use call::{Call, CallError};
pub use latest::Latest;
pub use packet::PacketRecord;

use crate::{
    event::{Disposition, DropReason},
    ids::Qpn,
    psn::Psn,
    qp::State,
    time::Instant,
    wire::NetHeader,
    work::{WcError, WcOk},
};

/// Readers of an adapter's record. None by default.
#[derive(Default)]
pub struct Trace {
    /// Gets every record.
    pub sink: Option<Box<dyn Sink>>,
    /// Number of latest records that are kept for each queue pair, for
    /// [`Adapter::latest`](crate::adapter::Adapter::latest).
    pub latest: usize,
}

impl Trace {
    /// A trace that hands every record to this sink.
    #[must_use]
    pub fn to(sink: impl Sink + 'static) -> Self {
        Self { sink: Some(Box::new(sink)), latest: 0 }
    }

    /// True if nobody reads.
    #[must_use]
    pub const fn is_null(&self) -> bool {
        self.sink.is_none() && self.latest == 0
    }
}

impl fmt::Debug for Trace {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Trace")
            .field("sink", &self.sink.is_some())
            .field("latest", &self.latest)
            .finish()
    }
}

/// A reader of records.
pub trait Sink: Send {
    /// Takes a record. Must neither wait nor call the adapter.
    fn record(&mut self, record: Record);
}

impl<F: FnMut(Record) + Send> Sink for F {
    fn record(&mut self, record: Record) {
        self(record);
    }
}

/// Something that happened.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Record {
    /// Its time, by the adapter's clock. A call that takes no time has that of the last one before
    /// that did.
    pub at: Instant,
    /// The queue pair: [`Qpn::GSI`] for connection management, [`Qpn::MULTICAST`] for a packet to a
    /// group (its copies follow). If the queue pair does not exist, the number in the packet.
    pub qpn: Qpn,
    /// The event.
    pub what: What,
}

/// Kinds of events.
#[derive(Clone, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub enum What {
    /// A packet was handed to the link.
    Sent {
        /// The packet.
        packet: PacketRecord,
        /// Reason for which it was sent.
        why: Why,
    },
    /// A packet arrived.
    Arrived {
        /// The packet.
        packet: PacketRecord,
        /// Result of handling it.
        disposition: Disposition,
    },
    /// A datagram arrived that is no packet.
    Malformed {
        /// Its network header.
        net: NetHeader,
        /// Its length in bytes.
        length: usize,
        /// The fault.
        reason: DropReason,
    },
    /// The program called a verb.
    Call {
        /// The verb.
        call: Call,
        /// Its result.
        result: Result<(), CallError>,
    },
    /// A request completed, and the completion queue was told.
    Completed {
        /// The request's identifier.
        wr_id: u64,
        /// Its result.
        result: Result<WcOk, WcError>,
    },
    /// An answer acknowledged everything before this PSN.
    Acknowledged {
        /// The oldest PSN that has no answer now.
        before: Psn,
    },
    /// Something was lost, or not received, from this PSN on.
    Recovery {
        /// The oldest PSN without an answer.
        psn: Psn,
        /// Sign of the loss.
        loss: Loss,
        /// The recovery that follows.
        recovery: Recovery,
    },
    /// A timer fired.
    Timer(Timer),
    /// The queue pair changed its state.
    State {
        /// The state before.
        from: State,
        /// The state now.
        to: State,
        /// Cause of the change.
        failure: Failure,
    },
    /// The window of the queue pair changed.
    Window {
        /// Bytes that might be on their way before.
        from: u64,
        /// Bytes that may be now.
        to: u64,
        /// The cause.
        cause: WindowCause,
    },
    /// The rate of the queue pair changed: DCQCN cut or raised it, or lifted the limit.
    Rate {
        /// Bits per second before, if they were limited.
        from: Option<u64>,
        /// Bits per second now, if they are limited.
        to: Option<u64>,
    },
}

/// Reason for which a packet was sent.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Why {
    /// A queue pair's.
    Queue(Reason),
    /// Connection management's.
    Cm(MadReason),
}
