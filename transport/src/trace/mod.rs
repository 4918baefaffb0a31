//! Record of an adapter: packets with reasons and outcomes, calls, timers, completions, and changes
//! of state, window and rate.
//!
//! Causes precede consequences. Records of a call come at its end. A [`Sink`] runs under the
//! engine's lock and must not wait or call the adapter.

mod call;
mod packet;

use alloc::{boxed::Box, format, string::String};
use core::fmt;

use derive_more::Display;

pub use crate::{
    cm::MadReason,
    qp::{Failure, Loss, Part, Reason, Recovery, Timer, WindowCause},
};
pub use call::{Call, CallError};
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

/// Nanoseconds of a second.
const NANOS: u64 = 1_000_000_000;

/// Reader of a record, if any.
#[derive(Default, derive_more::Debug)]
pub struct Trace {
    /// Reader of every record.
    #[debug("{}", sink.is_some())]
    pub sink: Option<Box<dyn Sink>>,
}

impl Trace {
    /// Trace for this sink.
    #[must_use]
    pub fn to(sink: impl Sink + 'static) -> Self {
        Self { sink: Some(Box::new(sink)) }
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
#[derive(Clone, PartialEq, Eq, Debug, Display)]
#[display("{}.{:09} qp {qpn} {what}", at.as_nanos() / NANOS, at.as_nanos() % NANOS)]
pub struct Record {
    /// Time; of a call without a time, the last known.
    pub at: Instant,
    /// Queue pair, possibly unknown; [`Qpn::GSI`] for connection management, [`Qpn::MULTICAST`] for
    /// a multicast packet before its copies.
    pub qpn: Qpn,
    /// Event.
    pub what: What,
}

/// Kind of event.
#[derive(Clone, PartialEq, Eq, Debug)]
#[non_exhaustive]
#[allow(missing_docs, reason = "an event's comment describes its fields")]
pub enum What {
    /// Packet handed to the link, and the reason.
    Sent { packet: PacketRecord, why: Why },
    /// Packet received, and the outcome.
    Arrived { packet: PacketRecord, disposition: Disposition },
    /// Datagram that is no packet: network header, length in bytes, fault.
    Malformed { net: NetHeader, length: usize, reason: DropReason },
    /// Verb called, and the result.
    Call { call: Call, result: Result<(), CallError> },
    /// Request of this identifier completed, and the result.
    Completed { wr_id: u64, result: Result<WcOk, WcError> },
    /// Everything before this PSN, the oldest unacknowledged, is acknowledged.
    Acknowledged { before: Psn },
    /// Loss or RNR from this PSN on, the oldest unacknowledged: sign of the loss, recovery.
    Recovery { psn: Psn, loss: Loss, recovery: Recovery },
    /// Timer expired.
    Timer(Timer),
    /// State changed: before, after, cause.
    State { from: State, to: State, failure: Failure },
    /// Window changed: bytes before, bytes after, cause.
    Window { from: u64, to: u64, cause: WindowCause },
    /// DCQCN's rate changed: bits per second before and after; `None`: unlimited.
    Rate { from: Option<u64>, to: Option<u64> },
}

/// Reason for sending a packet.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Display)]
pub enum Why {
    /// Of a queue pair.
    Queue(Reason),
    /// Of connection management.
    Cm(MadReason),
}

impl fmt::Display for What {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Sent { packet, why } => write!(f, "sent {packet} ({why})"),
            Self::Arrived { packet, disposition } => write!(f, "arrived {packet} ({disposition})"),
            Self::Malformed { length, reason, .. } => {
                write!(f, "arrived {length} bytes (dropped: {reason})")
            }
            Self::Call { call, result: Ok(()) } => write!(f, "{call}"),
            Self::Call { call, result: Err(error) } => write!(f, "{call} failed: {error}"),
            Self::Completed { wr_id, result: Ok(ok) } => {
                write!(f, "request {wr_id} completed: {:?}", ok.opcode)?;
                if ok.byte_len > 0 { write!(f, " of {} B", ok.byte_len) } else { Ok(()) }
            }
            Self::Completed { wr_id, result: Err(error) } => {
                write!(f, "request {wr_id} completed in error: {error}")
            }
            Self::Acknowledged { before } => {
                write!(f, "all PSNs before {} are acknowledged", before.get())
            }
            Self::Recovery { psn, loss, recovery } => {
                write!(f, "psn {} ({loss}): {recovery}", psn.get())
            }
            Self::Timer(timer) => write!(f, "{timer}"),
            Self::State { from, to, failure } => write!(f, "{from} to {to}: {failure}"),
            Self::Window { from, to, cause } => write!(f, "window {from} to {to} B: {cause}"),
            Self::Rate { from, to } => write!(f, "rate {} to {}", rate(*from), rate(*to)),
        }
    }
}

fn rate(bits: Option<u64>) -> String {
    let megabits = |bits: u64| format!("{}.{:03} Mbit/s", bits / 1_000_000, bits / 1000 % 1000);
    bits.map_or_else(|| "unlimited".into(), megabits)
}
