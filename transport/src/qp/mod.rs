//! A queue pair: its state and the protocol halves that it drives.
//!
//! Read first: InfiniBand volume 1, 9.7 (reliable service), 9.8.3 (unreliable datagram), 10.3
//! (queue pair states), A14 (XRC). The halves are `requester` (requests), `completer` (responses to
//! them), `responder` (the peer's requests) with its `answers`. They yield packet values, which
//! `Qp::build` turns into bytes. `raw` stands beside the protocol: frames of the program's own.

mod answers;
mod attr;
mod behind;
mod common;
mod completer;
mod congestion;
mod error;
mod execute;
mod flight;
mod info;
mod injected;
mod middles;
mod modify;
mod note;
mod packet;
mod predict;
mod probe;
mod raw;
mod read;
mod reliability;
mod replay;
mod reply;
mod requester;
mod responder;
mod retry;
mod state;
mod uc;
mod ud;
mod update;
mod xrc;

pub(crate) use attr::RdAtomicLimits;
pub use attr::{
    Init, MAX_MESSAGE, MAX_RD_ATOMIC, PeerAttr, QpCaps, QpInit, Quirks, RequesterAttr,
    ResponderAttr, Rtr, Rts,
};
use common::Refused;
pub(crate) use common::{Common, Completions, Env, Posting, Receiving, Reports, Resources};
pub use error::{CountError, ModifyError, PostError};
pub use info::{CongestionCounters, PostedSend, QpInfo, SendQueueInfo};
pub use injected::{Completing, CompletionFaults, Queue, may_be_received};
pub(crate) use note::Note;
pub use note::{Failure, Loss, Part, Reason, Recovery, Timer, WindowCause};
pub(crate) use packet::Built;
pub(crate) use read::Room;
pub use retry::AckTimer;
pub use state::{EDGES, QpType, State, is_legal};
pub use update::{Attribute, PathMigration, QpUpdate, optional_attributes};

use alloc::vec::Vec;

use crate::{
    congestion::{Rate, WindowConfig},
    event::{Disposition, DropReason, Event},
    gids::Path,
    mem::AccessError,
    time::Instant,
    wire::{NetHeader, Operation, Packet, Service},
    work::{
        AbandonedRequests, Cause, CountedOps, Data, Half, RecvWr, SendOp, SendWqe, SendWr, WcError,
        WcStatus,
    },
};
use congestion::Congestion;
use reliability::Reliability;
use requester::Requester;
use responder::{Outcome, Responder};

/// A queue pair.
pub(crate) struct Qp {
    pub(crate) common: Common,
    requester: Requester,
    responder: Responder,
    congestion: Congestion,
    rate: Rate,
    turn: Turn,
    /// Of the datagram that was built last.
    datagram_path: Option<Path>,
    reliability: Reliability,
    /// True if a packet of the peer has arrived since RTR.
    established: bool,
    /// In SQD: whether the send queue has drained, and whether someone wants to know.
    drained: bool,
    drain_event: bool,
    /// In ERR: what is still to be done on the way there.
    flushing: Option<Flushing>,
}

/// Rest of the work of entering ERR.
#[derive(Clone, Copy, Debug)]
struct Flushing {
    /// [`Event::LastWqeReached`] is raised at the end.
    last_wqe: bool,
}

