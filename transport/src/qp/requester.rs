//! The requester's sending half.
//!
//! Read first: InfiniBand volume 1, 9.7.2 to 9.7.4, 9.7.5.1.
//!
//! ```text
//!        oldest_unacked          cursor             sent_end         next_psn
//!  acknowledged |  sent, waiting   |   to retransmit  |  not sent yet  |   not numbered yet
//! ```
//!
//! A request gets its PSNs with its first packet. After a loss the cursor goes back behind
//! `sent_end` (go-back-N).

use super::{
    attr::RequesterAttr,
    common::{Common, Env, Resources},
    decision::{Decision, Loss, Part, Reason, Recovery, Timer, WindowCause},
    flight::{self, Flight},
    packet::OutgoingPacket,
    probe::Probe,
    read::ReadRequests,
    retry::{AckTimer, Retry},
    state::State,
};
use crate::{
    congestion::{OVERHEAD, WindowConfig},
    mem::AccessError,
    psn::Psn,
    time::Instant,
    wire::{
        AtomicEth, Ext, Feth, Headers, InvalidateEth, Opcode, Operation, PacketPosition, Reth,
        XrcEth,
    },
    work::{Cause, Half, Remote, SendFlags, SendOp, SendQueue, SendWqe, WcError, WcStatus},
};
use alloc::collections::VecDeque;

/// Most unacknowledged packets. A READ counts its responses, and may exceed the limit once.
pub(super) const WINDOW: u32 = 512;

/// In bytes.
const ATOMIC: u32 = 8;

#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(super) struct Cursor {
    pub(super) number: u64,
    pub(super) packet: u32,
}

#[derive(Debug)]
pub(crate) struct Requester {
    pub(super) queue: SendQueue,
    /// Posted before RTS; join with the next post.
    early: VecDeque<SendWqe>,
    pub(super) cursor: Cursor,
    pub(super) oldest_unacked: Psn,
    pub(super) sent_end: Psn,
    pub(super) next_psn: Psn,
    pub(super) flight: Flight,
    pub(super) reads: u32,
    max_reads: u32,
    pub(super) read_requests: ReadRequests,
    pub(super) retry: Retry,
    pub(super) probe: Probe,
    /// Reason for the last go-back.
    loss: Loss,
}

#[derive(Clone, Copy, Debug)]
pub(crate) struct RequestPacket {
    pub(super) at: Cursor,
    psn: Psn,
    /// PSN after its response.
    end: Psn,
    pub(super) ends: bool,
    ack_req: bool,
    transmission: Transmission,
}

#[derive(Clone, Copy, Debug)]
pub(super) enum Transmission {
    First,
    Retransmit,
    Probe { oldest: bool },
}

impl Requester {
    pub(crate) fn new(capacity: u32, window: &WindowConfig) -> Self {
        Self {
            queue: SendQueue::new(capacity),
            early: VecDeque::new(),
            cursor: Cursor::default(),
            oldest_unacked: Psn::default(),
            sent_end: Psn::default(),
            next_psn: Psn::default(),
            flight: Flight::new(window),
            reads: 0,
            max_reads: 0,
            read_requests: ReadRequests::default(),
            retry: Retry::default(),
            probe: Probe::default(),
            loss: Loss::Nak,
        }
    }

    pub(crate) fn start(&mut self, psn: Psn, attr: &RequesterAttr, resources: &Resources) {
        self.start_unreliable(psn);
        self.configure(attr, resources.ack_timer);
        self.flight = Flight::new(&resources.congestion.window);
    }

    pub(crate) fn configure(&mut self, attr: &RequesterAttr, timer: AckTimer) {
        let RequesterAttr { timeout, retry_cnt, rnr_retry, max_rd_atomic } = *attr;
        self.max_reads = u32::from(max_rd_atomic);
        self.retry = Retry::new(timer, timeout, retry_cnt, rnr_retry);
        self.probe = Probe::default();
    }

    /// RTR→RTS of UC and UD.
    pub(crate) fn start_unreliable(&mut self, psn: Psn) {
        self.oldest_unacked = psn;
        self.sent_end = psn;
        self.next_psn = psn;
    }

