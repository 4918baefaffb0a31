//! A connection in progress, and its findings at the end.

use std::time::Duration;

use roce_transport::wire::Service;

use super::{
    connection::{Connection, EndSummary, RoundTrips},
    end::{Acknowledged, End},
    explained::ExplainedPacket,
    finding::FindingKind,
    reason::{Cause, Causes},
};

/// Percentage of retransmissions for a finding, and minimum packets.
const MANY: u64 = 10;
const ENOUGH: u64 = 20;
const STORM: u32 = 5;
/// Marked packets without a CNP, and ineffective CNPs, for a finding.
const MARKS: u64 = 10;
const NOTIFICATIONS: usize = 10;
/// Late: this multiple of the median, and at least this time.
const LATE: u32 = 20;
const LATE_AT_LEAST: Duration = Duration::from_millis(2);
const SILENCE: Duration = Duration::from_millis(100);
/// Time to compare a sender's data before and after a CNP.
const COMPARED: Duration = Duration::from_millis(1);

pub(super) struct Talk {
    pub(super) connection: Connection,
    pub(super) ends: [End; 2],
    round_trips: [Vec<(usize, Duration)>; 2],
    least: [Option<Duration>; 2],
    /// Data of each end, and CNPs to the end.
    pub(super) data: [Vec<(Duration, u64)>; 2],
    pub(super) notified: [Vec<(usize, Duration)>; 2],
    pub(super) mismatched: [bool; 2],
    pub(super) last_frame: usize,
}

impl Talk {
    /// `heard`: the capture has packets from this end.
    pub(super) fn new(connection: Connection, heard: [bool; 2]) -> Self {
        let mut ends: [End; 2] = Default::default();
        for (end, is_other_heard) in ends.iter_mut().zip([heard[1], heard[0]]) {
            // If the other end was not captured, no retransmission has a known cause.
            end.repeats.deaf_causes = (!is_other_heard).then(|| match connection.one_of {
                0 => Causes::of(&[Cause::NotCaptured]),
                _ => Causes::UNKNOWN,
            });
        }
        Self {
            connection,
            ends,
            round_trips: Default::default(),
            least: [None; 2],
            data: Default::default(),
            notified: Default::default(),
            mismatched: [false; 2],
            last_frame: 0,
        }
    }

    pub(super) fn measure(
        &mut self,
        packet: &ExplainedPacket,
        acknowledged: &Acknowledged,
    ) -> Option<FindingKind> {
        let to = usize::from(!packet.from_second);
        if let Some(after) = acknowledged.after {
            self.round_trips[to].push((packet.frame, after));
            self.least[to] = Some(self.least[to].map_or(after, |least| least.min(after)));
        }
        let (waited, since, after) = acknowledged.hasty?;
        let is_hasty = since < self.least[to]? / 2;
        is_hasty.then_some(FindingKind::TimeoutTooShort(waited, after))
    }

    pub(super) fn conclude(&mut self, end: Duration) -> Vec<(usize, FindingKind)> {
        let connection = &mut self.connection;
        let mut found = Vec::new();
        let mut add = |frame, kind| found.push((frame, kind));
        let last = self.last_frame;
        let reliable = matches!(connection.service, Service::Rc | Service::Xrc);
        for from in 0..2 {
            let requester = &self.ends[from];
            let times = self.round_trips[from].iter().map(|(_, time)| *time).collect();
            let summary = &mut connection.summaries[from];
            summary.round_trips = RoundTrips::of(times);
            summary.repeated = requester.repeats.packets;
            let EndSummary { requests, repeated, marked, round_trips, .. } = *summary;
            if let Some(usual) = round_trips.filter(|times| times.count >= 8) {
                let late = |(_, time): &&(usize, Duration)| {
                    *time > usual.median * LATE && *time > LATE_AT_LEAST
                };
                for (frame, time) in self.round_trips[from].iter().filter(late) {
                    add(*frame, FindingKind::LateResponse(*time, usual.median));
                }
            }
            if requester.repeats.most_times >= STORM {
                add(last, FindingKind::Storm(requester.repeats.most_times));
            }
            if requests >= ENOUGH && repeated * 100 > requests * MANY {
                add(last, FindingKind::ManyRepeats((repeated * 100 / requests) as u32));
            }
            let responses = connection.summaries[1 - from].packets > 0;
            if let (Some(since), true, true) = (requester.waits_since(), reliable, responses) {
                let silent = end.saturating_sub(since);
                if silent > SILENCE {
                    add(last, FindingKind::NoResponse(silent));
                }
            }
            if marked >= MARKS && connection.summaries[1 - from].cnps == 0 && reliable && responses
            {
                add(last, FindingKind::MarksWithoutNotification(marked as u32));
            }
            if let Some(ignored) = ignored(&self.data[from], &self.notified[from]) {
                add(ignored, FindingKind::NotificationsIgnored(self.notified[from].len() as u32));
            }
        }
        let [one, other] = &connection.summaries;
        let half = one.packets == 0 || other.packets == 0;
        if connection.one_of > 0 {
            add(last, FindingKind::OneOf(connection.one_of));
        } else if reliable && half && one.packets + other.packets > 2 {
            add(last, FindingKind::OneDirection);
        }
        found
    }
}

/// Frame of the first of many CNPs that did not slow the sender.
fn ignored(data: &[(Duration, u64)], notified: &[(usize, Duration)]) -> Option<usize> {
    let &(frame, first) = notified.first()?;
    let soon = notified.iter().filter(|(_, at)| *at <= first + COMPARED * 2).count();
    let sent = |from: Duration, to: Duration| -> u64 {
        data.iter().filter(|(at, _)| (from..to).contains(at)).map(|(_, bytes)| bytes).sum()
    };
    let before = sent(first.saturating_sub(COMPARED), first);
    let after = sent(first + COMPARED, first + COMPARED * 2);
    (soon >= NOTIFICATIONS && before > 0 && after >= before).then_some(frame)
}
