use std::time::Duration;

use roce_transport::{
    time::Instant,
    wire::{NetHeader, Operation},
};

use super::{PATIENCE, Pair, Play, Stop, mistake, wrong};
use crate::{
    case::{ExpectedBurst, Field, NAK_SEQUENCE, Packet, PacketKind},
    outcome::{Burst, Recovery},
    packet::{Request, describe, request},
    subject::{Arrival, Subject},
};

struct Repeat {
    net: NetHeader,
    bytes: Vec<u8>,
    every: Duration,
    due: Instant,
}

/// A packet taken for lost.
struct Gap {
    since: Instant,
    /// Index of the last packet received after the gap.
    farthest: u32,
    /// A NAK has named the missing packet.
    is_notified: bool,
    recovery: Recovery,
}

impl Gap {
    fn new(lost: u32, at: Instant) -> Self {
        let recovery = Recovery { lost, naks: 0, pause: Duration::ZERO, again: 0 };
        Self { since: at, farthest: lost, is_notified: false, recovery }
    }

    fn close(&mut self, place: u32, at: Instant) {
        let recovery = &mut self.recovery;
        self.is_notified = false;
        if place == recovery.lost {
            recovery.pause = at.since(self.since);
        } else if place <= self.farthest {
            recovery.again += 1;
        }
    }
}

impl<S: Subject> Play<'_, S> {
    pub(super) fn burst(&mut self, expected: &ExpectedBurst) -> Result<(), Stop> {
        let &ExpectedBurst { packets, lasts, within, slower, again, loses } = expected;
        let before = self.evidence.bursts.first().map_or(Duration::ZERO, Burst::of_each);
        let least = (before * slower * packets.saturating_sub(1)).max(lasts);
        let until = self.subject.now().plus(PATIENCE).plus(within).plus(self.subject.tolerance());
        let due = self.subject.now();
        let mut again = again.and_then(|every| {
            self.last.clone().map(|(net, bytes)| Repeat { net, bytes, every, due })
        });
        let mut burst = Burst { least, ..Burst::default() };
        let (mut first, mut gap) = (None, None::<Gap>);
        while burst.packets.len() < packets as usize {
            let Some(arrival) = self.next_arrival_while(again.as_mut(), until)? else {
                let count = burst.packets.len();
                return wrong(format!("{count} of {packets} packets come in {within:?}"));
            };
            let Request { psn, bytes, .. } = self.request(&arrival)?;
            let place = burst.packets.len() as u32;
            match (self.pair()?.ahead(psn), &mut gap) {
                (0, None) if loses == Some(place) => {
                    first.get_or_insert(arrival.at);
                    gap = Some(Gap::new(place, arrival.at));
                    continue;
                }
                (0, gap) => {
                    if let Some(gap) = gap {
                        gap.close(place, arrival.at);
                    }
                    let time = arrival.at.since(*first.get_or_insert(arrival.at));
                    burst.packets.push((time, bytes));
                    self.count(&arrival);
                }
                (ahead @ 1..0x0080_0000, Some(gap)) => {
                    gap.farthest = gap.farthest.max(place + ahead);
                    if !gap.is_notified {
                        self.acknowledge(Field::Syndrome(NAK_SEQUENCE))?;
                        gap.is_notified = true;
                        gap.recovery.naks += 1;
                        if gap.recovery.naks == 1 {
                            gap.since = self.mark.at;
                        }
                    }
                    continue;
                }
                (1..0x0080_0000, None) => return Err(mistake("the network has lost a packet")),
                _ => {} // retransmission
            }
            self.pump(Duration::ZERO)?;
            // One acknowledgement per batch, as each takes time.
            if self.arrivals.is_empty() || burst.packets.len() == packets as usize {
                self.acknowledge(Field::Positive)?;
            }
        }
        burst.recoveries = gap.into_iter().map(|gap| gap.recovery).collect();
        let time = burst.time();
        self.evidence.bursts.push(burst);
        if time < least {
            return wrong(format!("{packets} packets come in {time:?}, before {least:?} are over"));
        }
        if time > within.saturating_add(self.subject.tolerance()) {
            return wrong(format!("{packets} packets take {time:?}, expected {within:?}"));
        }
        Ok(())
    }

    pub(super) fn request(&self, arrival: &Arrival) -> Result<Request, Stop> {
        request(arrival).map_err(|why| Stop::Wrong(format!("{why}, in the {}", describe(arrival))))
    }

    pub(super) fn acknowledge(&mut self, kind: Field) -> Result<(), Stop> {
        let &mut Pair { requests, messages, .. } = self.pair()?;
        let behind = i32::from(kind == Field::Positive);
        let fields = vec![kind, Field::Psn(requests as i32 - behind), Field::Msn(messages)];
        let operation = PacketKind::Operation(Operation::Acknowledge);
        let (net, bytes) = self.build(&Packet { operation, fields })?;
        self.send(net, bytes)
    }

    /// Sends the due repeat meanwhile.
    fn next_arrival_while(
        &mut self,
        again: Option<&mut Repeat>,
        until: Instant,
    ) -> Result<Option<Arrival>, Stop> {
        let Some(again) = again else { return self.next_arrival(until) };
        while self.subject.now() < until {
            if self.subject.now() >= again.due {
                self.send(again.net, again.bytes.clone())?;
                again.due = self.subject.now().plus(again.every);
            }
            if let Some(arrival) = self.next_arrival(again.due.min(until))? {
                return Ok(Some(arrival));
            }
        }
        Ok(None)
    }
}
