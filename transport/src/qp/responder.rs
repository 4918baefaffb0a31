//! The responder.
//!
//! Read first: InfiniBand volume 1, 9.7.4, 9.9.3.

use alloc::{collections::VecDeque, sync::Arc};

use super::{
    attr::ResponderAttr,
    common::{Common, Env},
    error::PostError,
    replay::{Placements, Remembered, RememberedOp, ReplayRing},
    reply::{Attempt, ReadReply},
    responses::{Responses, SEQUENCE_ERROR, code_of, event_of},
};
use crate::{
    event::{Disposition, DropReason, Event, Refusal},
    ids::PdId,
    mem::{Access, AccessError, Region, RegionTable},
    psn::{Msn, Psn},
    wire::{AtomicEth, Ext, NakCode, Operation, Packet, Reth, Syndrome},
    work::{Cause, CountedOps, RecvQueue, RecvWqe, RecvWr, WcError, WcStatus},
};

/// The message being received. `region` is `None` for 0 bytes, which need no key.
#[derive(Default, Debug)]
pub(super) enum Message {
    #[default]
    None,
    Send {
        wqe: RecvWqe,
        received: u64,
    },
    Write {
        region: Option<Arc<Region>>,
        address: u64,
        done: u32,
        length: u32,
    },
}

#[derive(Default, Debug)]
pub(crate) struct Responder {
    queue: RecvQueue,
    pub(super) expected: Psn,
    pub(super) msn: Msn,
    /// PSN after the last request other than a READ: an acknowledgement never replaces READ data.
    acknowledged: Psn,
    acknowledged_msn: Msn,
    /// A NAK for `expected` is sent or queued; later packets get none.
    nak_sent: bool,
    /// First packet with bytes not yet placed, if any.
    pub(super) unplaced: Psn,
    /// PSN after the furthest request dropped as too early.
    ahead: Option<Psn>,
    pub(super) message: Message,
    pub(super) replay: ReplayRing,
    pub(super) placements: Placements,
    pub(super) responses: Responses,
    pub(super) min_rnr_timer: u8,
}

/// A request's outcome. `Fatal`: the queue pair enters ERR; `event` replaces a missing completion.
#[derive(Clone, Copy, Debug)]
pub(super) enum Outcome {
    Done(Disposition),
    Fatal { disposition: Disposition, event: Option<Event> },
}