    /// RTR→RTS: earlier posts wait for the next.
    pub(super) fn put_early_aside(&mut self) {
        self.early = self.queue.take();
        self.cursor = Cursor { number: self.queue.head(), packet: 0 };
    }

    pub(crate) fn reset(&mut self) {
        while self.flush().is_some() {}
    }

    pub(super) fn take_requests(&mut self) -> VecDeque<SendWqe> {
        self.join_early();
        let requests = self.queue.take();
        self.reset();
        requests
    }

    pub(crate) fn room(&self) -> usize {
        self.queue.room() - self.early.len()
    }

    pub(crate) fn push(&mut self, wqe: SendWqe) {
        self.join_early();
        self.queue.push(wqe);
    }

    fn join_early(&mut self) {
        while let Some(wqe) = self.early.pop_front() {
            self.queue.push(wqe);
        }
    }

    /// True if nothing started is incomplete.
    pub(crate) fn is_quiet(&self) -> bool {
        self.queue.oldest().is_none_or(|wqe| !wqe.started)
    }

    pub(crate) fn take_failed(&mut self) -> Option<(SendWqe, WcError)> {
        let error = self.queue.oldest()?.failed?;
        Some((self.queue.pop()?, error))
    }

    pub(crate) fn flush(&mut self) -> Option<SendWqe> {
        self.retry = Retry::default();
        self.probe = Probe::default();
        self.reads = 0;
        self.read_requests.clear();
        self.flight.clear();
        self.join_early();
        let wqe = self.queue.pop();
        self.cursor = Cursor { number: self.queue.head(), packet: 0 };
        wqe
    }

    /// The failed request completes in order.
    pub(crate) fn fail(&mut self, number: u64, error: WcError) {
        if let Some(wqe) = self.queue.get_mut(number) {
            // the first error stays
            wqe.failed.get_or_insert(error);
        }
    }

    pub(super) fn fail_oldest(&mut self, status: WcStatus, cause: Cause) {
        self.fail(self.queue.head(), WcError { status, cause });
    }

    pub(super) fn take_datagram(&mut self) -> Option<SendWqe> {
        self.next_psn = self.next_psn.plus(1);
        self.queue.pop()
    }

    pub(super) fn may_send(&self) -> bool {
        !self.has_sent_all()
            || self.probe.is_due()
            || self.queue.oldest().is_some_and(|wqe| wqe.failed.is_some())
    }

    pub(super) fn has_sent_all(&self) -> bool {
        self.queue.get(self.cursor.number).is_none()
    }

    pub(super) fn has_one_packet(&self, mtu: u32) -> bool {
        let Cursor { number, packet } = self.cursor;
        let is_short = |wqe: &SendWqe| packet == 0 && wqe.length <= mtu;
        self.queue.get(number).is_some_and(is_short) && self.queue.get(number + 1).is_none()
    }

    pub(super) fn outstanding(&self) -> u32 {
        self.sent_end.after(self.oldest_unacked).unwrap_or(0)
    }

    pub(crate) fn next(&mut self, common: &mut Common, env: &mut Env<'_>) -> Option<RequestPacket> {
        self.next_in_order(common, env).or_else(|| self.next_probe(common, env))
    }

    /// Leaves the queue for shared credits, where an unused place would block others.
    pub(crate) const fn stop_waiting(&mut self) {
        self.read_requests.waits = false;
        self.flight.waits = false;
    }

