//! Requester of one end: packets sent and acknowledged, causes of retransmissions.

use std::{
    collections::{BTreeMap, BTreeSet, VecDeque},
    ops::Range,
    time::Duration,
};

use roce_transport::psn::{Msn, Psn};

use super::{
    explained::Requester,
    naks::{Naks, SILENCE},
    psn::unwrapped,
    reason::{Cause, Causes, Explanation},
};

/// Most concurrent retransmissions.
const CURSORS: usize = 4;
/// PSNs with times: more than are ever in flight.
const KEPT: usize = 1 << 14;

#[derive(Clone, Copy)]
struct Sent {
    at: Duration,
    last: Duration,
    times: u32,
    causes: Causes,
}

/// Next PSN of a retransmission.
#[derive(Clone, Copy)]
struct Cursor {
    at: i64,
    /// `None`: not in the capture.
    causes: Option<Causes>,
}

/// PSNs count from the first captured and do not wrap.
#[derive(Default)]
pub(super) struct End {
    captured: Captured,
    /// PSN after the furthest request.
    end: i64,
    /// `end` if the last request takes the most PSNs possible.
    most: i64,
    oldest: i64,
    sent: BTreeMap<i64, Sent>,
    /// PSNs of data still to come.
    awaited: VecDeque<Range<i64>>,
    cursors: Vec<Cursor>,
    naks: Naks,
    /// Last packet in either direction.
    active: Duration,
    /// PSN after the furthest response with data.
    acknowledged: i64,
    pub(super) msn: Option<Msn>,
    /// The PSNs of a READ are unknown.
    is_unsure: bool,
    pub(super) repeats: Repeats,
}

#[derive(Default)]
struct Captured {
    first: Option<Psn>,
    /// Lowest; negative after reordering.
    low: i64,
    /// Missing in between.
    missing: BTreeSet<i64>,
}

/// Retransmissions, kept across a jump of PSNs.
#[derive(Clone, Copy, Default)]
pub(super) struct Repeats {
    /// Cause of all, if nothing of the other end was captured.
    pub(super) deaf_causes: Option<Causes>,
    pub(super) packets: u64,
    /// Most transmissions of one packet.
    pub(super) most_times: u32,
}

#[derive(Clone, Copy)]
pub(super) struct Span {
    pub(super) least: u32,
    pub(super) most: u32,
    /// The response has data.
    pub(super) awaits: bool,
}

pub(super) struct Acknowledged {
    pub(super) packets: u32,
    /// Time since the last packet was sent, if sent once.
    pub(super) after: Option<Duration>,
    /// Early timeout: first transmission to retransmission, from there to the response, and in all.
    pub(super) hasty: Option<(Duration, Duration, Duration)>,
}

impl End {
    pub(super) fn request(
        &mut self,
        now: Duration,
        psn: Psn,
        span: Span,
        starts: bool,
    ) -> Explanation {
        let at = self.index(psn);
        let near = self.captured.low - KEPT as i64..self.end.max(self.most) + KEPT as i64;
        let is_far = !near.contains(&at);
        if is_far || self.captured.first.is_none() {
            *self = Self { repeats: self.repeats, ..Self::default() };
            self.captured.first = Some(psn);
            self.add(now, 0, span);
            return if is_far { Explanation::Jump } else { Explanation::Joined };
        }
        // the previous READ ends here
        self.stretch(at);
        let silent = now.saturating_sub(self.active) >= SILENCE;
        if at < self.captured.low || self.captured.missing.remove(&at) {
            self.expect(at);
            self.captured.low = self.captured.low.min(at);
            self.active = now;
            self.naks.is_caused_by_nak(now, at, span.least.into());
            self.pass(at, span.least.into());
            let sent = Sent { at: now, last: now, times: 2, causes: Causes::UNKNOWN };
            self.sent.insert(at, sent);
            return Explanation::Late;
        }
        if at < self.end {
            let causes = self.causes(now, at, span.least.into(), silent);
            self.active = now;
            let is_soon = |sent: &Sent| {
                sent.times == 1
                    && now.saturating_sub(sent.last) < SILENCE
                    && self.naks.latest < Some(sent.last)
            };
            let unasked = causes == Causes::UNKNOWN && self.repeats.deaf_causes.is_none();
            if unasked && self.sent.get(&at).is_some_and(is_soon) {
                return Explanation::Copy;
            }
            self.repeats.packets += 1;
            if let Some(sent) = self.sent.get_mut(&at) {
                (sent.last, sent.causes) = (now, causes);
                sent.times += 1;
                let most = &mut self.repeats.most_times;
                *most = sent.times.max(*most);
            }
            return Explanation::Retransmit(causes);
        }
        let gap = at - self.end;
        if self.captured.missing.len() < KEPT {
            self.captured.missing.extend(self.end..at);
        }
        self.add(now, at, span);
        match gap {
            0 if starts => Explanation::First,
            0 => Explanation::Next,
            gap => Explanation::AfterGap(u32::try_from(gap).unwrap_or(u32::MAX)),
        }
    }

