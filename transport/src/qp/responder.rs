//! The responder: carries out the peer's requests and answers them.
//!
//! Read first: InfiniBand volume 1, 9.7.4 (responder: receiving inbound requests), 9.7.5.1 (generating responses), 9.9.3
//! (responder error behaviour).

use alloc::{collections::VecDeque, sync::Arc};

use super::{
    MAX_MESSAGE, Outgoing,
    attr::PostError,
    common::{Common, Env},
    replay::{Remembered, ReplayRing},
};
use crate::{
    event::{Disposition, DropReason, Event, Refusal},
    mem::{Access, AccessError, RKey, Region, RegionTable},
    psn::{Msn, Psn},
    wire::{Aeth, Bth, Ext, Headers, NakCode, Opcode, Operation, Packet, Place, Reth, Syndrome},
    work::{Cause, RecvQueue, RecvWqe, RecvWr, WcError, WcOk, WcOpcode, WcStatus},
};

/// The message that the next packet has to continue.
#[derive(Debug)]
enum Message {
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

/// An answer that waits to be sent.
#[derive(Debug)]
enum Reply {
    Acknowledge { psn: Psn, aeth: Aeth },
    Read(ReadReply),
}

/// The answer to a READ, sent up to packet `next`.
#[derive(Debug)]
struct ReadReply {
    first_psn: Psn,
    packets: u32,
    next: u32,
    region: Option<Arc<Region>>,
    address: u64,
    length: u32,
    msn: Msn,
}

/// The receive queue of a queue pair and how far its peer has come.
#[derive(Debug)]
pub(crate) struct Responder {
    queue: RecvQueue,
    expected: Psn,
    msn: Msn,
    /// The PSN after the last request that was no READ. A repeat is acknowledged up to here, so that the answer to it never
    /// stands for the data of a READ.
    acknowledged: Psn,
    /// A NAK for `expected` is on its way; what comes ahead of it is dropped without another.
    nak_sent: bool,
    message: Message,
    replay: ReplayRing,
    replies: VecDeque<Reply>,
    min_rnr_timer: u8,
}

/// What became of a request.
pub(super) enum Outcome {
    Done(Disposition),
    /// The queue pair has to go into the error state. `event` is for the case that no completion tells of it.
    Fatal {
        disposition: Disposition,
        event: Option<Event>,
    },
}

/// A response packet that is due.
pub(super) struct Response {
    outgoing: Outgoing,
    psn: Psn,
    source: Option<(Arc<Region>, u64)>,
}

/// Why a request in sequence is not carried out.
enum Refused {
    NotReady,
    Fatal(NakCode, Refusal),
}

impl Refused {
    const fn invalid(refusal: Refusal) -> Self {
        Self::Fatal(NakCode::InvalidRequest, refusal)
    }

    const fn access(error: AccessError) -> Self {
        match error {
            // the key was right; what failed is on this side
            AccessError::Fault(_) => Self::Fatal(NakCode::RemoteOperationalError, Refusal::Access(error)),
            _ => Self::Fatal(NakCode::RemoteAccessError, Refusal::Access(error)),
        }
    }
}

impl Responder {
    pub(crate) fn new(capacity: u32) -> Self {
        Self {
            queue: RecvQueue::new(capacity),
            expected: Psn::default(),
            msn: Msn::default(),
            acknowledged: Psn::default(),
            nak_sent: false,
            message: Message::None,
            replay: ReplayRing::default(),
            replies: VecDeque::new(),
            min_rnr_timer: 0,
        }
    }

    /// INIT→RTR.
    pub(crate) fn start(&mut self, psn: Psn, max_dest_rd_atomic: u8, min_rnr_timer: u8) {
        self.expected = psn;
        self.acknowledged = psn;
        self.msn = Msn::default();
        self.replay = ReplayRing::new(max_dest_rd_atomic);
        self.min_rnr_timer = min_rnr_timer;
    }

    /// Forgets everything, posted requests included.
    pub(crate) fn reset(&mut self) {
        while self.queue.pop().is_some() {}
        self.message = Message::None;
        self.nak_sent = false;
        self.replies.clear();
    }

    pub(crate) const fn expected(&self) -> Psn {
        self.expected
    }