    fn next_in_order(&mut self, common: &mut Common, env: &mut Env<'_>) -> Option<RequestPacket> {
        self.stop_waiting();
        if self.retry.is_paused() {
            return None;
        }
        self.execute_local(common, env);
        let outstanding = self.outstanding();
        let Cursor { number, packet } = self.cursor;
        if !self.queue.get(number)?.started {
            if !self.begin(number, outstanding, common) {
                return None;
            }
            if self.queue.get(number)?.flags.contains(SendFlags::FENCE) {
                env.place_all_of(common.half(Half::Requester));
            }
        }
        let wqe = self.queue.get(number).filter(|wqe| wqe.failed.is_none())?;
        let psn = wqe.first_psn.plus(packet);
        let again = psn.is_before(self.sent_end);
        if !again && outstanding >= WINDOW {
            return None;
        }
        let is_read = matches!(wqe.op, SendOp::Read { .. });
        let mtu = common.mtu.bytes();
        let end = match is_read {
            false => psn.plus(1),
            true if again => self.read_requests.end_of(psn)?,
            // the first request of a READ has its slot already
            true if packet > 0 && self.reads >= self.max_reads => return None,
            true => {
                let left = wqe.packets - packet;
                let end = self.read_requests.request(psn, left, mtu, env.read_credits)?;
                self.reads += u32::from(packet > 0);
                end
            }
        };
        let is_reliable = common.qp_type.is_reliable();
        let cost = flight::cost(wqe, packet, packet + 1, mtu);
        let largest = u64::from(mtu) + OVERHEAD;
        let ack_req =
            is_reliable && cost > 0 && self.flight.admit(cost, largest, env.send_credits)?;
        let transmission = if again { Transmission::Retransmit } else { Transmission::First };
        let request = self.request(self.cursor, end, is_read || ack_req, transmission, common)?;
        self.cursor = if request.ends {
            Cursor { number: number + 1, packet: 0 }
        } else {
            Cursor { number, packet: packet + end.after(psn).unwrap_or(1) }
        };
        env.reports.counters.retransmitted_packets += u64::from(again);
        if self.sent_end.is_before(request.end) {
            self.sent_end = request.end;
        }
        if is_reliable {
            self.retry.on_sent(env.now);
            self.flight.on_sent(cost, request.ack_req);
            if request.ack_req && self.retry.is_running() {
                self.probe.on_sent(psn, again, env.now);
            }
        } else {
            self.oldest_unacked = self.sent_end;
        }
        Some(request)
    }

    /// Retransmits the last packet, or the oldest if the responder may ignore others.
    fn next_probe(&mut self, common: &Common, env: &mut Env<'_>) -> Option<RequestPacket> {
        if !self.probe.take(env.now) || self.outstanding() == 0 {
            return None;
        }
        let oldest = self.oldest_unacked;
        let last = self.probe.is_first() && !self.retry.is_resent(oldest);
        let repeated = if last {
            self.sent_end.previous()
        } else {
            self.probe.record_repeated(oldest);
            oldest
        };
        let (number, wqe) = self.queue.find(repeated)?;
        // a READ resumes at the first missing response
        let from = if wqe.awaits_data() { oldest } else { repeated };
        let packet = from.after(wqe.first_psn).unwrap_or(0);
        let psn = wqe.first_psn.plus(packet);
        let end = self.read_requests.end_of(psn).unwrap_or(psn.plus(1));
        let transmission = Transmission::Probe { oldest: !last };
        let request = self.request(Cursor { number, packet }, end, true, transmission, common)?;
        env.reports.counters.tail_probes += 1;
        env.reports.counters.retransmitted_packets += 1;
        Some(request)
    }

    /// `end` is the PSN after the response.
    pub(super) fn request(
        &self,
        at: Cursor,
        end: Psn,
        ack_req: bool,
        transmission: Transmission,
        common: &Common,
    ) -> Option<RequestPacket> {
        let wqe = self.queue.get(at.number).filter(|wqe| wqe.failed.is_none())?;
        let psn = wqe.first_psn.plus(at.packet);
        let ends = end == wqe.end_psn();
        let ack_req = common.qp_type.is_reliable() && (ends || ack_req);
        Some(RequestPacket { at, psn, end, ends, ack_req, transmission })
    }

    /// Returns a packet, and the place of its payload.
    #[inline]
    pub(super) fn contents(
        &self,
        request: &RequestPacket,
        common: &Common,
    ) -> Option<(OutgoingPacket, u64, &SendWqe)> {
        let RequestPacket { at: Cursor { number, packet }, psn, end, ends, ack_req, .. } = *request;
        let wqe = self.queue.get(number)?;
        let offset = packet * common.mtu.bytes();
        let (operation, ext, payload) = describe(wqe, packet, offset, end.after(psn)?, common)?;
        let xrceth = wqe.remote_srq.map(|srq| XrcEth { srq });
        let wakes = matches!(wqe.op, SendOp::Send { .. } | SendOp::SendInvalidate { .. })
            || ext.immediate().is_some();
        let mut bth = common.bth(Opcode::known(common.qp_type.service(), operation), psn);
        bth.solicited = ends && wakes && wqe.flags.contains(SendFlags::SOLICITED);
        bth.ack_req = ack_req;
        let headers = Headers::built(bth, ext).with_xrceth(xrceth);
        let outgoing = OutgoingPacket { headers, payload: payload as usize };
        Some((outgoing, offset.into(), wqe))
    }

