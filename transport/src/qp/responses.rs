//! A responder's responses (9.7.5.1).

use alloc::{boxed::Box, collections::VecDeque, sync::Arc, vec};

use super::{
    after_read::AfterRead,
    common::Common,
    decision::{Decision, Decisions, Failure, Reason},
    packet::OutgoingPacket,
    replay::PLACED,
    reply::{Attempt, ReadReply, Reply},
};
use crate::{
    congestion::{LARGEST_RUN, Pace},
    event::{Event, Refusal},
    ids::{Qpn, RKey},
    mem::{AccessError, Region},
    psn::{Msn, Psn},
    time::Instant,
    wire::{
        Aeth, AtomicAckEth, Ext, Headers, NakCode, Opcode, Operation, PacketPosition, Syndrome,
    },
    work::Fetched,
};

pub(super) const SEQUENCE_ERROR: Syndrome = Syndrome::Nak(NakCode::PsnSequenceError);

/// Bounded per attempt by the data responses that the peer may request; consecutive
/// acknowledgements merge.
#[derive(Debug, Default)]
pub(super) struct Responses {
    pub(super) replies: VecDeque<Reply>,
    pub(super) pace: Pace,
    /// PSN of the last READ data sent.
    pub(super) sent: Psn,
    pub(super) after_read: AfterRead,
}

impl Responses {
    pub(super) fn forget(&mut self) {
        self.replies.clear();
        self.after_read.forget_reads();
    }

    pub(super) fn with_data(&self, attempt: Attempt) -> usize {
        let waiting = self.replies.iter().filter(|reply| match reply {
            Reply::Acknowledge { .. } | Reply::Placed { .. } => false,
            Reply::Read(read) => read.attempt == attempt,
            Reply::Atomic { attempt: its, .. } => *its == attempt,
        });
        waiting.count()
    }

    pub(super) fn has_atomic(&self, psn: Psn) -> bool {
        self.replies
            .iter()
            .any(|reply| matches!(reply, Reply::Atomic { psn: its, .. } if *its == psn))
    }

    pub(super) fn read_at(&mut self, psn: Psn) -> Option<&mut ReadReply> {
        self.replies.iter_mut().find_map(|reply| match reply {
            Reply::Read(read) if read.holds(psn) => Some(read),
            _ => None,
        })
    }

    pub(super) fn record_repeat(&mut self, psn: Psn, common: &Common, now: Instant) {
        let behind = u64::from(self.sent.after(psn).unwrap_or(0));
        self.pace.on_repeat(behind * u64::from(common.mtu.bytes()), now);
    }

    pub(super) fn push_atomic(&mut self, psn: Psn, msn: Msn, found: u64, attempt: Attempt) {
        let aeth = Aeth { syndrome: Syndrome::ACK, msn };
        self.replies.push_back(Reply::Atomic { psn, aeth, found, attempt });
    }

    /// No attribute limits FLUSHes.
    pub(super) fn has_room_for_placed(&self) -> bool {
        self.replies.iter().filter(|reply| matches!(reply, Reply::Placed { .. })).count() < PLACED
    }

    pub(super) fn push_placed(&mut self, psn: Psn, msn: Msn) {
        self.replies.push_back(Reply::Placed { psn, aeth: Aeth { syndrome: Syndrome::ACK, msn } });
    }

    pub(super) fn push_read(&mut self, reply: ReadReply) {
        self.replies.push_back(Reply::Read(reply));
        self.after_read.queued += 1;
    }

    pub(super) fn acknowledge(&mut self, psn: Psn, msn: Msn) {
        let aeth = Aeth { syndrome: Syndrome::ACK, msn };
        match self.replies.back_mut() {
            // the waiting acknowledgement covers this PSN
            Some(Reply::Acknowledge { psn: waiting, .. }) if psn.is_before(*waiting) => {}
            Some(waiting @ Reply::Acknowledge { .. }) => {
                *waiting = Reply::Acknowledge { psn, aeth }
            }
            _ => self.replies.push_back(Reply::Acknowledge { psn, aeth }),
        }
    }

    /// Replaces an acknowledgement or NAK directly before it.
    pub(super) fn push_nak(&mut self, psn: Psn, syndrome: Syndrome, msn: Msn) {
        if let Some(Reply::Acknowledge { .. }) = self.replies.back() {
            self.replies.pop_back();
        }
        self.replies.push_back(Reply::Acknowledge { psn, aeth: Aeth { syndrome, msn } });
    }

