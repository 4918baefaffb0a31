//! The responder: carries out the peer's requests and answers them.
//!
//! Read first: InfiniBand volume 1, 9.7.4 (responder: receiving inbound requests), 9.7.5.1
//! (generating responses), 9.9.3 (responder error behaviour).

use alloc::{boxed::Box, collections::VecDeque, sync::Arc};

use super::{
    attr::ResponderAttr,
    behind::Behind,
    common::{Common, Env},
    error::PostError,
    note::{Failure, Reason},
    packet::OutgoingPacket,
    replay::{PLACED, Placements, Remembered, RememberedOp, ReplayRing},
    reply::{Attempt, ReadReply, Reply},
};
use crate::{
    congestion::Pace,
    event::{Disposition, DropReason, Event, Refusal},
    ids::{PdId, Qpn},
    mem::{Access, AccessError, Region, RegionTable},
    psn::{Msn, Psn},
    wire::{
        Aeth, AtomicAckEth, AtomicEth, Ext, Headers, NakCode, Opcode, Operation, Packet,
        PacketPosition, Reth, Syndrome,
    },
    work::{Cause, CountedOps, RecvQueue, RecvWqe, RecvWr, WcError, WcStatus},
};

/// The message that the next packet has to continue.
#[derive(Debug)]
pub(super) enum Message {
    None,
    Send {
        wqe: RecvWqe,
        received: u64,
    },
    /// `region` is `None` for a WRITE of no bytes, which needs no key.
    Write {
        region: Option<Arc<Region>>,
        address: u64,
        done: u32,
        length: u32,
    },
}

/// The receive queue of a queue pair and how far its peer has come.
#[derive(Debug)]
pub(crate) struct Responder {
    queue: RecvQueue,
    pub(super) expected: Psn,
    pub(super) msn: Msn,
    /// The PSN after the last request that was no READ. A repeat is acknowledged up to here, so
    /// that the answer to it never stands for the data of a READ.
    acknowledged: Psn,
    /// MSN of an acknowledgement up to `acknowledged`.
    acknowledged_msn: Msn,
    /// A NAK for `expected` is on its way; what comes ahead of it is dropped without another.
    nak_sent: bool,
    /// PSN after the furthest request that was dropped because it came ahead of `expected`.
    ahead: Option<Psn>,
    pub(super) message: Message,
    pub(super) replay: ReplayRing,
    pub(super) placements: Placements,
    pub(super) replies: VecDeque<Reply>,
    pub(super) pace: Pace,
    /// PSN of the last answer with data of a READ.
    answered: Psn,
    pub(super) behind: Behind,
    pub(super) min_rnr_timer: u8,
}

/// Result of handling a request.
#[derive(Clone, Copy, Debug)]
pub(super) enum Outcome {
    Done(Disposition),
    /// The queue pair has to go into the error state. `event` is for the case that no completion
    /// tells of it.
    Fatal {
        disposition: Disposition,
        event: Option<Event>,
    },
}

/// A response packet that is due.
pub(super) struct Response {
    outgoing: OutgoingPacket,
    psn: Psn,
    source: Source,
    attempt: Attempt,
    /// Length of the READ that this is the last answer to, if that was not given before.
    pub(super) ends_read: Option<u32>,
}

/// Data of a response packet.
enum Source {
    Nothing,
    Memory(Arc<Region>, u64),
    /// As it was before something behind the READ changed it.
    Kept(Box<[u8]>),
}

/// Reason why a request in sequence is not carried out.
pub(super) enum Refused {
    NotReady,
    /// Too many answers wait; the peer will ask again.
    Busy,
    /// It would change what a READ before it has yet to send; the peer is asked for it again when
    /// that has left.
    BehindRead,
    /// All of it was carried out but the invalidation of a key: the peer gets its acknowledgement,
    /// and then no more.
    Invalidate(AccessError),
    Fatal(NakCode, Refusal),
}

impl Refused {
    pub(super) const fn invalid(refusal: Refusal) -> Self {
        Self::Fatal(NakCode::InvalidRequest, refusal)
    }

    pub(super) const fn access(error: AccessError) -> Self {
        Self::Fatal(code_of(error), Refusal::Access(error))
    }
}