    pub(super) const fn queue(&mut self) -> &mut RecvQueue {
        &mut self.queue
    }

    pub(crate) fn post(&mut self, wr: &RecvWr, regions: &RegionTable) -> Result<(), PostError> {
        if self.queue.is_full() {
            return Err(PostError::QueueFull);
        }
        self.queue.push(wr, regions);
        Ok(())
    }

    /// Takes the oldest receive request, one that is being filled first, on the way into the error state.
    pub(crate) fn flush(&mut self) -> Option<u64> {
        if let Message::Send { wqe, .. } = core::mem::replace(&mut self.message, Message::None) {
            return Some(wqe.id);
        }
        self.queue.pop().map(|wqe| wqe.id)
    }

    /// Nothing more is answered: the owner has put the queue pair into the error state.
    pub(crate) fn forget_replies(&mut self) {
        self.replies.clear();
    }

    // Requests.

    pub(super) fn handle(&mut self, packet: &Packet<'_>, common: &Common, env: &mut Env<'_>) -> Outcome {
        match packet.headers.bth().psn.after(self.expected) {
            None => Outcome::Done(self.repeat(packet, common, env)),
            Some(0) => {
                self.nak_sent = false;
                match self.execute(packet, common, env) {
                    Ok(()) => Outcome::Done(Disposition::Executed),
                    Err(Refused::NotReady) => {
                        env.counters.rnr_naks_sent += 1;
                        let syndrome = Syndrome::RnrNak { timer: self.min_rnr_timer };
                        Outcome::Done(self.nak(syndrome, Refusal::NoReceiveRequest))
                    }
                    Err(Refused::Fatal(code, refusal)) => self.refuse(code, refusal, common, env),
                }
            }
            Some(_) if self.nak_sent => Outcome::Done(Disposition::Dropped(DropReason::OutOfSequence)),
            Some(_) => {
                env.counters.sequence_naks_sent += 1;
                Outcome::Done(self.nak(Syndrome::Nak(NakCode::PsnSequenceError), Refusal::MissingPacket))
            }
        }
    }

    fn execute(&mut self, packet: &Packet<'_>, common: &Common, env: &mut Env<'_>) -> Result<(), Refused> {
        use Operation as Op;
        let bth = packet.headers.bth();
        let ext = packet.headers.ext();
        match (bth.opcode.operation(), ext.reth()) {
            (Op::SendFirst | Op::SendMiddle | Op::SendLast | Op::SendLastImm | Op::SendOnly | Op::SendOnlyImm, _) => {
                self.send(packet, common, env)?;
            }
            (Op::WriteFirst | Op::WriteMiddle | Op::WriteLast | Op::WriteLastImm | Op::WriteOnly | Op::WriteOnlyImm, reth) => {
                self.write(packet, reth, common, env)?;
            }
            (Op::ReadRequest, Some(reth)) => return self.read(bth.psn, &reth, packet.payload, common, env),
            _ => return Err(Refused::invalid(Refusal::NotEnabled)),
        }
        self.expected = self.expected.plus(1);
        self.acknowledged = self.expected;
        if bth.opcode.operation().place().ends() {
            self.msn = self.msn.next();
        }
        if bth.ack_req {
            self.acknowledge(bth.psn);
        }
        Ok(())
    }

    /// Whether a payload has the length that its place in a message asks for (9.4.1, C9-59 to C9-62).
    fn check_length(place: Place, payload: usize, common: &Common) -> Result<(), Refused> {
        let mtu = common.mtu.bytes() as usize;
        let right = match place {
            Place::First | Place::Middle => payload == mtu,
            Place::Last => (1..=mtu).contains(&payload),
            Place::Only => payload <= mtu,
        };
        if right { Ok(()) } else { Err(Refused::invalid(Refusal::Length)) }
    }