    /// Takes back an unsent NAK for a missing packet.
    pub(super) fn take_waiting_nak(&mut self, expected: Psn) -> Option<Reply> {
        match self.replies.back() {
            Some(Reply::Acknowledge { psn, aeth })
                if *psn == expected && aeth.syndrome == SEQUENCE_ERROR =>
            {
                self.replies.pop_back()
            }
            _ => None,
        }
    }

    /// See [`AfterRead::keep`].
    pub(super) fn keep(
        &mut self,
        region: Option<&Region>,
        address: u64,
        length: u64,
        common: &Common,
    ) -> bool {
        region.is_none_or(|region| {
            self.after_read.keep(&self.replies, (region, address, length), common)
        })
    }

    pub(super) fn is_being_read(&self, key: RKey) -> bool {
        self.after_read.is_being_read(&self.replies, key)
    }

    pub(super) fn next_has_data(&self) -> bool {
        matches!(self.replies.front(), Some(Reply::Read(_)))
    }

    pub(super) fn is_empty(&self) -> bool {
        self.replies.is_empty()
    }

    pub(super) fn is_acknowledgement(&self) -> bool {
        self.replies.len() == 1
            && matches!(self.replies.front(), Some(Reply::Acknowledge { aeth, .. })
                if matches!(aeth.syndrome, Syndrome::Ack { .. }))
    }

    /// True once per long READ, with nothing queued behind.
    pub(super) fn hold_back(&mut self) -> bool {
        match self.replies.front_mut() {
            Some(Reply::Read(read))
                if read.next + 1 == read.packets && read.packets > LARGEST_RUN && !read.waited =>
            {
                read.waited = true;
                self.replies.len() == 1
            }
            _ => false,
        }
    }

    pub(super) fn write_acknowledgement(
        &mut self,
        common: &Common,
        slot: &mut [u8],
        decisions: &mut Decisions,
    ) -> Option<usize> {
        let Some(&Reply::Acknowledge { psn, aeth }) = self.replies.front() else { return None };
        self.replies.pop_front();
        decisions.take(|| {
            Decision::Packet(match aeth.syndrome {
                Syndrome::Ack { .. } => Reason::Acknowledge(psn),
                syndrome => Reason::Negative(psn, syndrome),
            })
        });
        let opcode = Opcode::known(common.qp_type.service(), Operation::Acknowledge);
        Some(Headers::built(common.bth(opcode, psn), Ext::Aeth(aeth)).encode(0, slot))
    }

    pub(super) fn next(&mut self, common: &Common) -> Option<Response> {
        let (mut attempt, mut ends_read) = (Attempt::First, None);
        let (psn, operation, ext, payload, source) = match self.replies.front_mut()? {
            Reply::Acknowledge { .. } => return None,
            Reply::Atomic { psn, aeth, found, attempt: its } => {
                let (psn, ext) = (*psn, Ext::AethAtomicAck(*aeth, AtomicAckEth(*found)));
                attempt = *its;
                self.replies.pop_front();
                (psn, Operation::AtomicAcknowledge, ext, 0, Source::Nothing)
            }
            Reply::Placed { psn, aeth } => {
                let (psn, aeth) = (*psn, *aeth);
                self.replies.pop_front();
                (psn, Operation::ReadResponseOnly, Ext::Aeth(aeth), 0, Source::Nothing)
            }
            Reply::Read(read) => {
                let index = read.next;
                let offset = index * common.mtu.bytes();
                let aeth = Ext::Aeth(Aeth { syndrome: Syndrome::ACK, msn: read.msn });
                let (operation, ext) = match PacketPosition::of(index, read.packets) {
                    PacketPosition::First => (Operation::ReadResponseFirst, aeth),
                    PacketPosition::Middle => (Operation::ReadResponseMiddle, Ext::None),
                    PacketPosition::Last => (Operation::ReadResponseLast, aeth),
                    PacketPosition::Only => (Operation::ReadResponseOnly, aeth),
                };
                let payload = (read.length - offset).min(common.mtu.bytes()) as usize;
                let psn = read.first_psn.plus(index);
                let source = match (self.after_read.take(psn, payload), &read.region) {
                    (Some(bytes), _) => Source::Kept(bytes),
                    (None, Some(region)) => {
                        let address = read.address.wrapping_add(u64::from(offset));
                        fetch(&mut read.fetched, region, read.address, offset, read.length, payload)
                            .unwrap_or_else(|| Source::Memory(region.clone(), address))
                    }
                    (None, None) => Source::Nothing,
                };
                attempt = read.attempt;
                self.sent = psn;
                read.next += 1;
                if read.next == read.packets {
                    ends_read = (attempt == Attempt::First).then_some(read.length);
                    self.replies.pop_front();
                    self.after_read.on_responses(&self.replies);
                }
                (psn, operation, ext, payload, source)
            }
        };
        let bth = common.bth(Opcode::known(common.qp_type.service(), operation), psn);
        Some(Response {
            outgoing: OutgoingPacket { headers: Headers::built(bth, ext), payload },
            psn,
            source,
            attempt,
            ends_read,
        })
    }