    fn add(&mut self, now: Duration, at: i64, Span { least, most, awaits }: Span) {
        self.active = now;
        self.end = at + i64::from(least);
        self.most = at + i64::from(most);
        self.is_unsure |= least < most;
        let sent = Sent { at: now, last: now, times: 1, causes: Causes::UNKNOWN };
        self.sent.insert(at, sent);
        while self.sent.len() > KEPT {
            self.sent.pop_first();
        }
        if awaits {
            self.awaited.push_back(at..self.end);
            if self.awaited.len() > KEPT {
                self.awaited.pop_front();
            }
        }
    }

    /// Extends the last READ up to `at`, if possible.
    fn stretch(&mut self, at: i64) {
        if (self.end + 1..=self.most).contains(&at) {
            if let Some(read) = self.awaited.back_mut().filter(|read| read.end == self.end) {
                read.end = at;
            }
            self.end = at;
        }
    }

    fn causes(&mut self, now: Duration, at: i64, span: i64, silent: bool) -> Causes {
        if let Some(causes) = self.repeats.deaf_causes {
            return causes;
        }
        if at < self.oldest {
            // responses were lost beyond the capture
            self.go_back(at + span, None);
            return Causes::UNKNOWN;
        }
        let is_asked = self.naks.is_caused_by_nak(now, at, span);
        let before = self.cursors.iter().filter(|cursor| cursor.at < at);
        let before = before.filter_map(|cursor| cursor.causes).flat_map(Causes::iter);
        let before = before.fold(Causes::UNKNOWN, Causes::or);
        let Some(mut causes) = self.pass(at, span) else { return Causes::UNKNOWN };
        let is_last = at + span >= self.end;
        if is_last && self.naks.may_have_crossed(now) && causes.contains(Cause::Nak) {
            causes = causes.or(Cause::NoResponse);
        }
        let by_itself = at <= self.oldest || is_last;
        if by_itself && silent && !is_asked {
            // or an earlier due packet was lost before the capture
            if causes == Causes::UNKNOWN {
                causes = before;
            }
            // after a probe, the due packets are still to come
            for cause in causes.iter().filter(|cause| *cause != Cause::NoResponse) {
                self.go_back(at, Some(cause));
            }
            causes = causes.or(Cause::NoResponse);
            // possibly the first of a retransmission
            self.go_back(at + span, Some(Cause::NoResponse));
        } else if causes == Causes::UNKNOWN {
            // a timer during other packets, or a copy by the network
            self.go_back(at + span, None);
        }
        causes
    }

    /// Causes of the retransmissions due; `None`: one is not in the capture.
    fn pass(&mut self, at: i64, span: i64) -> Option<Causes> {
        let mut known = Some(Causes::UNKNOWN);
        // earlier due packets may be lost before the capture
        let are_far = self.naks.are_far;
        let is_due = |cursor: &&mut Cursor| cursor.at == at || are_far && cursor.at < at;
        for cursor in self.cursors.iter_mut().filter(is_due) {
            known =
                known.zip(cursor.causes).map(|(known, more)| more.iter().fold(known, Causes::or));
            cursor.at = at + span;
        }
        let end = self.end;
        self.cursors.retain(|cursor| cursor.at < end);
        known
    }

    fn go_back(&mut self, at: i64, cause: Option<Cause>) {
        if at >= self.end {
            return;
        }
        let causes = cause.map(|cause| Causes::of(&[cause]));
        if let Some(cursor) = self.cursors.iter_mut().find(|cursor| cursor.at == at) {
            cursor.causes = cursor.causes.zip(cause).map(|(known, cause)| known.or(cause));
            return;
        }
        if self.cursors.len() == CURSORS {
            self.cursors.remove(0);
        }
        self.cursors.push(Cursor { at, causes });
    }

    fn index(&self, psn: Psn) -> i64 {
        unwrapped(psn, self.captured.first.unwrap_or(psn), self.end)
    }

