//! Fit of a flow's responses to another's requests: PSN order, kind of response, MSN.

use std::{collections::BTreeMap, time::Duration};

use roce_transport::{
    psn::{Msn, Psn},
    wire::{Headers, Operation, Syndrome},
};

use super::psn::unwrapped;

/// Captures of several queues are out of order by up to this.
const DISORDER: Duration = Duration::from_micros(10);
/// Maximum distance between PSNs of responses and requests.
const WINDOW: i64 = 1 << 14;
/// Kept responses to later requests, and kept READs and atomics.
const KEPT: usize = 16;
const RESPONSES_WITH_DATA: usize = 1 << 10;

#[derive(Clone, Copy)]
pub(super) struct Response {
    at: Duration,
    psn: Psn,
    /// Kind of the request, unless any fits.
    kind: Option<Kind>,
    /// Of an acknowledgement.
    msn: Option<Msn>,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Kind {
    Read,
    Atomic,
}

impl Kind {
    fn of(operation: Operation) -> Option<Self> {
        use Operation as Op;
        match operation {
            Op::ReadRequest
            | Op::Flush
            | Op::AtomicWrite
            | Op::ReadResponseFirst
            | Op::ReadResponseMiddle
            | Op::ReadResponseLast
            | Op::ReadResponseOnly => Some(Self::Read),
            Op::CmpSwap | Op::FetchAdd | Op::AtomicAcknowledge => Some(Self::Atomic),
            _ => None,
        }
    }
}

impl Response {
    pub(super) fn of(at: Duration, headers: &Headers) -> Self {
        let bth = headers.bth();
        let positive = |syndrome| matches!(syndrome, Syndrome::Ack { .. });
        let aeth = headers.ext().aeth().filter(|aeth| positive(aeth.syndrome));
        let operation = bth.opcode.operation();
        let is_plain = operation == Operation::Acknowledge;
        let msn = aeth.filter(|_| is_plain).map(|aeth| aeth.msn);
        Self { at, psn: bth.psn, kind: Kind::of(operation), msn }
    }
}

/// PSNs count from the first captured.
#[derive(Default)]
pub(super) struct Requests {
    first: Option<Psn>,
    end: i64,
    /// PSN after the furthest that may have a response.
    limit: i64,
    /// Last PSNs of messages, in order; `None` once one is missing.
    messages: Option<Vec<i64>>,
    /// PSNs are missing, at least for now.
    pub(super) has_gaps: bool,
    /// READs and atomics with the furthest PSN after them.
    with_data: BTreeMap<i64, (i64, Kind)>,
}

impl Requests {
    pub(super) const fn is_empty(&self) -> bool {
        self.first.is_none()
    }

    /// Resets on a distant PSN, as of another connection, and returns true.
    pub(super) fn reset(&mut self, headers: &Headers) -> bool {
        let at = self.index(headers.bth().psn);
        let is_near = (-WINDOW..self.limit + WINDOW).contains(&at);
        if !is_near {
            *self = Self::default();
        }
        !is_near
    }

    pub(super) fn take(&mut self, headers: &Headers) -> Option<i64> {
        let bth = headers.bth();
        let operation = bth.opcode.operation();
        if self.first.is_none() {
            self.first = Some(bth.psn);
            self.messages = Some(Vec::new());
        }
        let at = self.index(bth.psn);
        let kind = Kind::of(operation);
        // PSNs at the smallest path MTU
        let span = match (kind, headers.ext().reth()) {
            (Some(Kind::Read), Some(reth)) => {
                i64::from(reth.dma_length.div_ceil(256).clamp(1, 1 << 22))
            }
            _ => 1,
        };
        if let Some(kind) = kind {
            self.with_data.insert(at, (at + span, kind));
            if self.with_data.len() > RESPONSES_WITH_DATA {
                self.with_data.pop_first();
            }
        }
        self.has_gaps |= at > self.limit;
        self.limit = self.limit.max(at + span);
        if at < self.end {
            return None;
        }
        if at > self.end || span > 1 {
            self.messages = None;
        }
        if let (Some(messages), true) = (&mut self.messages, operation.position().ends()) {
            messages.push(at);
        }
        self.end = at + 1;
        Some(at)
    }