/// The NAK for an access that a region does not allow.
const fn code_of(error: AccessError) -> NakCode {
    match error {
        // the key was right; what failed is on this side
        AccessError::Fault(_) => NakCode::RemoteOperationalError,
        _ => NakCode::RemoteAccessError,
    }
}

/// The event that tells of a NAK where no completion does.
const fn event_of(code: NakCode, qpn: Qpn, refusal: Refusal) -> Event {
    match code {
        NakCode::RemoteAccessError => Event::QpAccessError(qpn, refusal),
        _ => Event::QpRequestError(qpn, refusal),
    }
}

impl Responder {
    pub(crate) fn new(capacity: u32) -> Self {
        Self {
            queue: RecvQueue::new(capacity),
            expected: Psn::default(),
            msn: Msn::default(),
            acknowledged: Psn::default(),
            acknowledged_msn: Msn::default(),
            nak_sent: false,
            ahead: None,
            message: Message::None,
            replay: ReplayRing::default(),
            placements: Placements::default(),
            replies: VecDeque::new(),
            pace: Pace::default(),
            answered: Psn::default(),
            behind: Behind::default(),
            min_rnr_timer: 0,
        }
    }

    /// INIT→RTR.
    pub(crate) fn start(&mut self, psn: Psn, attr: &ResponderAttr) {
        self.expected = psn;
        self.acknowledged = psn;
        self.msn = Msn::default();
        self.acknowledged_msn = Msn::default();
        self.replay = ReplayRing::new(attr.max_dest_rd_atomic);
        self.placements = Placements::default();
        self.min_rnr_timer = attr.min_rnr_timer;
    }

    /// SQD→SQD: sets the number of READs and atomics that the peer may have outstanding.
    pub(crate) fn set_max_dest_rd_atomic(&mut self, agreed: u8) {
        self.replay.resize(agreed);
    }

    /// Forgets everything, posted requests included.
    pub(crate) fn reset(&mut self) {
        while self.queue.pop().is_some() {}
        self.message = Message::None;
        self.nak_sent = false;
        self.ahead = None;
        self.replies.clear();
        self.pace = Pace::default();
        self.behind = Behind::default();
    }

    pub(crate) const fn expected(&self) -> Psn {
        self.expected
    }

    /// True if the next packet has to continue a message.
    pub(super) const fn is_within_message(&self) -> bool {
        !matches!(self.message, Message::None)
    }

    /// Drops the message under way, and the receive request that it was to fill.
    pub(super) fn forget_message(&mut self) {
        self.message = Message::None;
    }

    pub(crate) fn post(
        &mut self,
        wr: &RecvWr,
        pd: PdId,
        regions: &RegionTable,
    ) -> Result<(), PostError> {
        if self.queue.is_full() {
            return Err(PostError::QueueFull);
        }
        self.queue.push(wr, pd, regions);
        Ok(())
    }