    pub(super) fn has(&mut self, psn: Psn) -> bool {
        let at = self.index(psn);
        self.stretch(at + 1);
        self.captured.first.is_some() && (self.captured.low..self.end).contains(&at)
    }

    /// True for a PSN shortly before the captured.
    pub(super) fn has_lost(&self, psn: Psn) -> bool {
        let at = self.index(psn);
        self.captured.first.is_some()
            && (self.captured.low - KEPT as i64..self.captured.low).contains(&at)
    }

    /// Expects a response for a PSN before the first captured.
    fn expect(&mut self, at: i64) {
        if self.oldest <= self.captured.low {
            self.oldest = self.oldest.min(at);
        }
    }

    pub(super) fn acknowledge(&mut self, now: Duration, psn: Psn) -> Acknowledged {
        let at = self.index(psn);
        self.active = now;
        self.advance(now, at + 1)
    }

    /// `cause` is `None` for fatal NAKs.
    pub(super) fn refuse(&mut self, now: Duration, psn: Psn, cause: Option<Cause>) {
        let at = self.index(psn);
        self.active = now;
        self.naks.latest = Some(now);
        self.expect(at);
        let waits = self.awaited.front().is_some_and(|read| read.start < at);
        // a requester that has gone back may ignore a second NAK
        let alone = cause == Some(Cause::Nak)
            && self.cursors.is_empty()
            && self.sent.get(&at).is_none_or(|sent| sent.times == 1);
        self.advance(now, at);
        let stale = at < self.oldest;
        if let (Some(cause), false) = (cause, waits || stale) {
            self.go_back(at, Some(cause));
            self.naks.take(now, at, alone, self.sent.contains_key(&at));
        }
    }

    /// Returns the effect, and true for duplicate data.
    pub(super) fn data(&mut self, now: Duration, psn: Psn) -> (Acknowledged, bool) {
        let at = self.index(psn);
        self.active = now;
        let again = at < self.acknowledged;
        self.acknowledged = self.acknowledged.max(at + 1);
        let mut acknowledged = self.advance(now, at);
        if let Some(read) = self.awaited.front_mut().filter(|read| read.start == at) {
            read.start += 1;
            if read.is_empty() {
                self.awaited.pop_front();
            }
            acknowledged = self.reach(now, at + 1);
        }
        (acknowledged, again)
    }

    /// Completes everything before `to`, up to missing data.
    fn advance(&mut self, now: Duration, to: i64) -> Acknowledged {
        match self.awaited.front() {
            Some(read) if read.start < to => {
                let next = read.start;
                let acknowledged = self.reach(now, next);
                self.go_back(next, Some(Cause::ImpliedNak));
                self.naks.on_go_back(now);
                acknowledged
            }
            _ => self.reach(now, to),
        }
    }

    fn reach(&mut self, now: Duration, to: i64) -> Acknowledged {
        let to = to.min(self.end);
        let mut acknowledged = Acknowledged { packets: 0, after: None, hasty: None };
        if to <= self.oldest {
            return acknowledged;
        }
        acknowledged.packets = u32::try_from(to - self.oldest).unwrap_or(u32::MAX);
        self.oldest = to;
        let rest = self.sent.split_off(&to);
        let done = std::mem::replace(&mut self.sent, rest);
        if let Some((_, last)) = done.last_key_value() {
            let after = now.saturating_sub(last.at);
            if last.times == 1 {
                // packets captured in one batch have one time
                acknowledged.after = Some(after).filter(|after| !after.is_zero());
            } else if last.causes == Causes::of(&[Cause::NoResponse]) {
                let waited = last.last.saturating_sub(last.at);
                acknowledged.hasty = Some((waited, now.saturating_sub(last.last), after));
            }
        }
        for cursor in &mut self.cursors {
            cursor.at = cursor.at.max(to);
        }
        self.naks.advance(to);
        let end = self.end;
        self.cursors.retain(|cursor| cursor.at < end);
        acknowledged
    }

    /// `has_responses`: of the service.
    pub(super) fn requester(&self, has_responses: bool) -> Option<Requester> {
        let first = self.captured.first.filter(|_| !self.is_unsure)?;
        let psn = |at: i64| first.plus((at & 0xFF_FFFF) as u32);
        let is_open = has_responses && self.oldest < self.end;
        Some(Requester {
            next_psn: psn(self.end),
            oldest_unacked: is_open.then(|| psn(self.oldest)),
            msn: self.msn,
        })
    }

    pub(super) fn waits_since(&self) -> Option<Duration> {
        self.sent.last_key_value().map(|(_, sent)| sent.last)
    }
}
