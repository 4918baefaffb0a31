//! Queue pairs.
//!
//! Read first: InfiniBand volume 1, 9.7, 9.8.3, 10.3, A14. `requester` sends requests, `completer`
//! takes responses, `responder` executes the peer's requests, `responses` holds its responses,
//! `raw` handles frames.

mod after_read;
mod attr;
mod common;
mod completer;
mod congestion;
mod decision;
mod error;
mod execute;
mod flight;
mod injected;
mod modify;
mod packet;
mod predict;
mod probe;
mod raw;
mod read;
mod replay;
mod reply;
mod requester;
mod responder;
mod responses;
mod retry;
mod state;
mod uc;
mod ud;
mod update;
mod xrc;

pub(crate) use attr::RdAtomicLimits;
pub use attr::{
    CongestionCounters, Init, MAX_MESSAGE, MAX_RD_ATOMIC, PeerAttr, PostedSend, QpCaps, QpInfo,
    QpInit, Quirks, RequesterAttr, ResponderAttr, Rtr, Rts, SendQueueInfo,
};
use common::NotReceived;
pub(crate) use common::{Common, Completions, Env, Posting, Receiving, Reports, Resources};
pub(crate) use decision::Decision;
pub use decision::{Failure, Loss, Part, Reason, Recovery, Timer, WindowCause};
pub use error::{CountError, ModifyError, PostError};
pub use injected::{Completing, CompletionFaults, Queue, may_be_received};
pub(crate) use packet::Built;
pub(crate) use read::Credits;
pub use retry::AckTimer;
pub use state::{EDGES, QpType, State, is_legal};
pub use update::{Attribute, PathMigration, QpUpdate, optional_attributes};

use alloc::vec::Vec;

use crate::{
    congestion::{Rate, WindowConfig},
    event::{Disposition, DropReason, Event, Refusal},
    gids::Path,
    mem::AccessError,
    time::Instant,
    wire::{NakCode, NetHeader, Operation, Packet, Service},
    work::{AbandonedRequests, CountedOps, Data, Half, RecvWr, SendOp, SendWqe, SendWr, WcError},
};
use attr::Reliability;
use congestion::Congestion;
use requester::Requester;
use responder::{Outcome, Responder};

pub(crate) struct Qp {
    pub(crate) common: Common,
    requester: Requester,
    responder: Responder,
    congestion: Congestion,
    rate: Rate,
    turn: Turn,
    datagram_path: Option<Path>,
    reliability: Reliability,
    /// The peer has sent since RTR.
    established: bool,
    /// In SQD.
    drained: bool,
    drain_event: bool,
    /// In ERR: requests are left to flush.
    flushing: Option<Flushing>,
}

#[derive(Clone, Copy, Debug)]
struct Flushing {
    /// Raises [`Event::LastWqeReached`] at the end.
    last_wqe: bool,
}

/// Per turn: a queue may hold thousands.
const FLUSHED_AT_ONCE: usize = 128;

impl Qp {
    pub(crate) fn new(common: Common, caps: &QpCaps, window: &WindowConfig) -> Self {
        Self {
            requester: Requester::new(caps.max_send_wr, window),
            responder: Responder::new(caps.max_recv_wr),
            common,
            congestion: Congestion::default(),
            rate: Rate::default(),
            turn: Turn::default(),
            datagram_path: None,
            reliability: Reliability::NONE,
            established: false,
            drained: false,
            drain_event: false,
            flushing: None,
        }
    }

    /// Neither in RESET nor in ERR.
    pub(crate) const fn is_alive(&self) -> bool {
        !matches!(self.common.state, State::Reset | State::Err)
    }

