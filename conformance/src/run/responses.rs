use std::{collections::BTreeSet, time::Duration};

use roce_transport::{
    time::{Instant, ack_timeout},
    wire::{Operation, Reth},
};

use super::{PATIENCE, Play, Stop, wrong};
use crate::{
    case::{Field, PEER_ADDRESS, PEER_KEY, Packet, PacketKind, Responses},
    outcome::{Burst, Recovery},
    packet::{Request, describe},
    subject::Subject,
};

/// Time in which the device may request received data again.
const QUIET: Duration = Duration::from_millis(1);

/// A READ: index of its first response, and range.
struct Read {
    place: u32,
    count: u32,
    bytes: u32,
}

struct Missing {
    /// Sent once after its successor, and not lost.
    is_late: bool,
    is_left_out: bool,
    since: Option<Instant>,
    recovery: Recovery,
}

struct Responder<'a> {
    responses: &'a Responses,
    reads: Vec<Read>,
    missing: Vec<Missing>,
    sent: BTreeSet<u32>,
    /// Held back until its successor is sent.
    held: Option<(u32, Packet)>,
    first: Option<Instant>,
    burst: Burst,
}

impl<'a> Responder<'a> {
    fn new(responses: &'a Responses) -> Self {
        let lost: BTreeSet<_> = responses.loses.iter().chain(&responses.swaps).copied().collect();
        let missing = lost.into_iter().map(|lost| Missing {
            is_late: !responses.loses.contains(&lost),
            is_left_out: false,
            since: None,
            recovery: Recovery { lost, naks: 0, pause: Duration::ZERO, again: 0 },
        });
        Self {
            responses,
            reads: Vec::new(),
            missing: missing.collect(),
            sent: BTreeSet::new(),
            held: None,
            first: None,
            burst: Burst::default(),
        }
    }

    fn is_done(&self) -> bool {
        self.sent.len() as u32 == self.responses.packets
    }

    /// Number from 1 of the READ that `place` belongs to.
    fn read(&mut self, place: u32, reth: &Reth, mtu: u32) -> Result<u32, String> {
        let end = self.reads.last().map_or(0, |last| last.place + last.count);
        if place >= end {
            if place > end || place >= self.responses.packets {
                return Err(format!("it is at place {place} of the responses, and not {end}"));
            }
            let (count, bytes) = (reth.dma_length.div_ceil(mtu).max(1), reth.dma_length);
            self.reads.push(Read { place, count, bytes });
        }
        let of = self.reads.iter().rposition(|read| read.place <= place).unwrap_or_default();
        let Read { place: begin, bytes, .. } = self.reads[of];
        let before = (place - begin) * mtu;
        let address = PEER_ADDRESS + u64::from(before);
        if (reth.virtual_address, reth.rkey.0) != (address, PEER_KEY) {
            let (found, key) = (reth.virtual_address, reth.rkey.0);
            return Err(format!("it asks for {found:#x} under key {key:#x}, and not {address:#x}"));
        }
        if before + reth.dma_length > bytes {
            let length = reth.dma_length;
            return Err(format!("it asks for {length} bytes, and has {} left", bytes - before));
        }
        Ok(of as u32 + 1)
    }

    fn asked(&mut self, first: u32, count: u32, at: Instant) {
        for Missing { recovery, since, .. } in &mut self.missing {
            if let Some(since) = since
                && recovery.pause.is_zero()
                && (first..first + count).contains(&recovery.lost)
            {
                recovery.pause = at.since(*since).max(Duration::from_nanos(1));
                let behind = recovery.lost + 1..first + count;
                recovery.again = behind.filter(|place| self.sent.contains(place)).count() as u32;
            }
        }
    }

    /// Notes when a device could notice a loss before `place`.
    fn shows(&mut self, place: u32, now: Instant) {
        let last = self.responses.packets - 1;
        for Missing { recovery: Recovery { lost, .. }, since, .. } in &mut self.missing {
            // No later response shows the loss of the last.
            if *lost < place || (*lost == place && place == last) {
                since.get_or_insert(now);
            }
        }
    }
}

