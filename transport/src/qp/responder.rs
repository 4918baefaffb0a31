//! The responder: carries out the peer's requests and answers them.
//!
//! Read first: InfiniBand volume 1, 9.7.4 (responder: receiving inbound requests), 9.9.3 (responder
//! error behaviour).

use alloc::{collections::VecDeque, sync::Arc};

use super::{
    answers::{Answers, SEQUENCE_ERROR, code_of, event_of},
    attr::ResponderAttr,
    common::{Common, Env},
    error::PostError,
    replay::{Placements, Remembered, RememberedOp, ReplayRing},
    reply::{Attempt, ReadReply},
};
use crate::{
    event::{Disposition, DropReason, Event, Refusal},
    ids::PdId,
    mem::{Access, AccessError, Region, RegionTable},
    psn::{Msn, Psn},
    wire::{AtomicEth, Ext, NakCode, Operation, Packet, Reth, Syndrome},
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
    /// PSN of the first packet whose bytes are not placed yet, if there is one.
    pub(super) unplaced: Psn,
    /// PSN after the furthest request that was dropped because it came ahead of `expected`.
    ahead: Option<Psn>,
    pub(super) message: Message,
    pub(super) replay: ReplayRing,
    pub(super) placements: Placements,
    pub(super) answers: Answers,
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

impl Responder {
    pub(crate) fn new(capacity: u32) -> Self {
        Self {
            queue: RecvQueue::new(capacity),
            expected: Psn::default(),
            msn: Msn::default(),
            acknowledged: Psn::default(),
            acknowledged_msn: Msn::default(),
            nak_sent: false,
            unplaced: Psn::default(),
            ahead: None,
            message: Message::None,
            replay: ReplayRing::default(),
            placements: Placements::default(),
            answers: Answers::default(),
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
        self.answers = Answers::default();
    }

    /// Takes all requests, on the way into RESET.
    pub(super) fn give_up(&mut self) -> VecDeque<RecvWqe> {
        let requests = self.queue.take();
        self.reset();
        requests
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
            return Err(PostError::full(self.queue.capacity()));
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
        match common.receiving.srq.and_then(|id| env.resources.srqs.get_mut(&id)) {
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
        if let Some(id) = common.receiving.srq {
            env.record_taken(id);
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
                let waiting = self.answers.take_waiting_nak(self.expected);
                self.nak_sent = false;
                match self.execute(packet, common, env) {
                    Ok(()) => {
                        self.close_gap(waiting.is_some());
                        Outcome::Done(Disposition::Executed)
                    }
                    Err(Refused::NotReady) => {
                        env.reports.counters.rnr_naks_sent += 1;
                        let syndrome = Syndrome::RnrNak { timer: self.min_rnr_timer };
                        Outcome::Done(self.nak(syndrome, Refusal::NoReceiveRequest))
                    }
                    Err(Refused::Busy) => {
                        self.nak_sent = waiting.is_some();
                        self.answers.put_back(waiting);
                        Outcome::Done(Disposition::Dropped(DropReason::ResponderBusy))
                    }
                    Err(Refused::BehindRead) => {
                        env.reports.counters.sequence_naks_sent += 1;
                        Outcome::Done(self.nak(SEQUENCE_ERROR, Refusal::UnansweredRead))
                    }
                    Err(Refused::Invalidate(error)) => {
                        self.fail_invalidation(packet, error, common, env)
                    }
                    Err(Refused::Fatal(code, refusal)) => {
                        let operation = packet.headers.bth().opcode.operation();
                        let counted = CountedOps::of_request(operation);
                        common.completions.counters.count(counted, None);
                        self.refuse(code, refusal, common, env)
                    }
                }
            }
            Some(_) if self.nak_sent => {
                self.record_ahead(packet.headers.bth().psn);
                Outcome::Done(Disposition::Dropped(DropReason::OutOfSequence))
            }
            Some(_) => {
                self.record_ahead(packet.headers.bth().psn);
                env.reports.counters.sequence_naks_sent += 1;
                Outcome::Done(self.nak(SEQUENCE_ERROR, Refusal::MissingPacket))
            }
        }
    }

    /// True if a packet before one that has come is missing, or is to be sent again.
    pub(super) const fn has_gap(&self) -> bool {
        self.nak_sent || self.ahead.is_some()
    }

    fn record_ahead(&mut self, psn: Psn) {
        let end = psn.plus(1);
        if self.ahead.is_none_or(|ahead| ahead.is_before(end)) {
            self.ahead = Some(end);
        }
    }

    /// The packet that was missing has come late. What was dropped behind it is missing now. If the
    /// NAK for the first had left already, its sender repeats everything by itself.
    fn close_gap(&mut self, unsent: bool) {
        self.ahead = self.ahead.filter(|&ahead| self.expected.is_before(ahead));
        if unsent && self.ahead.is_some() {
            self.nak_sent = true;
            self.answers.push_nak(self.expected, SEQUENCE_ERROR, self.msn);
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
        self.advance(bth.psn, true, bth.ack_req);
        let refusal = Refusal::Invalidate(error);
        self.answers.behind.complete_all(common, env);
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
                    Some(_) if !self.answers.has_room_for_placed() => {
                        Disposition::Dropped(DropReason::ResponderBusy)
                    }
                    Some(msn) => {
                        self.answers.push_placed(bth.psn, msn);
                        Disposition::Duplicate
                    }
                }
            }
            _ => {
                self.answers.acknowledge(self.acknowledged.previous(), self.acknowledged_msn);
                Disposition::Duplicate
            }
        };
        if disposition == Disposition::Duplicate {
            env.reports.counters.duplicate_requests += 1;
        }
        disposition
    }

    /// A repeated READ, from its start or from inside (9.7.5.1.4): executed again, on the memory as
    /// it is now.
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
        self.answers.record_repeat(psn, common, env.now);
        let packets = common.mtu.packets(reth.dma_length);
        let again = |attempt| ReadReply::new(psn, reth, packets, region, msn, attempt);
        if let Some(under_way) = self.answers.read_at(psn) {
            // it starts over instead of being sent twice
            *under_way = again(under_way.attempt);
        } else if self.has_room(Attempt::Repeat) {
            self.answers.push_read(again(Attempt::Repeat));
        } else {
            return Disposition::Dropped(DropReason::ResponderBusy);
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
                let waits = self.answers.has_atomic(psn);
                if !waits && !self.has_room(Attempt::Repeat) {
                    return Disposition::Dropped(DropReason::ResponderBusy);
                }
                if !waits {
                    self.answers.push_atomic(psn, msn, found, Attempt::Repeat);
                }
                Disposition::Duplicate
            }
            _ => Disposition::Dropped(DropReason::ReplayMissing),
        }
    }

    // Answers.

    /// True if one more answer with data may wait.
    pub(super) fn has_room(&self, attempt: Attempt) -> bool {
        self.answers.with_data(attempt) < self.replay.capacity()
    }

    /// Everything before `expected` can be acknowledged: the last request was no READ.
    pub(super) const fn record_acknowledged(&mut self) {
        (self.acknowledged, self.acknowledged_msn) = (self.expected, self.msn);
    }

    /// The expected packet, of a SEND or a WRITE, has been carried out: it ends its message or does
    /// not, and asks for an acknowledgement or does not.
    pub(super) fn advance(&mut self, psn: Psn, ends: bool, ack_req: bool) {
        self.expected = self.expected.plus(1);
        if ends {
            self.msn = self.msn.next();
        }
        self.record_acknowledged();
        if ack_req {
            self.answers.acknowledge(psn, self.msn);
        }
    }

    /// Answers with a NAK for the expected PSN.
    fn nak(&mut self, syndrome: Syndrome, refusal: Refusal) -> Disposition {
        self.nak_sent = true;
        self.answers.push_nak(self.expected, syndrome, self.msn);
        Disposition::Refused(syndrome, refusal)
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
        self.answers.behind.complete_all(common, env);
        let told = self.fail_receive(code, refusal, common, env);
        let event = (!told).then(|| event_of(code, common.qpn, refusal));
        Outcome::Fatal { disposition, event }
    }

    /// Refuses the requests of which bytes are not placed yet, and cannot be.
    pub(super) fn refuse_unplaced(
        &mut self,
        error: AccessError,
        common: &Common,
        env: &mut Env<'_>,
    ) -> Outcome {
        self.expected = self.unplaced;
        let refusal = Refusal::LocalBuffer(error);
        self.refuse(NakCode::RemoteOperationalError, refusal, common, env)
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
}