pub(super) enum Refused {
    NotReady,
    /// Too many responses wait; the peer retries.
    Busy,
    /// The request would change unsent READ data; the peer retransmits.
    BehindRead,
    /// All but the invalidation was executed: acknowledged, then the queue pair fails.
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
        Self { queue: RecvQueue::new(capacity), ..Self::default() }
    }

    pub(crate) fn start(&mut self, psn: Psn, attr: &ResponderAttr) {
        self.expected = psn;
        self.acknowledged = psn;
        self.msn = Msn::default();
        self.acknowledged_msn = Msn::default();
        self.replay = ReplayRing::new(attr.max_dest_rd_atomic);
        self.placements = Placements::default();
        self.min_rnr_timer = attr.min_rnr_timer;
    }

    pub(crate) fn reset(&mut self) {
        while self.queue.pop().is_some() {}
        self.message = Message::None;
        self.nak_sent = false;
        self.ahead = None;
        self.responses = Responses::default();
    }

    pub(super) fn take_requests(&mut self) -> VecDeque<RecvWqe> {
        let requests = self.queue.take();
        self.reset();
        requests
    }

    pub(super) const fn is_within_message(&self) -> bool {
        !matches!(self.message, Message::None)
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

    /// Takes the receive request being filled, else the oldest.
    pub(crate) fn flush(&mut self) -> Option<u64> {
        if let Message::Send { wqe, .. } = core::mem::replace(&mut self.message, Message::None) {
            return Some(wqe.id);
        }
        self.queue.pop().map(|wqe| wqe.id)
    }

    pub(super) fn handle(
        &mut self,
        packet: &Packet<'_>,
        common: &Common,
        env: &mut Env<'_>,
    ) -> Outcome {
        match packet.headers.bth().psn.after(self.expected) {
            None => Outcome::Done(self.repeat(packet, common, env)),
            Some(0) => {
                let waiting = self.responses.take_waiting_nak(self.expected);
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
                        self.responses.replies.extend(waiting);
                        Outcome::Done(Disposition::Dropped(DropReason::ResponderBusy))
                    }
                    Err(Refused::BehindRead) => {
                        env.reports.counters.sequence_naks_sent += 1;
                        Outcome::Done(self.nak(SEQUENCE_ERROR, Refusal::PendingRead))
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
            Some(_) => {
                self.record_ahead(packet.headers.bth().psn);
                if self.nak_sent {
                    return Outcome::Done(Disposition::Dropped(DropReason::OutOfSequence));
                }
                env.reports.counters.sequence_naks_sent += 1;
                Outcome::Done(self.nak(SEQUENCE_ERROR, Refusal::MissingPacket))
            }
        }
    }

    pub(super) const fn has_gap(&self) -> bool {
        self.nak_sent || self.ahead.is_some()
    }

    fn record_ahead(&mut self, psn: Psn) {
        let end = psn.plus(1);
        if self.ahead.is_none_or(|ahead| ahead.is_before(end)) {
            self.ahead = Some(end);
        }
    }

    /// Packets dropped behind a filled gap need a NAK, unless one left already.
    fn close_gap(&mut self, unsent: bool) {
        self.ahead = self.ahead.filter(|&ahead| self.expected.is_before(ahead));
        if unsent && self.ahead.is_some() {
            self.nak_sent = true;
            self.responses.push_nak(self.expected, SEQUENCE_ERROR, self.msn);
        }
    }

    /// The SEND is acknowledged; receive request and queue pair fail (9.9.3, class J).
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
        self.responses.after_read.complete_all(common, env);
        self.fail_receive(NakCode::InvalidRequest, refusal, common, env);
        Outcome::Fatal { disposition: Disposition::Refused(Syndrome::ACK, refusal), event: None }
    }

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
                    // already executed; only the response is missing
                    Some(_) if !self.responses.has_room_for_placed() => {
                        Disposition::Dropped(DropReason::ResponderBusy)
                    }
                    Some(msn) => {
                        self.responses.push_placed(bth.psn, msn);
                        Disposition::Duplicate
                    }
                }
            }
            _ => {
                self.responses.acknowledge(self.acknowledged.previous(), self.acknowledged_msn);
                Disposition::Duplicate
            }
        };
        if disposition == Disposition::Duplicate {
            env.reports.counters.duplicate_requests += 1;
        }
        disposition
    }

    /// Repeats a READ, whole or in part (9.7.5.1.4), from current memory.
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
        self.responses.record_repeat(psn, common, env.now);
        let packets = common.mtu.packets(reth.dma_length);
        let again = |attempt| ReadReply::new(psn, reth, packets, region, msn, attempt);
        if let Some(under_way) = self.responses.read_at(psn) {
            // restart instead of sending twice
            *under_way = again(under_way.attempt);
        } else if self.has_room(Attempt::Repeat) {
            self.responses.push_read(again(Attempt::Repeat));
        } else {
            return Disposition::Dropped(DropReason::ResponderBusy);
        }
        Disposition::Duplicate
    }

    fn repeat_atomic(&mut self, psn: Psn, operation: Operation, eth: &AtomicEth) -> Disposition {
        // FetchAdd leaves the compare field unused; rxe sends varying buffer contents there
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
                if !self.responses.has_atomic(psn) {
                    if !self.has_room(Attempt::Repeat) {
                        return Disposition::Dropped(DropReason::ResponderBusy);
                    }
                    self.responses.push_atomic(psn, msn, found, Attempt::Repeat);
                }
                Disposition::Duplicate
            }
            _ => Disposition::Dropped(DropReason::ReplayMissing),
        }
    }

    pub(super) fn has_room(&self, attempt: Attempt) -> bool {
        self.responses.with_data(attempt) < self.replay.capacity()
    }

    pub(super) const fn record_acknowledged(&mut self) {
        (self.acknowledged, self.acknowledged_msn) = (self.expected, self.msn);
    }

    pub(super) fn advance(&mut self, psn: Psn, ends: bool, ack_req: bool) {
        self.expected = self.expected.plus(1);
        if ends {
            self.msn = self.msn.next();
        }
        self.record_acknowledged();
        if ack_req {
            self.responses.acknowledge(psn, self.msn);
        }
    }

    fn nak(&mut self, syndrome: Syndrome, refusal: Refusal) -> Disposition {
        self.nak_sent = true;
        self.responses.push_nak(self.expected, syndrome, self.msn);
        Disposition::Refused(syndrome, refusal)
    }

    pub(super) fn refuse(
        &mut self,
        code: NakCode,
        refusal: Refusal,
        common: &Common,
        env: &mut Env<'_>,
    ) -> Outcome {
        let disposition = self.nak(Syndrome::Nak(code), refusal);
        self.responses.after_read.complete_all(common, env);
        let has_completion = self.fail_receive(code, refusal, common, env);
        let event = (!has_completion).then(|| event_of(code, common.qpn, refusal));
        Outcome::Fatal { disposition, event }
    }

    /// Returns false if no receive is being filled.
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
            (Refusal::BufferTooSmall { .. }, _) => WcStatus::LocLenErr,
            (Refusal::LocalBuffer(_), _) => WcStatus::LocProtErr,
            _ => WcStatus::RemInvReqErr,
        };
        let error = WcError { status, cause: Cause::Refused(refusal) };
        common.complete_recv(wqe.id, Err(error), false, env);
        true
    }
}