    fn send(&mut self, packet: &Packet<'_>, common: &Common, env: &mut Env<'_>) -> Result<(), Refused> {
        let place = packet.headers.bth().opcode.operation().place();
        match (&self.message, place.starts()) {
            (Message::None, true) | (Message::Send { .. }, false) => {}
            _ => return Err(Refused::invalid(Refusal::OpcodeOrder)),
        }
        Self::check_length(place, packet.payload.len(), common)?;
        if place.starts() {
            let wqe = self.queue.pop().ok_or(Refused::NotReady)?;
            let allowed = wqe.gather.check(common.pd, Access::LOCAL_WRITE);
            self.message = Message::Send { wqe, received: 0 };
            allowed.map_err(|error| Refused::Fatal(NakCode::RemoteOperationalError, Refusal::LocalBuffer(error)))?;
        }
        let Message::Send { wqe, received } = &mut self.message else { return Ok(()) };
        let end = *received + packet.payload.len() as u64;
        if end > wqe.length || end > u64::from(MAX_MESSAGE) {
            return Err(Refused::invalid(Refusal::BufferTooSmall));
        }
        wqe.gather
            .write(*received, packet.payload)
            .map_err(|error| Refused::Fatal(NakCode::RemoteOperationalError, Refusal::LocalBuffer(error)))?;
        *received = end;
        if place.ends() {
            let ok = WcOk {
                opcode: WcOpcode::Recv,
                byte_len: end as u32,
                immediate: packet.headers.ext().immediate(),
                src_qp: None,
                grh: false,
            };
            common.complete_recv(wqe.id, Ok(ok), packet.headers.bth().solicited, env);
            self.message = Message::None;
        }
        Ok(())
    }

    fn write(&mut self, packet: &Packet<'_>, reth: Option<Reth>, common: &Common, env: &mut Env<'_>) -> Result<(), Refused> {
        let place = packet.headers.bth().opcode.operation().place();
        match (&self.message, place.starts()) {
            (Message::None, true) | (Message::Write { .. }, false) => {}
            _ => return Err(Refused::invalid(Refusal::OpcodeOrder)),
        }
        let payload = packet.payload;
        Self::check_length(place, payload.len(), common)?;
        if let Some(reth) = reth {
            let region = Self::target(&reth, Access::REMOTE_WRITE, common, env)?;
            self.message = Message::Write { region, address: reth.virtual_address, done: 0, length: reth.dma_length };
        }
        let Message::Write { region, address, done, length } = &mut self.message else { return Ok(()) };
        let left = *length - *done;
        let adds_up = if place.ends() { payload.len() == left as usize } else { payload.len() < left as usize };
        if !adds_up {
            return Err(Refused::invalid(Refusal::Length));
        }
        let immediate = packet.headers.ext().immediate();
        if immediate.is_some() && self.queue.is_empty() {
            if place.starts() {
                self.message = Message::None;
            }
            return Err(Refused::NotReady);
        }
        if let Some(region) = region {
            region.write(address.wrapping_add(u64::from(*done)), payload).map_err(Refused::access)?;
        }
        *done += payload.len() as u32;
        if place.ends() {
            let byte_len = *length;
            self.message = Message::None;
            if immediate.is_some()
                && let Some(wqe) = self.queue.pop()
            {
                let ok = WcOk { opcode: WcOpcode::RecvRdmaWithImm, byte_len, immediate, src_qp: None, grh: false };
                common.complete_recv(wqe.id, Ok(ok), packet.headers.bth().solicited, env);
            }
        }
        Ok(())
    }

    fn read(&mut self, psn: Psn, reth: &Reth, payload: &[u8], common: &Common, env: &Env<'_>) -> Result<(), Refused> {
        if !matches!(self.message, Message::None) {
            return Err(Refused::invalid(Refusal::OpcodeOrder));
        }
        if !payload.is_empty() {
            return Err(Refused::invalid(Refusal::Length));
        }
        let region = Self::target(reth, Access::REMOTE_READ, common, env)?;
        if self.reads_waiting() >= self.replay.capacity() {
            return Err(Refused::invalid(Refusal::TooManyReads));
        }
        let packets = common.mtu.packets(reth.dma_length);
        self.replay.remember(Remembered {
            first_psn: psn,
            packets,
            rkey: reth.rkey,
            address: reth.virtual_address,
            length: reth.dma_length,
        });
        self.msn = self.msn.next();
        self.expected = self.expected.plus(packets);
        self.push_read(psn, reth, packets, region);
        Ok(())
    }