    /// Replaces an unreadable response by a NAK, and returns the event that fails the queue pair. A
    /// repeat fails nothing: its memory may be gone.
    pub(super) fn fail(
        &mut self,
        response: &Response,
        error: AccessError,
        msn: Msn,
        common: &Common,
    ) -> Option<Event> {
        let code = code_of(error);
        if response.attempt == Attempt::Repeat {
            // only the first can be partly sent
            if matches!(self.replies.front(), Some(Reply::Read(read)) if read.next > 0) {
                self.replies.pop_front();
                self.after_read.on_responses(&self.replies);
            }
            let aeth = Aeth { syndrome: Syndrome::Nak(code), msn };
            self.replies.push_front(Reply::Acknowledge { psn: response.psn, aeth });
            return None;
        }
        self.forget();
        self.push_nak(response.psn, Syndrome::Nak(code), msn);
        Some(event_of(code, common.qpn, Refusal::Access(error)))
    }
}

pub(super) struct Response {
    outgoing: OutgoingPacket,
    psn: Psn,
    source: Source,
    attempt: Attempt,
    /// Length of the ended READ, unless repeated.
    pub(super) ends_read: Option<u32>,
}

enum Source {
    Nothing,
    Memory(Arc<Region>, u64),
    /// Copied before a later request's change, or fetched from memory behind a driver.
    Kept(Box<[u8]>),
}

impl Response {
    pub(super) fn reason(&self) -> Reason {
        Reason::Response { again: self.attempt == Attempt::Repeat }
    }

    pub(super) const fn failure(&self, error: AccessError) -> Failure {
        Failure::Refused(Syndrome::Nak(code_of(error)), Refusal::Access(error))
    }

    pub(super) fn write(&self, slot: &mut [u8]) -> Result<usize, AccessError> {
        self.outgoing.write(slot, |payload| match &self.source {
            Source::Nothing => Ok(()),
            Source::Memory(region, address) => region.read(*address, payload),
            Source::Kept(bytes) => {
                payload.copy_from_slice(bytes);
                Ok(())
            }
        })
    }
}

/// `None` for memory not behind a driver, or if reading fails.
fn fetch(
    fetched: &mut Option<Box<Fetched>>,
    region: &Region,
    start: u64,
    offset: u32,
    length: u32,
    payload: usize,
) -> Option<Source> {
    if !region.is_behind_driver() {
        return None;
    }
    let mut bytes = vec![0; payload].into_boxed_slice();
    let bring = |offset, to: &mut [u8]| region.read(start.wrapping_add(offset), to);
    let fetched = fetched.get_or_insert_default();
    region
        .check_live()
        .and_then(|()| fetched.read(offset.into(), &mut bytes, length.into(), bring))
        .ok()
        .map(|()| Source::Kept(bytes))
}

pub(super) const fn code_of(error: AccessError) -> NakCode {
    match error {
        // the key was right; this side failed
        AccessError::Fault(_) => NakCode::RemoteOperationalError,
        _ => NakCode::RemoteAccessError,
    }
}

pub(super) const fn event_of(code: NakCode, qpn: Qpn, refusal: Refusal) -> Event {
    match code {
        NakCode::RemoteAccessError => Event::QpAccessError(qpn, refusal),
        _ => Event::QpRequestError(qpn, refusal),
    }
}