impl<S: Subject> Play<'_, S> {
    pub(super) fn response(&mut self, responses: &Responses) -> Result<(), Stop> {
        let Responses { packets, within, .. } = *responses;
        let until = self.subject.now().plus(PATIENCE).plus(within).plus(self.subject.tolerance());
        let mut quiet = QUIET + self.subject.tolerance() / 4;
        if responses.swaps.is_some() {
            // A device that drops out-of-order responses may time out.
            let timeout = self.connection.as_ref().map(|connection| connection.requester.timeout);
            quiet += timeout.and_then(ack_timeout).unwrap_or_default() * 4;
        }
        let mut responder = Responder::new(responses);
        loop {
            let end = match responder.is_done() {
                true => self.subject.now().plus(quiet),
                false => until,
            };
            let Some(arrival) = self.next_arrival(end)? else { break };
            let Request { psn, read, .. } = self.request(&arrival)?;
            let Some(reth) = read else {
                return wrong(format!("the device sends {}", describe(&arrival)));
            };
            responder.first.get_or_insert(arrival.at);
            self.respond(&mut responder, psn, &reth, arrival.at).map_err(|stop| match stop {
                Stop::Wrong(why) => Stop::Wrong(format!("{why}, in the {}", describe(&arrival))),
                stop => stop,
            })?;
        }
        let Responder { missing, mut burst, sent, reads, .. } = responder;
        burst.recoveries = missing.into_iter().map(|it| it.recovery).collect();
        let time = burst.time();
        self.evidence.bursts.push(burst);
        let pair = self.pair()?;
        pair.requests += packets;
        pair.messages += reads.len() as u32;
        let unasked: Vec<_> = (0..packets).filter(|place| !sent.contains(place)).collect();
        if !unasked.is_empty() {
            return wrong(format!("the responses at places {unasked:?} are not asked for"));
        }
        if time > within.saturating_add(self.subject.tolerance()) {
            return wrong(format!("the READs take {time:?}, expected {within:?}"));
        }
        Ok(())
    }

    /// Omits lost responses.
    fn respond(
        &mut self,
        responder: &mut Responder<'_>,
        psn: u32,
        reth: &Reth,
        at: Instant,
    ) -> Result<(), Stop> {
        let mtu = self.connection.as_ref().map_or(256, |connection| connection.mtu);
        let requests = self.pair()?.requests;
        let first = self.pair()?.ahead(psn);
        let number = responder.read(first, reth, mtu).map_err(Stop::Wrong)?;
        let count = reth.dma_length.div_ceil(mtu).max(1);
        responder.asked(first, count, at);
        let seed = responder.responses.seed + (reth.virtual_address - PEER_ADDRESS) as u32;
        let messages = self.pair()?.messages + number;
        for (n, place) in (first..first + count).enumerate() {
            let done = n as u32 * mtu;
            let operation = match (n, n as u32 + 1 == count) {
                (0, true) => Operation::ReadResponseOnly,
                (0, false) => Operation::ReadResponseFirst,
                (_, false) => Operation::ReadResponseMiddle,
                (_, true) => Operation::ReadResponseLast,
            };
            let packet = Packet {
                operation: PacketKind::Operation(operation),
                fields: vec![
                    Field::Psn((requests + place) as i32),
                    Field::Data { bytes: mtu.min(reth.dma_length - done), seed: seed + done },
                    Field::Msn(messages),
                ],
            };
            let missing = responder.missing.iter_mut().find(|it| it.recovery.lost == place);
            if let Some(missing) = missing.filter(|missing| !missing.is_left_out) {
                missing.is_left_out = true;
                if missing.is_late {
                    responder.held = Some((place, packet));
                }
                responder.shows(place, self.subject.now());
                continue;
            }
            self.give(responder, place, &packet)?;
            if let Some((place, held)) = responder.held.take() {
                self.give(responder, place, &held)?;
            }
        }
        Ok(())
    }

    fn give(
        &mut self,
        responder: &mut Responder<'_>,
        place: u32,
        packet: &Packet,
    ) -> Result<(), Stop> {
        let (net, data) = self.build(packet)?;
        self.send(net, data)?;
        responder.shows(place, self.mark.at);
        let bytes = packet.fields.iter().find_map(|field| match field {
            Field::Data { bytes, .. } => Some(*bytes as usize),
            _ => None,
        });
        if responder.sent.insert(place) {
            let time = self.mark.at.since(responder.first.unwrap_or(self.mark.at));
            responder.burst.packets.push((time, bytes.unwrap_or_default()));
        }
        Ok(())
    }
}