    pub(crate) fn check_send(&self, wr: &SendWr, others: usize) -> Result<(), PostError> {
        let Common { state, qp_type, caps, .. } = self.common;
        if qp_type == QpType::XrcTarget {
            return Err(PostError::NoSuchQueue(qp_type));
        }
        if matches!(state, State::Reset | State::Init | State::Rtr)
            && !self.common.posting.early_posts
        {
            return Err(PostError::State(state));
        }
        // other foreign operations fail at execution, as on adapters
        let fits = match wr.op {
            SendOp::Send { immediate: None } if qp_type == QpType::RawPacket => true,
            _ if qp_type == QpType::RawPacket => false,
            SendOp::SendTo { .. } => qp_type == QpType::Ud,
            SendOp::Send { .. } | SendOp::BindWindow(_) | SendOp::LocalInvalidate { .. } => {
                qp_type != QpType::Ud
            }
            _ => true,
        };
        if !fits {
            return Err(PostError::WrongOperation(qp_type));
        }
        if !self.common.posting.atomics && wr.op.is_atomic() {
            return Err(PostError::NoAtomics);
        }
        if wr.remote_srq.is_some() != (qp_type == QpType::XrcInitiator && !wr.op.is_local()) {
            return Err(PostError::RemoteSrq);
        }
        match &wr.data {
            data if wr.op.is_bare() && data.length() > 0 => return Err(PostError::NoBytes),
            Data::Sges(sges) if sges.len() > caps.max_send_sge as usize => {
                return Err(PostError::TooManySges { limit: caps.max_send_sge });
            }
            Data::Sges(sges)
                if matches!(wr.op, SendOp::Read { .. })
                    && sges.len() > self.common.posting.max_read_sge as usize =>
            {
                return Err(PostError::TooManyReadSges { limit: self.common.posting.max_read_sge });
            }
            Data::Inline(_) if wr.op.awaits_data() => return Err(PostError::InlineRead),
            Data::Inline(bytes) if bytes.len() > caps.max_inline_data as usize => {
                return Err(PostError::InlineTooLong { limit: caps.max_inline_data });
            }
            _ => {}
        }
        if wr.data.length() > u64::from(MAX_MESSAGE) {
            return Err(PostError::TooLong);
        }
        if others >= self.requester.room() {
            return Err(PostError::full(caps.max_send_wr));
        }
        Ok(())
    }

    pub(crate) fn post_send(&mut self, wr: &SendWr, env: &mut Env<'_>) -> Result<(), PostError> {
        self.check_send(wr, 0)?;
        let wqe = SendWqe::new(wr, &env.resources.regions);
        if matches!(self.common.state, State::Err | State::Sqe) && self.flushing.is_none() {
            self.common.complete_send(&wqe, Err(WcError::FLUSHED), env);
        } else {
            self.requester.push(wqe); // behind requests not yet flushed
        }
        Ok(())
    }

    pub(crate) fn post_recv(&mut self, wr: &RecvWr, env: &mut Env<'_>) -> Result<(), PostError> {
        let Common { state, qp_type, caps, .. } = self.common;
        if matches!(qp_type, QpType::XrcInitiator | QpType::XrcTarget) {
            return Err(PostError::NoSuchQueue(qp_type));
        }
        if state == State::Reset && !self.common.posting.early_posts {
            return Err(PostError::State(state));
        }
        if self.common.receiving.srq.is_some() {
            return Err(PostError::SharedQueue);
        }
        if wr.sges.len() > caps.max_recv_sge as usize {
            return Err(PostError::TooManySges { limit: caps.max_recv_sge });
        }
        if state == State::Err && self.flushing.is_none() {
            self.common.complete_recv(wr.wr_id, Err(WcError::FLUSHED), false, env);
            return Ok(());
        }
        self.responder.post(wr, self.common.receiving.pd, &env.resources.regions)
    }

    pub(crate) fn take_requests(&mut self) -> AbandonedRequests {
        let (sends, recvs) = (self.requester.take_requests(), self.responder.take_requests());
        AbandonedRequests { sends, recvs }
    }