    /// The queue that it receives from: its own, or a shared one.
    pub(super) fn receives<'a>(
        &'a mut self,
        common: &Common,
        env: &'a mut Env<'_>,
    ) -> &'a mut RecvQueue {
        match common.srq.and_then(|id| env.srqs.get_mut(&id)) {
            Some(shared) => &mut shared.queue,
            None => &mut self.queue,
        }
    }

    /// Takes the oldest receive request.
    pub(super) fn take(&mut self, common: &Common, env: &mut Env<'_>) -> Option<RecvWqe> {
        if env.not_ready {
            return None;
        }
        let wqe = self.receives(common, env).pop()?;
        if let Some(id) = common.srq {
            env.note_taken(id);
        }
        Some(wqe)
    }

    /// Takes the oldest receive request, one that is being filled first, on the way into the error
    /// state.
    pub(crate) fn flush(&mut self) -> Option<u64> {
        if let Message::Send { wqe, .. } = core::mem::replace(&mut self.message, Message::None) {
            return Some(wqe.id);
        }
        self.queue.pop().map(|wqe| wqe.id)
    }

    /// Nothing more is answered: the owner has put the queue pair into the error state.
    pub(crate) fn forget_replies(&mut self) {
        self.replies.clear();
        self.behind.forget_reads();
    }

    // Requests.

    pub(super) fn handle(
        &mut self,
        packet: &Packet<'_>,
        common: &Common,
        env: &mut Env<'_>,
    ) -> Outcome {
        match packet.headers.bth().psn.after(self.expected) {
            None => Outcome::Done(self.repeat(packet, common, env)),
            Some(0) => {
                let waiting = self.take_waiting_nak();
                self.nak_sent = false;
                match self.execute(packet, common, env) {
                    Ok(()) => {
                        self.close_gap(waiting.is_some());
                        Outcome::Done(Disposition::Executed)
                    }
                    Err(Refused::NotReady) => {
                        env.counters.rnr_naks_sent += 1;
                        let syndrome = Syndrome::RnrNak { timer: self.min_rnr_timer };
                        Outcome::Done(self.nak(syndrome, Refusal::NoReceiveRequest))
                    }
                    Err(Refused::Busy) => {
                        self.nak_sent = waiting.is_some();
                        self.replies.extend(waiting);
                        Outcome::Done(Disposition::Dropped(DropReason::ResponderBusy))
                    }
                    Err(Refused::BehindRead) => {
                        env.counters.sequence_naks_sent += 1;
                        let syndrome = Syndrome::Nak(NakCode::PsnSequenceError);
                        Outcome::Done(self.nak(syndrome, Refusal::UnansweredRead))
                    }
                    Err(Refused::Invalidate(error)) => {
                        self.fail_invalidation(packet, error, common, env)
                    }
                    Err(Refused::Fatal(code, refusal)) => {
                        let operation = packet.headers.bth().opcode.operation();
                        let counted = CountedOps::of_request(operation);
                        common.completion_counters.count(counted, None);
                        self.refuse(code, refusal, common, env)
                    }
                }
            }
            Some(_) if self.nak_sent => {
                self.note_ahead(packet.headers.bth().psn);
                Outcome::Done(Disposition::Dropped(DropReason::OutOfSequence))
            }
            Some(_) => {
                self.note_ahead(packet.headers.bth().psn);
                env.counters.sequence_naks_sent += 1;
                Outcome::Done(
                    self.nak(Syndrome::Nak(NakCode::PsnSequenceError), Refusal::MissingPacket),
                )
            }
        }
    }

    fn note_ahead(&mut self, psn: Psn) {
        let end = psn.plus(1);
        if self.ahead.is_none_or(|ahead| ahead.is_before(end)) {
            self.ahead = Some(end);
        }
    }

    /// Takes back the NAK for a missing packet that has not left yet.
    fn take_waiting_nak(&mut self) -> Option<Reply> {
        const SEQUENCE: Syndrome = Syndrome::Nak(NakCode::PsnSequenceError);
        match self.replies.back() {
            Some(Reply::Acknowledge { psn, aeth })
                if *psn == self.expected && aeth.syndrome == SEQUENCE =>
            {
                self.replies.pop_back()
            }
            _ => None,
        }
    }

    /// The packet that was missing has come late. What was dropped behind it is missing now. If the
    /// NAK for the first had left already, its sender repeats everything by itself.
    fn close_gap(&mut self, unsent: bool) {
        self.ahead = self.ahead.filter(|&ahead| self.expected.is_before(ahead));
        if unsent && self.ahead.is_some() {
            self.nak_sent = true;
            self.push_nak(self.expected, Syndrome::Nak(NakCode::PsnSequenceError));
        }
    }

    /// The message of a SEND has come, but the key that it was to invalidate is none that can be.
    /// The requester is not to blame for more than that: it gets its acknowledgement; the receive
    /// request and the queue pair fail (9.9.3, class J).
    fn fail_invalidation(
        &mut self,
        packet: &Packet<'_>,
        error: AccessError,
        common: &Common,
        env: &mut Env<'_>,
    ) -> Outcome {
        let bth = packet.headers.bth();
        self.expected = self.expected.plus(1);
        self.msn = self.msn.next();
        self.note_acknowledged();
        if bth.ack_req {
            self.acknowledge(bth.psn, self.msn);
        }
        let refusal = Refusal::Invalidate(error);
        self.behind.complete_all(common, env);
        self.fail_receive(NakCode::InvalidRequest, refusal, common, env);
        Outcome::Fatal { disposition: Disposition::Refused(Syndrome::ACK, refusal), event: None }
    }

    // Requests seen before.

    fn repeat(&mut self, packet: &Packet<'_>, common: &Common, env: &mut Env<'_>) -> Disposition {
        let bth = packet.headers.bth();
        let disposition = match (bth.opcode.operation(), packet.headers.ext()) {
            (Operation::ReadRequest, Ext::Reth(reth)) => {
                self.repeat_read(bth.psn, reth, common, env)
            }
            (operation @ (Operation::CmpSwap | Operation::FetchAdd), Ext::Atomic(eth)) => {
                self.repeat_atomic(bth.psn, operation, eth)
            }
            (Operation::AtomicWrite | Operation::Flush, _) => {
                match self.placements.find(bth.psn) {
                    None => Disposition::Dropped(DropReason::ReplayMissing),
                    // carried out the first time; only the answer is missing
                    Some(_) if !self.has_room_for_placed() => {
                        Disposition::Dropped(DropReason::ResponderBusy)
                    }
                    Some(msn) => {
                        self.push_placed(bth.psn, msn);
                        Disposition::Duplicate
                    }
                }
            }
            _ => {
                self.acknowledge(self.acknowledged.previous(), self.acknowledged_msn);
                Disposition::Duplicate
            }
        };
        if disposition == Disposition::Duplicate {
            env.counters.duplicate_requests += 1;
        }
        disposition
    }

    /// A READ again, from its start or from inside (9.7.5.1.4): it is carried out anew, on the
    /// memory as it is now.
    fn repeat_read(
        &mut self,
        psn: Psn,
        reth: &Reth,
        common: &Common,
        env: &Env<'_>,
    ) -> Disposition {
        let missing = Disposition::Dropped(DropReason::ReplayMissing);
        let Some(Remembered { first_psn, msn, op: RememberedOp::Read(first), .. }) =
            self.replay.find(psn)
        else {
            return missing;
        };
        let skipped = u64::from(psn.after(first_psn).unwrap_or(0)) * u64::from(common.mtu.bytes());
        let same = reth.rkey == first.rkey
            && reth.virtual_address == first.virtual_address.wrapping_add(skipped)
            && u64::from(reth.dma_length) + skipped <= u64::from(first.dma_length);
        if !same {
            return missing;
        }
        let Ok(region) = Self::target(reth, Access::REMOTE_READ, common, env) else {
            return missing;
        };
        let behind = u64::from(self.answered.after(psn).unwrap_or(0));
        self.pace.on_repeat(behind * u64::from(common.mtu.bytes()), env.now);
        let packets = common.mtu.packets(reth.dma_length);
        // an answer to the same READ that is still being sent starts over instead of being sent
        // twice
        let under_way = self.replies.iter().enumerate().find_map(|(at, reply)| match reply {
            Reply::Read(read) if read.holds(psn) => Some((at, read.attempt)),
            _ => None,
        });
        match under_way {
            Some((at, attempt)) => {
                let reply = ReadReply::new(psn, reth, packets, region, msn, attempt);
                self.replies[at] = Reply::Read(reply);
            }
            None if self.has_room(Attempt::Repeat) => {
                let attempt = Attempt::Repeat;
                self.push_read(ReadReply::new(psn, reth, packets, region, msn, attempt));
            }
            None => return Disposition::Dropped(DropReason::ResponderBusy),
        }
        Disposition::Duplicate
    }

    /// An atomic again: it is answered with what it found the first time.
    fn repeat_atomic(&mut self, psn: Psn, operation: Operation, eth: &AtomicEth) -> Disposition {
        // FetchAdd leaves the compare field unused, and rxe sends there whatever its buffer held,
        // each time something else
        let used = |eth: &AtomicEth| AtomicEth {
            compare: if operation == Operation::CmpSwap { eth.compare } else { 0 },
            ..*eth
        };
        match self.replay.find(psn) {
            Some(Remembered {
                msn,
                op: RememberedOp::Atomic { operation: first, eth: first_eth, found },
                ..
            }) if first == operation && used(&first_eth) == used(eth) => {
                let waits = self
                    .replies
                    .iter()
                    .any(|reply| matches!(reply, Reply::Atomic { psn: its, .. } if *its == psn));
                if !waits && !self.has_room(Attempt::Repeat) {
                    return Disposition::Dropped(DropReason::ResponderBusy);
                }
                if !waits {
                    self.push_atomic(psn, msn, found, Attempt::Repeat);
                }
                Disposition::Duplicate
            }
            _ => Disposition::Dropped(DropReason::ReplayMissing),
        }
    }

    // Answers. There are never more with data than the ring allows, of either attempt, and an
    // acknowledgement after each of them and before the first: acknowledgements that follow one
    // another become one.

    /// True if one more answer with data may wait.
    pub(super) fn has_room(&self, attempt: Attempt) -> bool {
        let waiting = self.replies.iter().filter(|reply| match reply {
            Reply::Acknowledge { .. } | Reply::Placed { .. } => false,
            Reply::Read(read) => read.attempt == attempt,
            Reply::Atomic { attempt: its, .. } => *its == attempt,
        });
        waiting.count() < self.replay.capacity()
    }

    pub(super) fn push_atomic(&mut self, psn: Psn, msn: Msn, found: u64, attempt: Attempt) {
        let aeth = Aeth { syndrome: Syndrome::ACK, msn };
        self.replies.push_back(Reply::Atomic { psn, aeth, found, attempt });
    }

    /// True if one more answer without data to an ATOMIC WRITE or a FLUSH may wait. Nothing agreed
    /// on limits a FLUSH.
    pub(super) fn has_room_for_placed(&self) -> bool {
        self.replies.iter().filter(|reply| matches!(reply, Reply::Placed { .. })).count() < PLACED
    }

    pub(super) fn push_placed(&mut self, psn: Psn, msn: Msn) {
        self.replies.push_back(Reply::Placed { psn, aeth: Aeth { syndrome: Syndrome::ACK, msn } });
    }

    pub(super) fn push_read(&mut self, reply: ReadReply) {
        self.replies.push_back(Reply::Read(reply));
        self.behind.queued += 1;
    }

    /// Everything before `expected` can be acknowledged: the last request was no READ.
    pub(super) const fn note_acknowledged(&mut self) {
        (self.acknowledged, self.acknowledged_msn) = (self.expected, self.msn);
    }

    pub(super) fn acknowledge(&mut self, psn: Psn, msn: Msn) {
        let aeth = Aeth { syndrome: Syndrome::ACK, msn };
        match self.replies.back_mut() {
            // what waits already says as much, or more
            Some(Reply::Acknowledge { psn: waiting, .. }) if psn.is_before(*waiting) => {}
            Some(waiting @ Reply::Acknowledge { .. }) => {
                *waiting = Reply::Acknowledge { psn, aeth }
            }
            _ => self.replies.push_back(Reply::Acknowledge { psn, aeth }),
        }
    }

    /// Answers with a NAK for the expected PSN.
    fn nak(&mut self, syndrome: Syndrome, refusal: Refusal) -> Disposition {
        self.nak_sent = true;
        self.push_nak(self.expected, syndrome);
        Disposition::Refused(syndrome, refusal)
    }

    /// Queues a NAK. It stands for an acknowledgement of everything before it, so one that waits
    /// just ahead is superfluous, be it positive or negative.
    fn push_nak(&mut self, psn: Psn, syndrome: Syndrome) {
        if let Some(Reply::Acknowledge { .. }) = self.replies.back() {
            self.replies.pop_back();
        }
        self.replies.push_back(Reply::Acknowledge { psn, aeth: Aeth { syndrome, msn: self.msn } });
    }

    /// Refuses the expected request for good.
    pub(super) fn refuse(
        &mut self,
        code: NakCode,
        refusal: Refusal,
        common: &Common,
        env: &mut Env<'_>,
    ) -> Outcome {
        let disposition = self.nak(Syndrome::Nak(code), refusal);
        self.behind.complete_all(common, env);
        let told = self.fail_receive(code, refusal, common, env);
        let event = (!told).then(|| event_of(code, common.qpn, refusal));
        Outcome::Fatal { disposition, event }
    }

    /// Completes the receive request that was being filled, if any, with what went wrong.
    pub(super) fn fail_receive(
        &mut self,
        code: NakCode,
        refusal: Refusal,
        common: &Common,
        env: &mut Env<'_>,
    ) -> bool {
        let Message::Send { wqe, .. } = core::mem::replace(&mut self.message, Message::None) else {
            return false;
        };
        let status = match (refusal, code) {
            (Refusal::BufferTooSmall, _) => WcStatus::LocLenErr,
            (Refusal::LocalBuffer(_), _) => WcStatus::LocProtErr,
            // of a WRITE with immediate data
            (Refusal::Access(_), _) => WcStatus::LocAccessErr,
            _ => WcStatus::RemInvReqErr,
        };
        common.complete_recv(
            wqe.id,
            Err(WcError { status, cause: Cause::Refused(refusal) }),
            false,
            env,
        );
        true
    }

    // Sending.

    /// True if the next answer brings data of a READ.
    pub(super) fn next_has_data(&self) -> bool {
        matches!(self.replies.front(), Some(Reply::Read(_)))
    }

    /// The next answer that is due.
    pub(super) fn next(&mut self, common: &Common) -> Option<Response> {
        let (mut attempt, mut ends_read) = (Attempt::First, None);
        let (psn, operation, ext, payload, source) = match self.replies.front_mut()? {
            Reply::Acknowledge { psn, aeth } => {
                let (psn, aeth) = (*psn, *aeth);
                self.replies.pop_front();
                (psn, Operation::Acknowledge, Ext::Aeth(aeth), 0, Source::Nothing)
            }
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
                let source = match (self.behind.take(psn, payload), &read.region) {
                    (Some(bytes), _) => Source::Kept(bytes),
                    (None, Some(region)) => {
                        let address = read.address.wrapping_add(u64::from(offset));
                        Source::Memory(region.clone(), address)
                    }
                    (None, None) => Source::Nothing,
                };
                attempt = read.attempt;
                self.answered = psn;
                read.next += 1;
                if read.next == read.packets {
                    ends_read = (attempt == Attempt::First).then_some(read.length);
                    self.replies.pop_front();
                    self.behind.on_answered(&self.replies);
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

    /// The memory behind an answer could not be read: its place takes a NAK, and nothing follows.
    /// Returns the event that tells of it, with which the queue pair fails. Not so for an answer
    /// that was given before: the peer may long have it and have said so to this program, which may
    /// then well take its memory away.
    pub(super) fn fail_response(
        &mut self,
        response: &Response,
        error: AccessError,
        common: &Common,
    ) -> Option<Event> {
        let code = code_of(error);
        if response.attempt == Attempt::Repeat {
            // only the foremost is ever begun and not ended
            if matches!(self.replies.front(), Some(Reply::Read(read)) if read.next > 0) {
                self.replies.pop_front();
                self.behind.on_answered(&self.replies);
            }
            let aeth = Aeth { syndrome: Syndrome::Nak(code), msn: self.msn };
            self.replies.push_front(Reply::Acknowledge { psn: response.psn, aeth });
            return None;
        }
        self.forget_replies();
        self.push_nak(response.psn, Syndrome::Nak(code));
        Some(event_of(code, common.qpn, Refusal::Access(error)))
    }
}

impl Response {
    /// Reason for which it leaves.
    pub(super) fn reason(&self) -> Reason {
        let headers = &self.outgoing.headers;
        match (headers.bth().opcode.operation(), headers.ext().aeth().map(|aeth| aeth.syndrome)) {
            (Operation::Acknowledge, Some(Syndrome::Ack { .. })) => Reason::Acknowledge(self.psn),
            (Operation::Acknowledge, Some(syndrome)) => Reason::Negative(self.psn, syndrome),
            _ => Reason::Answer { again: self.attempt == Attempt::Repeat },
        }
    }

    /// Reason for which the queue pair fails when the memory behind it cannot be read.
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