    /// Executes binds and invalidations: at the queue's head nothing is outstanding.
    fn execute_local(&mut self, common: &mut Common, env: &mut Env<'_>) {
        while common.state == State::Rts
            && self.cursor.number == self.queue.head()
            && let Some(wqe) =
                self.queue.oldest().filter(|wqe| wqe.op.is_local() && wqe.failed.is_none())
        {
            let done = match wqe.op {
                SendOp::BindWindow(bind) => {
                    common.binds = true;
                    env.place_all();
                    let bound = env.resources.regions.bind(&bind, common.user());
                    bound.map_err(|error| (WcStatus::MwBindErr, Cause::Bind(error)))
                }
                SendOp::LocalInvalidate { rkey } => {
                    env.place_all();
                    let invalidated = env.resources.regions.invalidate(rkey, common.user());
                    invalidated.map_err(|error| (WcStatus::MwBindErr, Cause::Access(error)))
                }
                _ => Ok(()), // no other is local
            };
            if let Err((status, cause)) = done {
                self.fail_oldest(status, cause);
                return;
            }
            if let Some(wqe) = self.queue.pop() {
                self.cursor = Cursor { number: self.queue.head(), packet: 0 };
                common.complete_send(&wqe, Ok(0), env);
            }
        }
    }

    /// Numbers a request unless it must wait or fails.
    fn begin(&mut self, number: u64, outstanding: u32, common: &Common) -> bool {
        let (reads, max_reads, next_psn) = (self.reads, self.max_reads, self.next_psn);
        let Some(wqe) = self.queue.get_mut(number) else { return false };
        // rxe remembers FLUSHes among READs and forgets READs for them
        let as_read =
            common.quirks.rxe_flush && max_reads > 0 && matches!(wqe.op, SendOp::Flush { .. });
        let needs_slot = wqe.op.takes_slot() || as_read;
        let waits = common.state != State::Rts
            || wqe.failed.is_some()
            || outstanding >= WINDOW
            || wqe.flags.contains(SendFlags::FENCE) && reads > 0
            || wqe.op.is_local() // executed at the queue's head
            || needs_slot && reads >= max_reads && max_reads > 0;
        if waits {
            return false;
        }
        if let Err(error) = check(wqe, max_reads, common) {
            wqe.failed = Some(error);
            return false;
        }
        wqe.started = true;
        wqe.first_psn = next_psn;
        wqe.packets = common.mtu.packets(wqe.length);
        self.next_psn = wqe.end_psn();
        wqe.holds_slot = needs_slot;
        self.reads += u32::from(needs_slot);
        true
    }

    pub(super) fn write(
        &self,
        request: &RequestPacket,
        common: &Common,
        slot: &mut [u8],
    ) -> Option<Result<usize, AccessError>> {
        let (packet, offset, wqe) = self.contents(request, common)?;
        Some(packet.write(slot, |payload| match payload {
            [] => Ok(()),
            payload => wqe.read(offset, payload),
        }))
    }

    pub(super) fn is_flush(&self, request: &RequestPacket) -> bool {
        let wqe = self.queue.get(request.at.number);
        wqe.is_some_and(|wqe| matches!(wqe.op, SendOp::Flush { .. }))
    }

    pub(super) fn reason(&self, request: &RequestPacket) -> Reason {
        let part = self.part(request.at.number, request.psn);
        match request.transmission {
            Transmission::First => Reason::First(part),
            Transmission::Retransmit => Reason::Retransmit(part, self.loss),
            Transmission::Probe { oldest } => Reason::Probe { part, oldest },
        }
    }

    pub(super) fn part(&self, number: u64, psn: Psn) -> Part {
        self.queue.get(number).map_or(Part { wr_id: 0, index: 0, of: 0 }, |wqe| {
            let index = psn.after(wqe.first_psn).unwrap_or(0);
            Part { wr_id: wqe.id, index, of: wqe.packets }
        })
    }