    /// Takes a packet with checked addresses and ICRC.
    pub(crate) fn handle(
        &mut self,
        net: &NetHeader,
        packet: &Packet<'_>,
        length: usize,
        env: &mut Env<'_>,
    ) -> Disposition {
        if net.is_congested() {
            self.congestion.counters.ecn_marked += 1;
        }
        if (net.is_congested() || env.congested) && !packet.payload.is_empty() {
            let interval = env.resources.congestion.np_min_time_between_cnps;
            self.congestion.schedule_cnp(env.now, interval);
        }
        let disposition = match packet.headers.bth().opcode.service() {
            Service::Ud => self.handle_datagram(net, packet, length, env),
            Service::Uc => self.handle_unreliable(packet, env),
            Service::Rc | Service::Xrc | Service::Cnp => self.handle_reliable(packet, env),
        };
        self.settle(env);
        disposition
    }

    fn handle_datagram(
        &mut self,
        net: &NetHeader,
        packet: &Packet<'_>,
        length: usize,
        env: &mut Env<'_>,
    ) -> Disposition {
        let received = ud::receive(&self.common, &mut self.responder, net, packet, length, env);
        let ended = self.end_receive(received, env);
        ended.map_or_else(Disposition::Dropped, |()| Disposition::Executed)
    }

    fn end_receive(
        &mut self,
        received: Result<(), NotReceived>,
        env: &mut Env<'_>,
    ) -> Result<(), DropReason> {
        match received {
            Ok(()) => Ok(()),
            Err(NotReceived::Dropped(reason)) => Err(reason),
            Err(NotReceived::Failed) => {
                self.enter_error(Failure::Receive, env);
                Ok(())
            }
        }
    }

    fn record_established(&mut self, env: &mut Env<'_>) {
        if self.common.state == State::Rtr && !self.established {
            self.established = true;
            env.reports.events.push_back(Event::CommunicationEstablished(self.common.qpn));
        }
    }

    fn handle_unreliable(&mut self, packet: &Packet<'_>, env: &mut Env<'_>) -> Disposition {
        self.record_established(env);
        let outcome = self.responder.handle_unreliable(packet, &self.common, env);
        self.conclude(outcome, env)
    }

    fn handle_reliable(&mut self, packet: &Packet<'_>, env: &mut Env<'_>) -> Disposition {
        use Operation as Op;
        self.record_established(env);
        let operation = packet.headers.bth().opcode.operation();
        if matches!(operation, Op::Acknowledge | Op::AtomicAcknowledge)
            && !packet.payload.is_empty()
        {
            return Disposition::Dropped(DropReason::PayloadInAcknowledge);
        }
        match operation {
            Op::Acknowledge => self.requester.on_acknowledge(packet, &self.common, env),
            operation if operation.is_response() => {
                self.requester.on_data(packet, &self.common, env)
            }
            _ => {
                let outcome = match self.common.qp_type {
                    QpType::XrcTarget => self.handle_for_srq(packet, env),
                    _ => self.responder.handle(packet, &self.common, env),
                };
                self.conclude(outcome, env)
            }
        }
    }

    fn conclude(&mut self, outcome: Outcome, env: &mut Env<'_>) -> Disposition {
        match outcome {
            Outcome::Done(disposition) => disposition,
            Outcome::Fatal { disposition, event } => {
                env.reports.events.extend(event);
                self.enter_error(disposition.into(), env);
                disposition
            }
        }
    }

    pub(crate) const fn set_lossless(&mut self, lossless: bool) {
        self.requester.read_requests.lossless = lossless;
    }

    pub(crate) fn handle_congestion(&mut self, env: &mut Env<'_>) {
        if !self.congestion.on_cnp(env.now, env.resources.congestion.np_min_time_between_cnps) {
            return;
        }
        self.requester.flight.on_notification(env.now);
        env.record(|| Decision::Window(WindowCause::Notification));
        if let Some(dcqcn) = &env.resources.congestion.dcqcn {
            self.rate.on_notification(env.now, dcqcn);
        }
    }

    pub(crate) fn handle_timeout(&mut self, env: &mut Env<'_>) {
        self.rate.handle_timeout(env.now);
        self.responder.responses.pace.handle_timeout(env.now);
        self.requester.handle_timeout(env);
        self.settle(env);
    }