    /// The region that a RETH names, if both it and the queue pair allow the access. No key is needed for no bytes.
    fn target(reth: &Reth, needed: Access, common: &Common, env: &Env<'_>) -> Result<Option<Arc<Region>>, Refused> {
        if !common.access.contains(needed) {
            return Err(Refused::invalid(Refusal::NotEnabled));
        }
        if reth.dma_length > MAX_MESSAGE {
            return Err(Refused::invalid(Refusal::Length));
        }
        if reth.dma_length == 0 {
            return Ok(None);
        }
        let length = u64::from(reth.dma_length);
        let region = env.regions.remote(RKey(reth.rkey), common.pd, reth.virtual_address, length, needed);
        region.cloned().map(Some).map_err(Refused::access)
    }

    // Requests seen before.

    fn repeat(&mut self, packet: &Packet<'_>, common: &Common, env: &mut Env<'_>) -> Disposition {
        let bth = packet.headers.bth();
        let disposition = match packet.headers.ext().reth() {
            Some(reth) if bth.opcode.operation() == Operation::ReadRequest => self.repeat_read(bth.psn, &reth, common, env),
            _ => {
                self.acknowledge(self.acknowledged.previous());
                Disposition::Repeated
            }
        };
        if disposition == Disposition::Repeated {
            env.counters.duplicate_requests += 1;
        }
        disposition
    }

    /// A READ again, from its start or from inside (9.7.5.1.4): it is carried out anew, on the memory as it is now.
    fn repeat_read(&mut self, psn: Psn, reth: &Reth, common: &Common, env: &Env<'_>) -> Disposition {
        let missing = Disposition::Dropped(DropReason::ReplayMissing);
        let Some(first) = self.replay.find(psn) else { return missing };
        let skipped = u64::from(psn.after(first.first_psn).unwrap_or(0)) * u64::from(common.mtu.bytes());
        let same = reth.rkey == first.rkey
            && reth.virtual_address == first.address.wrapping_add(skipped)
            && u64::from(reth.dma_length) + skipped <= u64::from(first.length);
        if !same {
            return missing;
        }
        let Ok(region) = Self::target(reth, Access::REMOTE_READ, common, env) else { return missing };
        let packets = common.mtu.packets(reth.dma_length);
        // an answer to the same READ that is still being sent starts over instead of being sent twice
        let under_way = self.replies.iter_mut().find_map(|reply| match reply {
            Reply::Read(read) if psn.after(read.first_psn).is_some_and(|n| n < read.packets) => Some(read),
            _ => None,
        });
        let msn = self.msn;
        if let Some(read) = under_way {
            *read = ReadReply {
                first_psn: psn,
                packets,
                next: 0,
                region,
                address: reth.virtual_address,
                length: reth.dma_length,
                msn,
            };
        } else if self.reads_waiting() < self.replay.capacity() {
            self.push_read(psn, reth, packets, region);
        } else {
            return Disposition::Dropped(DropReason::ResponderBusy);
        }
        Disposition::Repeated
    }

    // Answers. There are never more than the READs that the ring allows, and an acknowledgement after each of them and
    // before the first: acknowledgements that follow one another become one.

    fn reads_waiting(&self) -> usize {
        self.replies.iter().filter(|reply| matches!(reply, Reply::Read(_))).count()
    }

    fn push_read(&mut self, psn: Psn, reth: &Reth, packets: u32, region: Option<Arc<Region>>) {
        self.replies.push_back(Reply::Read(ReadReply {
            first_psn: psn,
            packets,
            next: 0,
            region,
            address: reth.virtual_address,
            length: reth.dma_length,
            msn: self.msn,
        }));
    }

    fn acknowledge(&mut self, psn: Psn) {
        let aeth = Aeth { syndrome: Syndrome::ACK, msn: self.msn };
        match self.replies.back_mut() {
            // what waits already says as much, or more
            Some(Reply::Acknowledge { psn: waiting, .. }) if psn.is_before(*waiting) => {}
            Some(waiting @ Reply::Acknowledge { .. }) => *waiting = Reply::Acknowledge { psn, aeth },
            _ => self.replies.push_back(Reply::Acknowledge { psn, aeth }),
        }
    }

    /// Answers with a NAK for the expected PSN.
    fn nak(&mut self, syndrome: Syndrome, refusal: Refusal) -> Disposition {
        self.nak_sent = true;
        self.push_nak(self.expected, syndrome);
        Disposition::Refused(syndrome, refusal)
    }

