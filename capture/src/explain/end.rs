//! One end's requester, followed over the packets: what it has sent, what has been answered, and
//! for which causes it may send something again.

use std::{
    collections::{BTreeMap, BTreeSet, VecDeque},
    time::Duration,
};

use roce_transport::psn::{Msn, Psn};

use super::{
    explained::Requester,
    naks::{Naks, SILENCE},
    psn::unwrapped,
    reason::{Cause, Causes, Explanation},
};

/// Places from which something may be sent again, at most.
const CURSORS: usize = 4;
/// PSNs whose times are kept: more than are ever under way.
const KEPT: usize = 1 << 14;

/// A request packet that has no answer yet.
#[derive(Clone, Copy)]
struct Sent {
    at: Duration,
    last: Duration,
    times: u32,
    causes: Causes,
}

/// A READ or an atomic whose data has not all come.
#[derive(Clone, Copy)]
struct Awaited {
    next: i64,
    end: i64,
}

/// A place from which everything is sent again.
#[derive(Clone, Copy)]
struct Cursor {
    at: i64,
    /// `None`: whatever made the other end go back is not in the capture.
    causes: Option<Causes>,
}

/// A requester. PSNs are counted on from the first that was captured, so that they do not wrap.
#[derive(Default)]
pub(super) struct End {
    captured: Captured,
    /// PSN after the furthest request.
    end: i64,
    /// The same, if the last request takes as many PSNs as it may.
    most: i64,
    oldest: i64,
    sent: BTreeMap<i64, Sent>,
    awaited: VecDeque<Awaited>,
    cursors: Vec<Cursor>,
    naks: Naks,
    /// Something was sent or arrived.
    active: Duration,
    /// PSN after the furthest answer with data.
    answered: i64,
    /// MSN of the last answer.
    pub(super) msn: Option<Msn>,
    /// How many PSNs a READ has taken is not known.
    is_unsure: bool,
    pub(super) repeats: Repeats,
}

/// Which PSNs were captured.
#[derive(Default)]
struct Captured {
    first: Option<Psn>,
    /// The lowest, below 0 if packets have overtaken each other.
    low: i64,
    /// Those in between that were not.
    missing: BTreeSet<i64>,
}

/// Repeats. They outlast a connection whose PSNs begin elsewhere.
#[derive(Clone, Copy, Default)]
pub(super) struct Repeats {
    /// Causes of all of it, if the capture has nothing from the other end.
    pub(super) deaf_causes: Option<Causes>,
    pub(super) packets: u64,
    /// How often one packet was sent.
    pub(super) most_times: u32,
}

/// PSNs that a request takes.
#[derive(Clone, Copy)]
pub(super) struct Span {
    pub(super) least: u32,
    pub(super) most: u32,
    /// It is answered with data.
    pub(super) awaits: bool,
}

/// Content of an answer.
pub(super) struct Answered {
    pub(super) packets: u32,
    /// Time since the last of them was sent, if it was sent once.
    pub(super) after: Option<Duration>,
    /// It was sent again for lack of an answer, so long after the first time, and so long before
    /// this.
    pub(super) hasty: Option<(Duration, Duration, Duration)>,
}

impl End {
    /// A request leaves. Returns the reason.
    pub(super) fn request(
        &mut self,
        now: Duration,
        psn: Psn,
        span: Span,
        starts: bool,
    ) -> Explanation {
        let Some(_) = self.captured.first else {
            self.captured.first = Some(psn);
            self.add(now, 0, span);
            return Explanation::Joined;
        };
        let at = self.index(psn);
        if !(self.captured.low - KEPT as i64..self.end.max(self.most) + KEPT as i64).contains(&at) {
            *self = Self { repeats: self.repeats, ..Self::default() };
            self.captured.first = Some(psn);
            self.add(now, 0, span);
            return Explanation::Anew;
        }
        // the READ before takes no more than that
        self.stretch(at);
        let silent = now.saturating_sub(self.active) >= SILENCE;
        if at < self.captured.low || self.captured.missing.remove(&at) {
            self.expect(at);
            self.captured.low = self.captured.low.min(at);
            self.active = now;
            self.naks.ask_for(now, at, span.least.into());
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
            return Explanation::Again(causes);
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
            self.awaited.push_back(Awaited { next: at, end: self.end });
            if self.awaited.len() > KEPT {
                self.awaited.pop_front();
            }
        }
    }

    /// Something has the PSN `at`: if it may be one of the last READ's, or the next, that goes as
    /// far.
    fn stretch(&mut self, at: i64) {
        if (self.end + 1..=self.most).contains(&at) {
            if let Some(read) = self.awaited.back_mut().filter(|read| read.end == self.end) {
                read.end = at;
            }
            self.end = at;
        }
    }

    /// Causes for which what was sent before may be sent again now.
    fn causes(&mut self, now: Duration, at: i64, span: i64, silent: bool) -> Causes {
        if let Some(causes) = self.repeats.deaf_causes {
            return causes;
        }
        if at < self.oldest {
            // the answer was lost behind the capture, and so may others have been
            self.go_back(at + span, None);
            return Causes::UNKNOWN;
        }
        let is_asked = self.naks.ask_for(now, at, span);
        let before = self.cursors.iter().filter(|cursor| cursor.at < at);
        let before = before.filter_map(|cursor| cursor.causes).flat_map(Causes::iter);
        let before = before.fold(Causes::UNKNOWN, Causes::or);
        let Some(mut causes) = self.pass(at, span) else { return Causes::UNKNOWN };
        let is_last = at + span >= self.end;
        if is_last && self.naks.may_have_crossed(now) && causes.contains(Cause::Nak) {
            causes = causes.or(Cause::NoAnswer);
        }
        let by_itself = at <= self.oldest || is_last;
        if by_itself && silent && !is_asked {
            // or it is what follows something that was due, and was lost before the capture
            if causes == Causes::UNKNOWN {
                causes = before;
            }
            // if it is a probe, what was to come has yet to
            for cause in causes.iter().filter(|cause| *cause != Cause::NoAnswer) {
                self.go_back(at, Some(cause));
            }
            causes = causes.or(Cause::NoAnswer);
            // it may have been the first of all
            self.go_back(at + span, Some(Cause::NoAnswer));
        } else if causes == Causes::UNKNOWN {
            // a timer that fired while others were sent, or a copy that the network has made
            self.go_back(at + span, None);
        }
        causes
    }