    pub(crate) fn deadline(&self) -> Option<Instant> {
        let rates = [self.rate.deadline(), self.responder.responses.pace.deadline()];
        Instant::earliest([self.requester.deadline(), rates[0], rates[1]])
    }

    /// READ bytes in the shared budget; true if a READ waits for [credits](Env::read_credits).
    pub(crate) const fn reads(&self) -> (u64, bool) {
        (self.requester.read_requests.shared(), self.requester.read_requests.waits)
    }

    /// The same for requests.
    pub(crate) const fn flight(&self) -> (u64, bool) {
        (self.requester.flight.shared(), self.requester.flight.waits)
    }

    /// Window in bytes, rate in bits/s.
    pub(crate) fn pace(&self) -> (u64, Option<u64>) {
        let rates = [self.rate.limit(), self.responder.responses.pace.limit()];
        (self.requester.flight.window(), rates.into_iter().flatten().min())
    }

    pub(crate) const fn take_lost(&mut self) -> bool {
        self.requester.flight.take_lost()
    }

    pub(crate) fn build(&mut self, slot: &mut [u8], env: &mut Env<'_>) -> Option<Built> {
        if self.is_flushing() {
            self.flush(env);
        }
        if self.common.qp_type == QpType::Ud {
            let built = ud::build(&self.common, &mut self.requester, slot, env);
            self.settle(env);
            let (built, path) = built?;
            self.datagram_path = Some(path);
            return Some(built);
        }
        self.common.peer.path.as_ref()?; // no peer, no packets
        if let Some(built) = self.congestion.build(&self.common, slot) {
            env.reports.counters.cnp_sent += 1;
            env.record(|| Decision::Packet(Reason::Congestion));
            return Some(built);
        }
        // a lone request first: the acknowledgement, usually shorter, ends the run
        let passes = || {
            self.responder.responses.is_acknowledgement()
                && self.requester.has_one_packet(self.common.mtu.bytes())
        };
        if self.turn.requests_first || passes() {
            self.build_request(slot, env).or_else(|| self.build_response(slot, env))
        } else {
            self.build_response(slot, env).or_else(|| self.build_request(slot, env))
        }
    }

    pub(crate) const fn path(&self) -> Option<&Path> {
        match self.common.qp_type {
            QpType::Ud => self.datagram_path.as_ref(),
            _ => self.common.peer.path.as_ref(),
        }
    }

    /// False if nothing is due; cheap.
    pub(crate) fn may_send(&self) -> bool {
        self.requester.may_send() // first: the case of a long message
            || !self.responder.responses.is_empty()
            || self.common.state != State::Rts
            || !self.common.qp_type.is_reliable()
            || self.congestion.due
            || self.is_flushing()
    }

    pub(crate) fn has_requests(&self) -> bool {
        !self.requester.has_sent_all()
    }

    pub(crate) fn only_acknowledges(&self) -> bool {
        self.responder.responses.is_acknowledgement()
            && self.requester.has_sent_all()
            && !self.congestion.due
            && !self.is_flushing()
    }

    pub(crate) fn build_frame(&mut self, mtu: u32, frame: &mut Vec<u8>, env: &mut Env<'_>) -> bool {
        if self.is_flushing() {
            self.flush(env);
        }
        let built = raw::build(&self.common, &mut self.requester, mtu, frame, env);
        self.settle(env);
        built
    }

    pub(crate) fn has_frames(&self) -> bool {
        self.is_flushing()
            || self.common.state == State::Rts && self.requester.queue.oldest().is_some()
    }

    pub(crate) fn handle_frame(
        &mut self,
        bytes: &[u8],
        flow_tag: u32,
        env: &mut Env<'_>,
    ) -> Result<(), DropReason> {
        let received = raw::receive(&self.common, &mut self.responder, bytes, flow_tag, env);
        self.end_receive(received, env)
    }