/// Number of requests that are flushed at once, at most: a queue may hold thousands.
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

    // Posting.

    /// Checks that a request can be posted after `others` that are to be posted before it.
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
        // other operations that the service does not have fail in their turn, as on adapters
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
            self.requester.push(wqe); // behind those that are still to be flushed, if any
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

    /// Takes all requests; none of them completes.
    pub(crate) fn give_up(&mut self) -> AbandonedRequests {
        AbandonedRequests { sends: self.requester.give_up(), recvs: self.responder.give_up() }
    }

    // The world.

    /// Takes a packet whose destination, source and ICRC have been checked.
    pub(crate) fn handle(
        &mut self,
        net: &NetHeader,
        packet: &Packet<'_>,
        length: usize,
        env: &mut Env<'_>,
    ) -> Disposition {
        if net.is_congested() {
            self.congestion.count_mark();
        }
        if (net.is_congested() || env.congested) && !packet.payload.is_empty() {
            self.congestion.owe(env.now, env.resources.congestion.np_min_time_between_cnps);
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
        match self.end_receive(received, env) {
            Ok(()) => Disposition::Executed,
            Err(reason) => Disposition::Dropped(reason),
        }
    }

    /// A receive request that has failed ends the queue pair.
    fn end_receive(
        &mut self,
        received: Result<(), Refused>,
        env: &mut Env<'_>,
    ) -> Result<(), DropReason> {
        match received {
            Ok(()) => Ok(()),
            Err(Refused::Dropped(reason)) => Err(reason),
            Err(Refused::Failed) => {
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

    /// A packet of the peer comes through memory of this host, or through a network.
    pub(crate) const fn record_way(&mut self, by_memory: bool) {
        self.requester.portions.record_way(by_memory);
    }

    /// The peer tells that our packets meet congestion.
    pub(crate) fn handle_congestion(&mut self, env: &mut Env<'_>) {
        if !self.congestion.on_cnp(env.now, env.resources.congestion.np_min_time_between_cnps) {
            return;
        }
        self.requester.flight.on_notification(env.now);
        env.note(|| Note::Window(WindowCause::Notification));
        if let Some(dcqcn) = &env.resources.congestion.dcqcn {
            self.rate.on_notification(env.now, dcqcn);
        }
    }

    pub(crate) fn handle_timeout(&mut self, env: &mut Env<'_>) {
        self.rate.handle_timeout(env.now);
        self.responder.answers.pace.handle_timeout(env.now);
        self.requester.handle_timeout(env);
        self.settle(env);
    }

    /// Time at which [`handle_timeout`](Self::handle_timeout) is to be called.
    pub(crate) fn deadline(&self) -> Option<Instant> {
        let rates = [self.rate.deadline(), self.responder.answers.pace.deadline()];
        Instant::earliest([self.requester.deadline(), rates[0], rates[1]])
    }

    /// Bytes of the shared budget that its READs have asked for and that are not here yet, and
    /// whether a READ waits for [room](Env::read_room).
    pub(crate) const fn reads(&self) -> (u64, bool) {
        (self.requester.portions.shared(), self.requester.portions.waits())
    }

    /// Bytes of its requests on their way that all queue pairs share, and whether one waits for
    /// [room](Env::send_room).
    pub(crate) const fn flight(&self) -> (u64, bool) {
        (self.requester.flight.shared(), self.requester.flight.waits())
    }

    /// Bytes that may be on their way, and the rate if it is limited.
    pub(crate) fn pace(&self) -> (u64, Option<u64>) {
        let rates = [self.rate.limit(), self.responder.answers.pace.limit()];
        (self.requester.flight.window(), rates.into_iter().flatten().min())
    }

    /// True, once, if something on its way was lost.
    pub(crate) const fn take_lost(&mut self) -> bool {
        self.requester.flight.take_lost()
    }

    // Transmission.

    /// Writes the next packet that is due, without its ICRC, to the start of `slot`.
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
        self.common.peer.path.as_ref()?; // without a peer nothing is sent
        if let Some(built) = self.congestion.build(&self.common, slot) {
            env.reports.counters.cnp_sent += 1;
            env.note(|| Note::Packet(Reason::Congestion));
            return Some(built);
        }
        // behind the only packet of a request an acknowledgement, which is shorter but for messages
        // of hardly a byte, ends the run of datagrams
        let passes = || {
            self.responder.answers.is_acknowledgement()
                && self.requester.has_one_packet(self.common.mtu.bytes())
        };
        if self.turn.requests_first || passes() {
            self.build_request(slot, env).or_else(|| self.build_answer(slot, env))
        } else {
            self.build_answer(slot, env).or_else(|| self.build_request(slot, env))
        }
    }

    /// Path of the packet that was built last.
    pub(crate) const fn path(&self) -> Option<&Path> {
        match self.common.qp_type {
            QpType::Ud => self.datagram_path.as_ref(),
            _ => self.common.peer.path.as_ref(),
        }
    }

    /// False if it has nothing to send, which is seen at once, and nothing to do when it is its
    /// turn.
    pub(crate) fn may_send(&self) -> bool {
        self.requester.may_send() // the first of these is what a long message takes
            || !self.responder.answers.is_empty()
            || self.common.state != State::Rts
            || !self.common.qp_type.is_reliable()
            || self.congestion.is_due()
            || self.is_flushing()
    }

    /// True if requests wait to be sent, for the first time or again.
    pub(crate) fn has_requests(&self) -> bool {
        !self.requester.has_sent_all()
    }

    /// True if an acknowledgement is all that it has to send.
    pub(crate) fn only_acknowledges(&self) -> bool {
        self.responder.answers.is_acknowledgement()
            && self.requester.has_sent_all()
            && !self.congestion.is_due()
            && !self.is_flushing()
    }

    /// Writes the next frame of a queue pair of raw packets to `frame`. `mtu` is that of the
    /// interface. False if there is none now.
    pub(crate) fn build_frame(&mut self, mtu: u32, frame: &mut Vec<u8>, env: &mut Env<'_>) -> bool {
        if self.is_flushing() {
            self.flush(env);
        }
        let built = raw::build(&self.common, &mut self.requester, mtu, frame, env);
        self.settle(env);
        built
    }

    /// True if a queue pair of raw packets has something more to do when it is its turn.
    pub(crate) fn has_frames(&self) -> bool {
        self.is_flushing()
            || self.common.state == State::Rts && self.requester.queue.oldest().is_some()
    }

    /// Takes a frame that was steered to it, with the tag of its flow.
    pub(crate) fn handle_frame(
        &mut self,
        bytes: &[u8],
        flow_tag: u32,
        env: &mut Env<'_>,
    ) -> Result<(), DropReason> {
        let received = raw::receive(&self.common, &mut self.responder, bytes, flow_tag, env);
        self.end_receive(received, env)
    }

    /// True if the next answer is the last packet of a long READ and may wait for one transmit
    /// buffer. The first packet of the next response is as long, and can share its run.
    pub(crate) fn hold_back(&mut self) -> bool {
        self.responder.answers.hold_back()
    }

    fn build_answer(&mut self, slot: &mut [u8], env: &mut Env<'_>) -> Option<Built> {
        if env.has_unplaced(self.common.flow(Half::Responder)) {
            return None;
        }
        loop {
            let answers = &mut self.responder.answers;
            if let Some(length) =
                answers.write_acknowledgement(&self.common, slot, &mut env.reports.notes)
            {
                return Some(Built::new(length));
            }
            let has_data = self.responder.answers.next_has_data();
            if has_data
                && !(self.rate.allows(env.now, env.resources.congestion.dcqcn.as_ref())
                    && self.responder.answers.pace.allows(env.now))
            {
                return None;
            }
            let response = self.responder.answers.next(&self.common)?;
            match response.write(slot) {
                Ok(length) => {
                    env.note(|| Note::Packet(response.reason()));
                    if has_data {
                        self.count_data(Kind::Answer, 1, length as u64, env);
                        self.responder.answers.pace.on_sent(length as u64, env.now);
                        self.responder.answers.behind.complete_answered(&self.common, env);
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
                        self.responder.answers.fail(&response, error, msn, &self.common)
                    {
                        self.common.completions.counters.count(CountedOps::REMOTE_READ, None);
                        if matches!(event, Event::QpAccessError(..)) {
                            env.reports.counters.refused_accesses += 1;
                        }
                        env.reports.events.push_back(event);
                        self.enter_error(response.failure(error), env);
                    } else {
                        self.responder.answers.behind.complete_answered(&self.common, env);
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
                self.requester.wait_for_no_room();
                return None;
            }
            let Some(request) = self.requester.next(&mut self.common, env) else {
                self.settle(env);
                return None;
            };
            match self.requester.write(&request, &self.common, slot)? {
                Ok(length) => {
                    env.note(|| Note::Packet(self.requester.reason(&request)));
                    self.count_data(Kind::Request, 1, length as u64, env);
                    if request.ends
                        && self.common.qp_type == QpType::Uc
                        && let Some(wqe) = self.requester.take_sent()
                    {
                        self.common.complete_send(&wqe, Ok(0), env);
                    }
                    let rxe_flush =
                        self.common.quirks.rxe_flush && self.requester.is_flush(&request);
                    return Some(Built { rxe_flush, ..Built::new(length) });
                }
                Err(error) => {
                    self.requester.fail(request.at.number, error);
                    self.settle(env);
                }
            }
        }
    }

    /// Counts sent packets of one kind, with their bytes in all.
    fn count_data(&mut self, kind: Kind, packets: u32, bytes: u64, env: &Env<'_>) {
        self.turn.note(kind, packets);
        if self.common.qp_type.is_reliable() {
            self.rate.on_sent(bytes, env.now, env.resources.congestion.dcqcn.as_ref());
        }
    }

    // Consequences.

    /// Brings the state in line after anything that may have failed the oldest request or emptied
    /// the send queue.
    fn settle(&mut self, env: &mut Env<'_>) {
        match self.common.state {
            State::Rts | State::Sqd => {}
            _ => return,
        }
        if let Some((wqe, error)) = self.requester.take_failed() {
            self.common.complete_send(&wqe, Err(error), env);
            if self.common.qp_type.is_reliable() {
                self.fail(Failure::Request(error), env);
            } else {
                self.enter(State::Sqe, Failure::Request(error), env);
                self.flush_sends(env);
            }
        } else if self.common.state == State::Sqd && !self.drained && self.requester.is_quiet() {
            self.drained = true;
            if self.drain_event {
                env.reports.events.push_back(Event::SendQueueDrained(self.common.qpn));
            }
        }
    }

    /// Goes where a request has it go that has failed on request.
    pub(crate) fn fail_completion(&mut self, queue: Queue, error: WcError, env: &mut Env<'_>) {
        match queue {
            _ if matches!(self.common.state, State::Reset | State::Err) => {}
            Queue::Receive => self.fail(Failure::Receive, env),
            Queue::Send if self.common.qp_type.is_reliable() => {
                self.fail(Failure::Request(error), env);
            }
            Queue::Send => {
                self.enter(State::Sqe, Failure::Request(error), env);
                self.flush_sends(env);
            }
        }
    }

    /// A copy to memory behind a driver has failed: what the peer was not told to be done is not.
    pub(crate) fn fail_copy(&mut self, half: Half, error: AccessError, env: &mut Env<'_>) {
        if matches!(self.common.state, State::Reset | State::Err) {
            return;
        }
        if half == Half::Requester || !self.common.qp_type.is_reliable() {
            let status = WcStatus::LocProtErr;
            let error = WcError { status, cause: Cause::Access(error) };
            return self.fail(Failure::Request(error), env);
        }
        self.responder.answers.forget();
        let outcome = self.responder.refuse_unplaced(error, &self.common, env);
        self.conclude(outcome, env);
    }

    /// Enters ERR, and answers nothing more.
    pub(crate) fn fail(&mut self, failure: Failure, env: &mut Env<'_>) {
        self.responder.answers.forget();
        self.enter_error(failure, env);
    }

    /// Enters a state that no transition of the program has to ask for.
    fn enter(&mut self, to: State, failure: Failure, env: &mut Env<'_>) {
        let from = core::mem::replace(&mut self.common.state, to);
        env.note(|| Note::State { from, to, failure });
    }

    /// Enters ERR: everything posted completes as flushed, sends first, in order (10.3.1.7).
    /// Answers that wait still leave: the last of them may be the NAK that tells the peer why. What
    /// is left of many requests is flushed in later turns.
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

    /// Flushes the next requests, if any are left.
    fn flush(&mut self, env: &mut Env<'_>) {
        let Some(Flushing { last_wqe }) = self.flushing else { return };
        for _ in 0..FLUSHED_AT_ONCE {
            if let Some(wqe) = self.requester.flush() {
                self.common.complete_send(&wqe, Err(WcError::FLUSHED), env);
                continue;
            }
            self.responder.answers.behind.flush(&self.common, env);
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

    /// True if requests are still to be flushed.
    pub(crate) const fn is_flushing(&self) -> bool {
        self.flushing.is_some()
    }

    fn flush_sends(&mut self, env: &mut Env<'_>) {
        while let Some(wqe) = self.requester.flush() {
            self.common.complete_send(&wqe, Err(WcError::FLUSHED), env);
        }
    }
}

/// Packets of the one kind after which it is the other's turn, if it has any.
const ALTERNATE: u32 = 16;

/// Packets with data, or requests for it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Kind {
    Answer,
    Request,
}

/// Turns of answers and requests: a peer that asks for much does not keep this side's requests from
/// leaving.
#[derive(Debug, Default)]
struct Turn {
    requests_first: bool,
    in_row: u32,
}

impl Turn {
    fn note(&mut self, kind: Kind, packets: u32) {
        if (kind == Kind::Request) == self.requests_first {
            self.in_row += packets;
            if self.in_row < ALTERNATE {
                return;
            }
            self.requests_first = !self.requests_first;
        }
        self.in_row = 0;
    }
}