    /// Queues a NAK. It stands for an acknowledgement of everything before it, so one that waits just ahead is superfluous, be
    /// it positive or negative.
    fn push_nak(&mut self, psn: Psn, syndrome: Syndrome) {
        if let Some(Reply::Acknowledge { .. }) = self.replies.back() {
            self.replies.pop_back();
        }
        self.replies.push_back(Reply::Acknowledge { psn, aeth: Aeth { syndrome, msn: self.msn } });
    }

    /// Refuses the expected request for good.
    fn refuse(&mut self, code: NakCode, refusal: Refusal, common: &Common, env: &mut Env<'_>) -> Outcome {
        let disposition = self.nak(Syndrome::Nak(code), refusal);
        let told = self.fail_receive(code, refusal, common, env);
        let event = match (told, code) {
            (true, _) => None,
            (false, NakCode::RemoteAccessError) => Some(Event::QpAccessError(common.qpn)),
            (false, _) => Some(Event::QpRequestError(common.qpn)),
        };
        Outcome::Fatal { disposition, event }
    }

    /// Completes the receive request that was being filled, if any, with what went wrong.
    fn fail_receive(&mut self, code: NakCode, refusal: Refusal, common: &Common, env: &mut Env<'_>) -> bool {
        let Message::Send { wqe, .. } = core::mem::replace(&mut self.message, Message::None) else { return false };
        let status = match (refusal, code) {
            (Refusal::BufferTooSmall, _) => WcStatus::LocLenErr,
            (Refusal::LocalBuffer(_), _) => WcStatus::LocProtErr,
            (_, NakCode::RemoteAccessError) => WcStatus::RemAccessErr,
            _ => WcStatus::RemInvReqErr,
        };
        common.complete_recv(wqe.id, Err(WcError { status, cause: Cause::Refused(refusal) }), false, env);
        true
    }

    // Sending.

    /// The next answer that is due.
    pub(super) fn next(&mut self, common: &Common) -> Option<Response> {
        let (psn, operation, ext, payload, source) = match self.replies.front_mut()? {
            Reply::Acknowledge { psn, aeth } => {
                let (psn, aeth) = (*psn, *aeth);
                self.replies.pop_front();
                (psn, Operation::Acknowledge, Ext::Aeth(aeth), 0, None)
            }
            Reply::Read(read) => {
                let index = read.next;
                let offset = index * common.mtu.bytes();
                let aeth = Ext::Aeth(Aeth { syndrome: Syndrome::ACK, msn: read.msn });
                let (operation, ext) = match Place::of(index, read.packets) {
                    Place::First => (Operation::ReadResponseFirst, aeth),
                    Place::Middle => (Operation::ReadResponseMiddle, Ext::None),
                    Place::Last => (Operation::ReadResponseLast, aeth),
                    Place::Only => (Operation::ReadResponseOnly, aeth),
                };
                let payload = (read.length - offset).min(common.mtu.bytes()) as usize;
                let source = read.region.clone().map(|region| (region, read.address.wrapping_add(u64::from(offset))));
                let psn = read.first_psn.plus(index);
                read.next += 1;
                if read.next == read.packets {
                    self.replies.pop_front();
                }
                (psn, operation, ext, payload, source)
            }
        };
        let bth = Bth::new(Opcode::rc(operation), common.dest_qpn, psn);
        Some(Response { outgoing: Outgoing { headers: Headers::built(bth, ext), payload }, psn, source })
    }

    /// The memory behind an answer could not be read: its place takes a NAK, and nothing follows.
    pub(super) fn fail_response(&mut self, response: &Response, error: AccessError) {
        self.replies.clear();
        let code = match error {
            AccessError::Fault(_) => NakCode::RemoteOperationalError,
            _ => NakCode::RemoteAccessError,
        };
        self.push_nak(response.psn, Syndrome::Nak(code));
    }
}

impl Response {
    pub(super) fn write(&self, slot: &mut [u8]) -> Result<usize, AccessError> {
        self.outgoing.write(slot, |payload| match &self.source {
            Some((region, address)) => region.read(*address, payload),
            None => Ok(()),
        })
    }
}