    /// True if a long READ's last packet may wait one transmit buffer, to share the next run.
    pub(crate) fn hold_back(&mut self) -> bool {
        self.responder.responses.hold_back()
    }

    fn build_response(&mut self, slot: &mut [u8], env: &mut Env<'_>) -> Option<Built> {
        if env.has_unplaced(self.common.half(Half::Responder)) {
            return None;
        }
        loop {
            let responses = &mut self.responder.responses;
            if let Some(length) =
                responses.write_acknowledgement(&self.common, slot, &mut env.reports.decisions)
            {
                return Some(Built::new(length));
            }
            let has_data = self.responder.responses.next_has_data();
            if has_data
                && !(self.rate.allows(env.now, env.resources.congestion.dcqcn.as_ref())
                    && self.responder.responses.pace.allows(env.now))
            {
                return None;
            }
            let response = self.responder.responses.next(&self.common)?;
            match response.write(slot) {
                Ok(length) => {
                    env.record(|| Decision::Packet(response.reason()));
                    if has_data {
                        self.count_data(Half::Responder, 1, length as u64, env);
                        self.responder.responses.pace.on_sent(length as u64, env.now);
                        self.responder.responses.after_read.complete_responses(&self.common, env);
                    }
                    if let Some(bytes) = response.ends_read {
                        let counters = &self.common.completions.counters;
                        counters.count(CountedOps::REMOTE_READ, Some(bytes));
                    }
                    return Some(Built::new(length));
                }
                Err(error) => {
                    let msn = self.responder.msn;
                    if let Some(event) =
                        self.responder.responses.fail(&response, error, msn, &self.common)
                    {
                        self.common.completions.counters.count(CountedOps::REMOTE_READ, None);
                        if matches!(event, Event::QpAccessError(..)) {
                            env.reports.counters.refused_accesses += 1;
                        }
                        env.reports.events.push_back(event);
                        self.enter_error(response.failure(error), env);
                    } else {
                        self.responder.responses.after_read.complete_responses(&self.common, env);
                    }
                }
            }
        }
    }

    fn build_request(&mut self, slot: &mut [u8], env: &mut Env<'_>) -> Option<Built> {
        loop {
            if !matches!(self.common.state, State::Rts | State::Sqd) {
                return None;
            }
            if !self.rate.allows(env.now, env.resources.congestion.dcqcn.as_ref()) {
                self.requester.stop_waiting();
                return None;
            }
            let Some(request) = self.requester.next(&mut self.common, env) else {
                self.settle(env);
                return None;
            };
            match self.requester.write(&request, &self.common, slot)? {
                Ok(length) => {
                    env.record(|| Decision::Packet(self.requester.reason(&request)));
                    self.count_data(Half::Requester, 1, length as u64, env);
                    if request.ends
                        && self.common.qp_type == QpType::Uc
                        && let Some(wqe) = self.requester.queue.pop()
                    {
                        self.common.complete_send(&wqe, Ok(0), env);
                    }
                    let rxe_flush =
                        self.common.quirks.rxe_flush && self.requester.is_flush(&request);
                    return Some(Built { rxe_flush, ..Built::new(length) });
                }
                Err(error) => {
                    self.requester.fail(request.at.number, WcError::protection(error));
                    self.settle(env);
                }
            }
        }
    }

    /// Data packets, or requests for data.
    fn count_data(&mut self, half: Half, packets: u32, bytes: u64, env: &Env<'_>) {
        self.turn.record(half, packets);
        if self.common.qp_type.is_reliable() {
            self.rate.on_sent(bytes, env.now, env.resources.congestion.dcqcn.as_ref());
        }
    }

    fn settle(&mut self, env: &mut Env<'_>) {
        match self.common.state {
            State::Rts | State::Sqd => {}
            _ => return,
        }
        if let Some((wqe, error)) = self.requester.take_failed() {
            self.common.complete_send(&wqe, Err(error), env);
            self.fail_request(error, env);
        } else if self.common.state == State::Sqd && !self.drained && self.requester.is_quiet() {
            self.drained = true;
            if self.drain_event {
                env.reports.events.push_back(Event::SendQueueDrained(self.common.qpn));
            }
        }
    }

