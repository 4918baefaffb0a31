//! Records that wait until what they followed from is recorded, and their readers.

use alloc::{boxed::Box, vec::Vec};

use crate::{
    ids::Qpn,
    qp::{Qp, WindowCause},
    time::Instant,
    trace::{Latest, Record, Sink, Trace, What},
};

/// Readers of the record, and what has to wait until what it followed from is recorded.
pub(super) struct Recorder {
    pub(super) sink: Option<Box<dyn Sink>>,
    pub(super) latest: Latest,
    /// The latest time that a call gave.
    pub(super) now: Instant,
    pub(super) held: Vec<Record>,
    /// Calls and arrivals that have begun and not ended: one within the other.
    pub(super) depth: usize,
    /// Window and rate of each queue pair, by its place, when they were last recorded.
    pub(super) paces: Vec<(u64, Option<u64>)>,
}

/// Start of a call or of an arrival in the record.
#[derive(Clone, Copy)]
#[must_use]
pub(super) struct Mark(pub(super) Option<usize>);

impl Recorder {
    pub(super) fn new(trace: Trace) -> Option<Box<Self>> {
        (!trace.is_null()).then(|| {
            Box::new(Self {
                sink: trace.sink,
                latest: Latest::new(trace.latest),
                now: Instant::ZERO,
                held: Vec::new(),
                depth: 0,
                paces: Vec::new(),
            })
        })
    }

    pub(super) fn push(&mut self, now: Instant, qpn: Qpn, what: What) {
        self.now = self.now.max(now);
        self.held.push(Record { at: self.now, qpn, what });
    }

    pub(super) fn record_pace(&mut self, now: Instant, index: usize, qp: &Qp, cause: WindowCause) {
        let Some(known) = self.paces.get_mut(index) else { return };
        let (window, rate) = core::mem::replace(known, qp.pace());
        let (to, its_rate) = *known;
        if window != to {
            self.push(now, qp.common.qpn, What::Window { from: window, to, cause });
        }
        if rate != its_rate {
            self.push(now, qp.common.qpn, What::Rate { from: rate, to: its_rate });
        }
    }
}
