//! Records held back until their cause is recorded.

use alloc::{boxed::Box, vec::Vec};

use crate::{
    ids::Qpn,
    qp::{Qp, WindowCause},
    time::Instant,
    trace::{Record, Sink, Trace, What},
};

pub(super) struct Recorder {
    pub(super) sink: Box<dyn Sink>,
    pub(super) now: Instant,
    pub(super) held: Vec<Record>,
    /// Nested calls and arrivals.
    pub(super) depth: usize,
    pub(super) paces: Vec<(u64, Option<u64>)>,
}

#[derive(Clone, Copy)]
#[must_use]
pub(super) struct Mark(pub(super) Option<usize>);

impl Recorder {
    pub(super) fn new(trace: Trace) -> Option<Box<Self>> {
        let sink = trace.sink?;
        let (now, held, paces) = (Instant::ZERO, Vec::new(), Vec::new());
        Some(Box::new(Self { sink, now, held, depth: 0, paces }))
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
