//! Record of an adapter's decisions: packets sent, with reasons, and received, with outcomes;
//! calls, timers, completions; changes of state, window and rate. Viewers, explanations and tests
//! derive nothing themselves.
//!
//! A call or arrival comes before its consequences. A call's records come together, at its end.
//!
//! A [`Sink`] runs under the engine's lock: it must not wait, nor call the adapter.

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

/// Readers of a record; none by default.
#[derive(Default)]
pub struct Trace {
    /// Reader of every record.
    pub sink: Option<Box<dyn Sink>>,
    /// Records kept per queue pair, for [`Adapter::latest`](crate::adapter::Adapter::latest).
    pub latest: usize,
}

impl Trace {
    /// Makes a trace that hands every record to this sink.
    #[must_use]
    pub fn to(sink: impl Sink + 'static) -> Self {
        Self { sink: Some(Box::new(sink)), latest: 0 }
    }

    /// Returns true if there is no reader.
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
    /// Takes a record.
    fn record(&mut self, record: Record);
}

impl<F: FnMut(Record) + Send> Sink for F {
    fn record(&mut self, record: Record) {
        self(record);
    }
}

/// One event.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Record {
    /// Time. A call without a time has that of the last call with one.
    pub at: Instant,
    /// Queue pair; [`Qpn::GSI`] for connection management, [`Qpn::MULTICAST`] for a multicast
    /// packet (its copies follow). An unknown queue pair has the packet's number.
    pub qpn: Qpn,
    /// Event.
    pub what: What,
}

/// Kind of event.
#[derive(Clone, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub enum What {
    /// A packet handed to the link.
    Sent {
        /// Packet.
        packet: PacketRecord,
        /// Reason for sending.
        why: Why,
    },
    /// A packet arrived.
    Arrived {
        /// Packet.
        packet: PacketRecord,
        /// Outcome.
        disposition: Disposition,
    },
    /// A datagram that is no packet.
    Malformed {
        /// Network header.
        net: NetHeader,
        /// Length in bytes.
        length: usize,
        /// Fault.
        reason: DropReason,
    },
    /// A verb was called.
    Call {
        /// Verb.
        call: Call,
        /// Result.
        result: Result<(), CallError>,
    },
    /// A request completed.
    Completed {
        /// Request's identifier.
        wr_id: u64,
        /// Result.
        result: Result<WcOk, WcError>,
    },
    /// A response acknowledged everything before this PSN.
    Acknowledged {
        /// Oldest unacknowledged PSN now.
        before: Psn,
    },
    /// Loss, or a receiver not ready, from this PSN on.
    Recovery {
        /// Oldest unacknowledged PSN.
        psn: Psn,
        /// Sign of the loss.
        loss: Loss,
        /// Recovery.
        recovery: Recovery,
    },
    /// A timer expired.
    Timer(Timer),
    /// The queue pair changed state.
    State {
        /// Before.
        from: State,
        /// After.
        to: State,
        /// Cause.
        failure: Failure,
    },
    /// The window changed.
    Window {
        /// Bytes before.
        from: u64,
        /// Bytes after.
        to: u64,
        /// Cause.
        cause: WindowCause,
    },
    /// DCQCN changed the rate or lifted its limit.
    Rate {
        /// Bits per second before, if limited.
        from: Option<u64>,
        /// Bits per second after, if limited.
        to: Option<u64>,
    },
}

/// Reason for sending a packet.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Why {
    /// Of a queue pair.
    Queue(Reason),
    /// Of connection management.
    Cm(MadReason),
}