    pub(crate) fn fail_completion(&mut self, queue: Queue, error: WcError, env: &mut Env<'_>) {
        match queue {
            _ if !self.is_alive() => {}
            Queue::Receive => self.fail(Failure::Receive, env),
            Queue::Send => self.fail_request(error, env),
        }
    }

    fn fail_request(&mut self, error: WcError, env: &mut Env<'_>) {
        if self.common.qp_type.is_reliable() {
            return self.fail(Failure::Request(error), env);
        }
        self.enter(State::Sqe, Failure::Request(error), env);
        while let Some(wqe) = self.requester.flush() {
            self.common.complete_send(&wqe, Err(WcError::FLUSHED), env);
        }
    }

    /// Fails unacknowledged requests: a copy to memory behind a driver failed.
    pub(crate) fn fail_copy(&mut self, half: Half, error: AccessError, env: &mut Env<'_>) {
        if !self.is_alive() {
            return;
        }
        if half == Half::Requester || !self.common.qp_type.is_reliable() {
            return self.fail(Failure::Request(WcError::protection(error)), env);
        }
        self.responder.responses.forget();
        self.responder.expected = self.responder.unplaced;
        let (code, refusal) = (NakCode::RemoteOperationalError, Refusal::LocalBuffer(error));
        let outcome = self.responder.refuse(code, refusal, &self.common, env);
        self.conclude(outcome, env);
    }

    /// Enters ERR without further responses.
    pub(crate) fn fail(&mut self, failure: Failure, env: &mut Env<'_>) {
        self.responder.responses.forget();
        self.enter_error(failure, env);
    }

    fn enter(&mut self, to: State, failure: Failure, env: &mut Env<'_>) {
        let from = core::mem::replace(&mut self.common.state, to);
        env.record(|| Decision::State { from, to, failure });
    }

    /// Flushes requests in order, sends first (10.3.1.7). Waiting responses still leave: the last
    /// may be a NAK.
    fn enter_error(&mut self, failure: Failure, env: &mut Env<'_>) {
        let was_alive = self.common.state != State::Err;
        self.congestion.forget();
        self.rate = Rate::default();
        self.enter(State::Err, failure, env);
        let has_srq =
            self.common.receiving.srq.is_some() || self.common.qp_type == QpType::XrcTarget;
        let last_wqe = self.flushing.is_some_and(|flushing| flushing.last_wqe);
        self.flushing = Some(Flushing { last_wqe: last_wqe || was_alive && has_srq });
        self.flush(env);
    }

    fn flush(&mut self, env: &mut Env<'_>) {
        let Some(Flushing { last_wqe }) = self.flushing else { return };
        for _ in 0..FLUSHED_AT_ONCE {
            if let Some(wqe) = self.requester.flush() {
                self.common.complete_send(&wqe, Err(WcError::FLUSHED), env);
                continue;
            }
            self.responder.responses.after_read.flush(&self.common, env);
            let Some(id) = self.responder.flush() else {
                self.flushing = None;
                if last_wqe {
                    env.reports.events.push_back(Event::LastWqeReached(self.common.qpn));
                }
                return;
            };
            self.common.complete_recv(id, Err(WcError::FLUSHED), false, env);
        }
    }

    pub(crate) const fn is_flushing(&self) -> bool {
        self.flushing.is_some()
    }
}

/// Packets of one half before the other's turn.
const ALTERNATE: u32 = 16;

/// Alternates responses and requests: neither starves.
#[derive(Debug, Default)]
struct Turn {
    requests_first: bool,
    in_row: u32,
}

impl Turn {
    fn record(&mut self, half: Half, packets: u32) {
        if (half == Half::Requester) == self.requests_first {
            self.in_row += packets;
            if self.in_row < ALTERNATE {
                return;
            }
            self.requests_first = !self.requests_first;
        }
        self.in_row = 0;
    }
}