    /// True if a READ or atomic has this PSN, or may have had.
    fn has(&self, at: i64, kind: Kind) -> bool {
        let before = self.with_data.range(..=at).rev();
        let mut found = before.take_while(|(from, (end, _))| at < *end || **from > at - WINDOW);
        let full = self.with_data.len() >= RESPONSES_WITH_DATA;
        found.any(|(from, (end, its))| {
            at < *end && *its == kind && (kind == Kind::Read || *from == at)
        }) || full && self.with_data.first_key_value().is_some_and(|(first, _)| at < *first)
    }

    fn messages(&self, at: i64) -> Option<u32> {
        let messages = self.messages.as_ref()?;
        Some(messages.partition_point(|last| *last <= at) as u32)
    }

    fn index(&self, psn: Psn) -> i64 {
        unwrapped(psn, self.first.unwrap_or(psn), self.end)
    }
}

#[derive(Default)]
pub(super) struct Fit {
    /// Responses with and without a request.
    hits: u64,
    misses: u64,
    /// Responses beyond the last captured request.
    beyond: usize,
    /// PSNs with a response before the request.
    ahead: Vec<(i64, Duration)>,
    /// MSNs minus captured messages.
    msns: Msns,
}

/// Relation of MSNs to messages.
#[derive(Clone, Copy, Default)]
enum Msns {
    #[default]
    None,
    /// This difference, at this number of messages.
    One(u32, u32),
    /// Equal at several numbers of messages.
    Constant(u32),
    Different,
}

impl Fit {
    pub(super) fn before(&mut self, requests: &Requests, response: &Response) {
        let at = requests.index(response.psn);
        if at >= 0 {
            self.record_ahead(at, response.at);
        }
    }

    pub(super) fn take(&mut self, requests: &Requests, response: &Response) {
        let at = requests.index(response.psn);
        if (requests.limit..requests.limit + WINDOW).contains(&at) {
            return self.record_ahead(at, response.at);
        }
        // the request may precede the capture
        if (-WINDOW..0).contains(&at) {
            return;
        }
        let is_other = |kind| !requests.has(at, kind);
        if !(0..requests.limit).contains(&at) || response.kind.is_some_and(is_other) {
            self.misses += 1;
            return;
        }
        self.hits += 1;
        if let (Some(msn), Some(messages)) = (response.msn, requests.messages(at)) {
            self.msns.take(msn.get().wrapping_sub(messages) & 0xFF_FFFF, messages);
        }
    }

    fn record_ahead(&mut self, at: i64, now: Duration) {
        if self.ahead.len() < KEPT {
            self.ahead.push((at, now));
        }
    }

    pub(super) fn reset(&mut self) {
        self.ahead.clear();
        self.msns = Msns::None;
    }

    /// First request for `at`: an earlier response was to something else.
    pub(super) fn ask(&mut self, at: i64, now: Duration) {
        let before = self.ahead.len();
        let mut disorder = 0;
        self.ahead.retain(|(ahead, answered)| {
            disorder += usize::from(*ahead == at && now.saturating_sub(*answered) <= DISORDER);
            *ahead != at
        });
        self.misses += (before - self.ahead.len() - disorder) as u64;
    }

    /// Responses without requests were for others, or fell into a gap.
    pub(super) fn end(&mut self, requests: &Requests) {
        self.beyond = self.ahead.drain(..).filter(|(at, _)| *at >= requests.limit).count();
    }

    /// True if every response fits. `has_gaps`: packets are missing.
    pub(super) const fn is_right(&self, has_gaps: bool) -> bool {
        self.hits > 0 && self.misses == 0 && (has_gaps || self.beyond == 0)
    }

    /// Missing packets may speak against the right flow.
    pub(super) const fn is_mostly_right(&self) -> bool {
        self.hits > 4 * self.misses
    }

    pub(super) const fn fits_at_times(&self) -> bool {
        self.hits > 0
    }

    pub(super) const fn is_wrong(&self) -> bool {
        self.misses > 0 || self.beyond > 0
    }

    /// True if the MSNs count the messages; `None` if undecided.
    pub(super) const fn counts(&self) -> Option<bool> {
        match self.msns {
            Msns::None | Msns::One(..) => None,
            Msns::Constant(_) => Some(true),
            Msns::Different => Some(false),
        }
    }
}

impl Msns {
    fn take(&mut self, difference: u32, messages: u32) {
        *self = match *self {
            Self::None => Self::One(difference, messages),
            Self::One(its, at) if its == difference && at == messages => *self,
            Self::One(its, _) | Self::Constant(its) if its == difference => Self::Constant(its),
            _ => Self::Different,
        }
    }
}