    fn go_back(&mut self, psn: Psn) {
        if let Some((number, wqe)) = self.queue.find(psn) {
            let packet = psn.after(wqe.first_psn).unwrap_or(0);
            self.cursor = Cursor { number, packet };
            self.flight.clear();
        }
    }

    /// Moves the cursor past acknowledged packets.
    pub(super) fn lift_cursor(&mut self) {
        let head = self.queue.head();
        if self.cursor.number < head {
            self.cursor = Cursor { number: head, packet: 0 };
            self.flight.clear();
        }
        if self.cursor.number == head
            && let Some(wqe) = self.queue.oldest().filter(|wqe| wqe.started)
            && let Some(acknowledged) = self.oldest_unacked.after(wqe.first_psn)
            && self.cursor.packet <= acknowledged
        {
            self.cursor.packet = acknowledged;
            self.flight.clear();
        }
    }

    pub(super) fn recover(&mut self, recovery: Recovery, psn: Psn, loss: Loss, env: &mut Env<'_>) {
        env.record(|| Decision::Recovery { psn, loss, recovery });
        match recovery {
            Recovery::Retransmit | Recovery::RetransmitAfter(_) => {
                self.loss = loss;
                self.go_back(psn);
                match loss {
                    Loss::NotReady => self.probe.stop(),
                    _ => self.probe.on_loss(),
                }
            }
            Recovery::UnderWay => {}
            Recovery::GiveUp { tries } => {
                let status = match loss {
                    Loss::NotReady => WcStatus::RnrRetryExcErr,
                    _ => WcStatus::RetryExcErr,
                };
                self.fail_oldest(status, Cause::NoResponse { tries });
            }
        }
    }

    pub(crate) fn handle_timeout(&mut self, env: &mut Env<'_>) {
        if self.retry.end_pause(env.now) {
            env.record(|| Decision::Timer(Timer::NotReady));
        }
        if !self.retry.is_due(env.now) {
            if self.probe.handle_timeout(env.now) {
                env.record(|| Decision::Timer(Timer::Probe));
            }
        } else if self.flight.is_held() {
            env.record(|| Decision::Timer(Timer::PutOff));
            self.retry.put_off(env.now); // nothing sent awaits a response
        } else {
            env.reports.counters.timeouts += 1;
            let psn = self.oldest_unacked;
            env.record(|| Decision::Timer(Timer::Acknowledge(psn)));
            env.record(|| Decision::Window(WindowCause::Timeout));
            self.flight.on_timeout();
            let recovery = self.retry.on_timeout(env.now);
            self.recover(recovery, psn, Loss::Timeout, env);
        }
    }

    pub(crate) fn deadline(&self) -> Option<Instant> {
        Instant::earliest([self.retry.next_deadline(), self.probe.deadline()])
    }
}

fn check(wqe: &SendWqe, max_reads: u32, common: &Common) -> Result<(), WcError> {
    let (qp_type, pd) = (common.qp_type, common.receiving.pd);
    let unreliable = matches!(
        wqe.op,
        SendOp::Send { .. }
            | SendOp::Write { .. }
            | SendOp::BindWindow(_)
            | SendOp::LocalInvalidate { .. }
    );
    let refuse = |status, cause| Err(WcError { status, cause });
    if !unreliable && !qp_type.is_reliable() {
        return refuse(WcStatus::LocQpOpErr, Cause::WrongOperation);
    }
    if wqe.op.takes_slot() && max_reads == 0 {
        return refuse(WcStatus::LocQpOpErr, Cause::NoReadsAllowed);
    }
    if wqe.op.is_atomic() && wqe.length != ATOMIC {
        return refuse(WcStatus::LocLenErr, Cause::NotAWord { length: wqe.length });
    }
    // a response buffer is checked on arrival
    if wqe.awaits_data() {
        return Ok(());
    }
    wqe.check_local(pd).map_err(WcError::protection)
}

/// True if each packet is a WRITE ONLY.
pub(super) fn leaves_as_writes(wqe: &SendWqe, common: &Common) -> bool {
    (2..=common.posting.write_only_packets).contains(&wqe.packets)
        && common.qp_type.is_reliable()
        && matches!(wqe.op, SendOp::Write { immediate: None, .. })
}