    /// Moves the places on from which this packet is due again. Returns their causes; `None`: one
    /// of them is not in the capture.
    fn pass(&mut self, at: i64, span: i64) -> Option<Causes> {
        let mut known = Some(Causes::UNKNOWN);
        // what was to come before it may be lost before the capture
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

    /// A PSN as a number that does not wrap, near what was sent last.
    fn index(&self, psn: Psn) -> i64 {
        unwrapped(psn, self.captured.first.unwrap_or(psn), self.end)
    }

    /// True if the PSN, that of an answer, is one of what was captured.
    pub(super) fn has(&mut self, psn: Psn) -> bool {
        let at = self.index(psn);
        self.stretch(at + 1);
        self.captured.first.is_some() && (self.captured.low..self.end).contains(&at)
    }

    /// True if the PSN was not captured, but others of its time were: it was lost before the
    /// capture, or sent before its beginning.
    pub(super) fn has_lost(&self, psn: Psn) -> bool {
        let at = self.index(psn);
        self.captured.first.is_some()
            && (self.captured.low - KEPT as i64..self.captured.low).contains(&at)
    }

    /// Nothing shows that this PSN, from before the first that was captured, is answered.
    fn expect(&mut self, at: i64) {
        if self.oldest <= self.captured.low {
            self.oldest = self.oldest.min(at);
        }
    }

    // Answers.

    /// An acknowledgement of everything up to `psn`.
    pub(super) fn acknowledge(&mut self, now: Duration, psn: Psn) -> Answered {
        let at = self.index(psn);
        self.active = now;
        self.advance(now, at + 1)
    }

    /// A NAK for `psn`, for this cause if it is not final.
    pub(super) fn refuse(&mut self, now: Duration, psn: Psn, cause: Option<Cause>) {
        let at = self.index(psn);
        self.active = now;
        self.naks.latest = Some(now);
        self.expect(at);
        let waits = self.awaited.front().is_some_and(|read| read.next < at);
        // of a second NAK a requester that has gone back need take no notice
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

    /// Data for `psn`. Returns what it has answered, and whether it was there before.
    pub(super) fn data(&mut self, now: Duration, psn: Psn) -> (Answered, bool) {
        let at = self.index(psn);
        self.active = now;
        let again = at < self.answered;
        self.answered = self.answered.max(at + 1);
        let mut answered = self.advance(now, at);
        if let Some(read) = self.awaited.front_mut().filter(|read| read.next == at) {
            read.next += 1;
            let done = read.next == read.end;
            if done {
                self.awaited.pop_front();
            }
            answered = self.reach(now, at + 1);
        }
        (answered, again)
    }

    /// Everything before `to` is answered, up to data that has not come.
    fn advance(&mut self, now: Duration, to: i64) -> Answered {
        match self.awaited.front() {
            Some(read) if read.next < to => {
                let next = read.next;
                let answered = self.reach(now, next);
                self.go_back(next, Some(Cause::ImpliedNak));
                self.naks.leave(now);
                answered
            }
            _ => self.reach(now, to),
        }
    }

    fn reach(&mut self, now: Duration, to: i64) -> Answered {
        let to = to.min(self.end);
        let mut answered = Answered { packets: 0, after: None, hasty: None };
        if to <= self.oldest {
            return answered;
        }
        answered.packets = u32::try_from(to - self.oldest).unwrap_or(u32::MAX);
        self.oldest = to;
        let rest = self.sent.split_off(&to);
        let done = std::mem::replace(&mut self.sent, rest);
        if let Some((_, last)) = done.last_key_value() {
            let after = now.saturating_sub(last.at);
            if last.times == 1 {
                // packets that a capture was given together have one time
                answered.after = Some(after).filter(|after| !after.is_zero());
            } else if last.causes == Causes::of(&[Cause::NoAnswer]) {
                let waited = last.last.saturating_sub(last.at);
                answered.hasty = Some((waited, now.saturating_sub(last.last), after));
            }
        }
        for cursor in &mut self.cursors {
            cursor.at = cursor.at.max(to);
        }
        self.naks.reach(to);
        let end = self.end;
        self.cursors.retain(|cursor| cursor.at < end);
        answered
    }

    /// How far it has come. `has_answers`: its service has some.
    pub(super) fn requester(&self, has_answers: bool) -> Option<Requester> {
        let first = self.captured.first.filter(|_| !self.is_unsure)?;
        let psn = |at: i64| first.plus((at & 0xFF_FFFF) as u32);
        let is_open = has_answers && self.oldest < self.end;
        Some(Requester {
            next_psn: psn(self.end),
            oldest_unacked: is_open.then(|| psn(self.oldest)),
            msn: self.msn,
        })
    }

    /// Time at which the oldest packet without an answer was sent last.
    pub(super) fn waits_since(&self) -> Option<Duration> {
        self.sent.last_key_value().map(|(_, sent)| sent.last)
    }
}