/// Payload length and headers of packet `index`; a READ requests `packets` response packets.
fn describe(
    wqe: &SendWqe,
    index: u32,
    offset: u32,
    packets: u32,
    common: &Common,
) -> Option<(Operation, Ext, u32)> {
    let mtu = common.mtu.bytes();
    let carried = (wqe.length - offset).min(mtu);
    let place = PacketPosition::of(index, wqe.packets);
    let atomic = |remote: Remote, swap_or_add, compare| {
        Ext::Atomic(AtomicEth {
            virtual_address: remote.address,
            rkey: remote.rkey,
            swap_or_add,
            compare,
        })
    };
    let reth = |remote: Remote, offset: u32, dma_length| Reth {
        virtual_address: remote.address.wrapping_add(offset.into()),
        rkey: remote.rkey,
        dma_length,
    };
    Some(match wqe.op {
        SendOp::Read { remote } => {
            let asked = packets.saturating_mul(mtu);
            let reth = reth(remote, offset, (wqe.length - offset).min(asked));
            (Operation::ReadRequest, Ext::Reth(reth), 0)
        }
        SendOp::CompareSwap { remote, compare, swap } => {
            (Operation::CmpSwap, atomic(remote, swap, compare), 0)
        }
        SendOp::FetchAdd { remote, add } => (Operation::FetchAdd, atomic(remote, add, 0), 0),
        SendOp::Write { remote, .. } if leaves_as_writes(wqe, common) => {
            (Operation::WriteOnly, Ext::Reth(reth(remote, offset, carried)), carried)
        }
        SendOp::Write { remote, immediate } => {
            let reth = reth(remote, 0, wqe.length);
            let (operation, ext) = match (place, immediate) {
                (PacketPosition::First, _) => (Operation::WriteFirst, Ext::Reth(reth)),
                (PacketPosition::Middle, _) => (Operation::WriteMiddle, Ext::None),
                (PacketPosition::Last, None) => (Operation::WriteLast, Ext::None),
                (PacketPosition::Last, Some(imm)) => (Operation::WriteLastImm, Ext::Imm(imm)),
                (PacketPosition::Only, None) => (Operation::WriteOnly, Ext::Reth(reth)),
                (PacketPosition::Only, Some(imm)) => {
                    (Operation::WriteOnlyImm, Ext::RethImm(reth, imm))
                }
            };
            (operation, ext, carried)
        }
        SendOp::AtomicWrite { remote } => {
            (Operation::AtomicWrite, Ext::Reth(reth(remote, 0, wqe.length)), carried)
        }
        SendOp::Flush { remote, length, placement, whole } => {
            let feth = Feth { placement: placement.bits(), selectivity: u8::from(whole) };
            (Operation::Flush, Ext::FethReth(feth, reth(remote, 0, length)), 0)
        }
        SendOp::SendInvalidate { rkey } => {
            let invalidate = Ext::Ieth(InvalidateEth(rkey));
            let (operation, ext) = match place {
                PacketPosition::First => (Operation::SendFirst, Ext::None),
                PacketPosition::Middle => (Operation::SendMiddle, Ext::None),
                PacketPosition::Last => (Operation::SendLastInvalidate, invalidate),
                PacketPosition::Only => (Operation::SendOnlyInvalidate, invalidate),
            };
            (operation, ext, carried)
        }
        SendOp::BindWindow(_) | SendOp::LocalInvalidate { .. } => return None,
        SendOp::Send { immediate } | SendOp::SendTo { immediate, .. } => {
            let (operation, ext) = match (place, immediate) {
                (PacketPosition::First, _) => (Operation::SendFirst, Ext::None),
                (PacketPosition::Middle, _) => (Operation::SendMiddle, Ext::None),
                (PacketPosition::Last, None) => (Operation::SendLast, Ext::None),
                (PacketPosition::Last, Some(imm)) => (Operation::SendLastImm, Ext::Imm(imm)),
                (PacketPosition::Only, None) => (Operation::SendOnly, Ext::None),
                (PacketPosition::Only, Some(imm)) => (Operation::SendOnlyImm, Ext::Imm(imm)),
            };
            (operation, ext, carried)
        }
    })
}
