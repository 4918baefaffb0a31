//! The adapter: object tables, packets to and from queue pairs, and the send scheduler.
//!
//! The owner of link and clock calls, under one lock:
//!
//! - commands (`create_qp`, `post_send`, …);
//! - [`handle_datagram`](Adapter::handle_datagram) per datagram;
//!   [`handle_timeout`](Adapter::handle_timeout) at the time of
//!   [`poll_timeout`](Adapter::poll_timeout);
//! - after each, in order: [`poll_transmit`](Adapter::poll_transmit) until the buffer stays empty
//!   and [has no more](TransmitBuffer::may_have_more); [`poll_event`](Adapter::poll_event) and
//!   [`poll_cm_event`](Adapter::poll_cm_event) until empty; [`poll_timeout`](Adapter::poll_timeout)
//!   once.
//!
//! [Completion queues](crate::work::CompletionQueue) are polled without the adapter.

mod budget;
mod completion;
mod config;
mod connect;
mod counting;
mod destinations;
mod error;
mod lateness;
mod multicast;
mod objects;
mod port;
mod queue_pairs;
mod raw_packets;
mod receive;
mod record;
mod recorder;
mod sending;
mod shards;
mod tables;
mod timers;
mod transmit;
mod turns;

use alloc::{boxed::Box, collections::BTreeMap, vec::Vec};

use rand_chacha::ChaCha12Rng;
use rand_core::{RngCore, SeedableRng};

pub use crate::{
    gids::{GidTable, RoceV1, SourcePort},
    mem::PdId,
    pkeys::{PKeyTable, PKeyTableSize},
};
pub use config::{AdapterConfig, Limits, SendQueueMemory};
pub use connect::AcceptError;
pub use error::{ObjectError, ObjectKind, ObjectMismatch, ObjectSize};
pub use multicast::McastError;
pub use receive::{IcrcCheck, Receipt};
pub use shards::ReleasedSrq;
pub use transmit::{Transmit, TransmitBuffer, TransmitLimits};

use crate::{
    addr::Gid,
    cm::Connections,
    event::{Counters, Event},
    ids::Qpn,
    mem::RegionTable,
    psn::Psn,
    qp::{
        Built, Common, Credits, Env, Init, ModifyError, PostError, Posting, Qp, QpType, QpUpdate,
        RdAtomicLimits, Reports, Resources, Rtr, Rts, State,
    },
    time::Instant,
    trace::{Call, Trace},
    wire::ICRC_LEN,
    work::{Half, RecvWr, SendWr, SrqTable},
};
use lateness::Lateness;
use queue_pairs::QueuePairs;
use recorder::Recorder;
use sending::Sending;
use tables::Tables;
use turns::{QUANTUM, Turn};

/// See the [module's documentation](self).
#[derive(derive_more::Debug)]
#[debug("Adapter {{ {:?}, {} queue pairs, .. }}", resources.gids.entries(), qps.len())]
pub struct Adapter {
    rng: ChaCha12Rng,
    limits: Limits,
    resources: Resources,
    reports: Reports,
    tables: Tables,
    qps: QueuePairs,
    /// Members of multicast groups.
    groups: BTreeMap<Gid, Vec<usize>>,
    sending: Sending,
    cm: Connections,
    late: Lateness,
    header_prediction: bool,
    port_active: bool,
    failed: bool,
    recorder: Option<Box<Recorder>>,
}

impl Adapter {
    /// Adapter with an empty GID table.
    #[must_use]
    pub fn new(config: AdapterConfig) -> Self {
        Self::with_trace(config, Trace::default())
    }

    /// Adapter with a [record](crate::trace).
    #[must_use]
    pub fn with_trace(mut config: AdapterConfig, trace: Trace) -> Self {
        let recorder = Recorder::new(trace);
        let mut reports = Reports::default();
        if recorder.is_some() {
            reports.decisions.begin();
        }
        config.limits = config.limits.that_hold(&config.qpns);
        let resources = Resources {
            regions: RegionTable::new(config.limits.max_mr, config.equal_keys),
            gids: GidTable::new(config.port_mtu, config.source_port),
            pkeys: config.pkeys,
            srqs: SrqTable::default(),
            rd_atomic: RdAtomicLimits::default(),
            ack_timer: config.limits.ack_timer,
            congestion: config.congestion,
            posting: Posting {
                write_only_packets: config.write_only_packets,
                max_read_sge: config.limits.max_read_sge,
                atomics: config.limits.atomics,
                early_posts: config.limits.early_posts,
            },
        };
        Self {
            rng: ChaCha12Rng::from_seed(config.seed),
            limits: config.limits,
            resources,
            reports,
            tables: Tables::default(),
            qps: QueuePairs::new(config.qpns),
            groups: BTreeMap::new(),
            sending: Sending::new(config.read_budget, config.congestion.window),
            cm: Connections::new(config.cm, config.guid),
            late: Lateness::new(config.late),
            header_prediction: config.header_prediction,
            port_active: true,
            failed: false,
            recorder,
        }
    }

    /// Limits outstanding READs and atomics (`max_qp_init_rd_atom`, `max_qp_rd_atom`) to
    /// [`MAX_RD_ATOMIC`](crate::qp::MAX_RD_ATOMIC) or less.
    pub fn limit_rd_atomic(&mut self, requester: u8, responder: u8) {
        let RdAtomicLimits { requester: most, .. } = RdAtomicLimits::default();
        self.resources.rd_atomic =
            RdAtomicLimits { requester: requester.min(most), responder: responder.min(most) };
    }

    /// Totals since creation.
    #[must_use]
    pub const fn counters(&self) -> &Counters {
        &self.reports.counters
    }

    /// Granted limits, at most those configured.
    #[must_use]
    pub const fn limits(&self) -> &Limits {
        &self.limits
    }

    /// GID table.
    #[must_use]
    pub const fn gids(&self) -> &GidTable {
        &self.resources.gids
    }

    /// P_Key table.
    #[must_use]
    pub const fn pkeys(&self) -> &PKeyTable {
        &self.resources.pkeys
    }

    /// Random initial PSN.
    pub fn random_psn(&mut self) -> Psn {
        Psn::new(self.rng.next_u32())
    }

    // Transitions (`ibv_modify_qp`); an error changes nothing.

    /// RESET→INIT and INIT→INIT.
    pub fn to_init(&mut self, qpn: Qpn, init: &Init) -> Result<(), ModifyError> {
        self.modify(Instant::ZERO, qpn, Call::Modify(State::Init), |qp, env| qp.to_init(init, env))
    }

    /// INIT→RTR.
    pub fn to_rtr(&mut self, qpn: Qpn, rtr: &Rtr) -> Result<(), ModifyError> {
        self.to_rtr_with(qpn, rtr, &QpUpdate::NONE)
    }

    /// INIT→RTR with attribute changes.
    pub fn to_rtr_with(
        &mut self,
        qpn: Qpn,
        rtr: &Rtr,
        changes: &QpUpdate,
    ) -> Result<(), ModifyError> {
        self.modify(Instant::ZERO, qpn, Call::Modify(State::Rtr), |qp, env| {
            qp.to_rtr(rtr, changes, env)
        })
    }

    /// RTR→RTS; SQD→RTS and SQE→RTS with [`Rts::Resume`].
    pub fn to_rts(&mut self, now: Instant, qpn: Qpn, rts: &Rts) -> Result<(), ModifyError> {
        self.to_rts_with(now, qpn, rts, &QpUpdate::NONE)
    }

    /// As [`to_rts`](Self::to_rts), with attribute changes; RTS→RTS with [`Rts::Resume`].
    pub fn to_rts_with(
        &mut self,
        now: Instant,
        qpn: Qpn,
        rts: &Rts,
        changes: &QpUpdate,
    ) -> Result<(), ModifyError> {
        self.modify(now, qpn, Call::Modify(State::Rts), |qp, env| qp.to_rts(rts, changes, env))
    }

    /// Changes attributes in INIT, RTS or SQD.
    pub fn update(
        &mut self,
        now: Instant,
        qpn: Qpn,
        changes: &QpUpdate,
    ) -> Result<(), ModifyError> {
        self.modify(now, qpn, Call::Update, |qp, env| qp.update(changes, env))
    }

    /// RTS→SQD. `notify` requests [`Event::SendQueueDrained`].
    pub fn to_sqd(&mut self, now: Instant, qpn: Qpn, notify: bool) -> Result<(), ModifyError> {
        self.modify(now, qpn, Call::Modify(State::Sqd), |qp, env| qp.to_sqd(notify, env))
    }

    /// Any state but RESET→ERR; flushes posted requests.
    pub fn to_error(&mut self, now: Instant, qpn: Qpn) -> Result<(), ModifyError> {
        self.modify(now, qpn, Call::Modify(State::Err), Qp::to_error)
    }

    /// Any state→RESET; drops posted requests and unbinds type 2 windows.
    pub fn to_reset(&mut self, qpn: Qpn) -> Result<(), ModifyError> {
        self.modify(Instant::ZERO, qpn, Call::Modify(State::Reset), |qp, env| {
            for half in [Half::Requester, Half::Responder] {
                env.place_all_of(qp.common.half(half));
            }
            qp.to_reset(&mut env.resources.srqs);
            if core::mem::take(&mut qp.common.binds) {
                // the next peer must not use this peer's windows
                env.resources.regions.unbind_all(qpn);
            }
            Ok(())
        })
    }

    fn modify(
        &mut self,
        now: Instant,
        qpn: Qpn,
        call: Call,
        change: impl FnOnce(&mut Qp, &mut Env<'_>) -> Result<(), ModifyError>,
    ) -> Result<(), ModifyError> {
        let call = || call;
        self.recorded(now, qpn, call, |adapter| {
            let index = adapter.qps.index_of(qpn).ok_or(ModifyError::UnknownQp)?;
            let from = adapter.qps[index].common.state;
            let changed = adapter.with_qp(index, now, change);
            adapter.record_transition(now, index, from);
            let Common { peer, qp_type, .. } = &adapter.qps[index].common;
            let peer = peer.path.filter(|_| qp_type.is_reliable()).map(|path| path.net.dst);
            if let Some(next) = adapter.sending.destinations.assign(index, peer) {
                adapter.make_ready(next);
            }
            changed
        })
    }

    /// Posts one send request (`ibv_post_send`).
    pub fn post_send(&mut self, now: Instant, qpn: Qpn, wr: &SendWr) -> Result<(), PostError> {
        let call = || Call::post_send(wr);
        self.recorded(now, qpn, call, |adapter| {
            let index = adapter.qps.find(qpn).ok_or(PostError::UnknownQp)?;
            let (qp, mut env) = adapter.split(index, now);
            let result = qp.post_send(wr, &mut env);
            adapter.record_decisions(now, index);
            adapter.make_ready(index);
            adapter.check_cqs(now);
            result
        })
    }

    /// Removes unpolled completions, as NIC drivers do on RESET and `ibv_destroy_qp`.
    pub fn discard_completions(&mut self, qpn: Qpn) {
        if let Some(index) = self.qps.index_of(qpn) {
            self.qps[index].common.discard_completions();
        }
    }

    /// Checks posting of `wr` after `others` more requests.
    pub fn check_send(&self, qpn: Qpn, wr: &SendWr, others: usize) -> Result<(), PostError> {
        let index = self.qps.index_of(qpn).ok_or(PostError::UnknownQp)?;
        self.qps[index].check_send(wr, others)
    }

    /// Posts one receive request (`ibv_post_recv`).
    pub fn post_recv(&mut self, now: Instant, qpn: Qpn, wr: &RecvWr) -> Result<(), PostError> {
        let call = || Call::post_recv(wr);
        self.recorded(now, qpn, call, |adapter| {
            let index = adapter.qps.find(qpn).ok_or(PostError::UnknownQp)?;
            let (qp, mut env) = adapter.split(index, now);
            let result = qp.post_recv(wr, &mut env);
            adapter.record_decisions(now, index);
            adapter.check_cqs(now);
            result
        })
    }

    /// Handles a bounded number of expired timers.
    pub fn handle_timeout(&mut self, now: Instant) {
        let Self { cm, qps, .. } = self;
        cm.handle_timeout(now, &|own, peer| {
            let info = qps.get(qps.index_of(own)?)?.info();
            let hears = matches!(info.state, State::Rtr | State::Rts | State::Sqd | State::Sqe);
            (hears && info.dest_qpn == peer).then_some(info.rq_psn)
        });
        let mut left = timers::PORTION;
        while let Some(index) = self.qps.pop_due(now, &mut left) {
            let counted = self.counted_before(index);
            self.with_qp(index, now, Qp::handle_timeout);
            self.count_since(counted);
        }
        while let Some(index) = self.tables.pop_due_cq(now, &mut left) {
            if let Some(cq) = self.tables.cqs.get(index).filter(|cq| cq.expire(now)) {
                self.reports.events.push_back(Event::Completion(cq.id()));
            }
        }
        self.handle_late(now);
    }

    /// Time to call [`handle_timeout`](Self::handle_timeout), possibly before a timer expires.
    pub fn poll_timeout(&mut self) -> Option<Instant> {
        let (qps, cqs) = (self.qps.next_deadline(), self.tables.next_cq_deadline());
        Instant::earliest([qps, cqs, self.cm.poll_timeout(), self.late.deadline()])
    }

    /// False if nothing is due.
    pub fn is_due(&mut self, now: Instant) -> bool {
        !self.sending.turns.is_empty()
            || !self.reports.events.is_empty()
            || self.cm.is_due()
            || self.late.is_on()
            || self.poll_timeout().is_some_and(|due| due <= now)
    }

    /// True if events wait.
    #[must_use]
    pub fn has_events(&self) -> bool {
        !self.reports.events.is_empty() || self.late.has_events()
    }

    /// Next event.
    pub fn poll_event(&mut self) -> Option<Event> {
        self.late.event(&mut self.reports.events)
    }

    /// Fills the cleared `buffer` with due packets. Send and repeat until the buffer stays empty
    /// and [has no more](TransmitBuffer::may_have_more).
    pub fn poll_transmit(&mut self, now: Instant, buffer: &mut TransmitBuffer) {
        if !self.transmit_mads(now, buffer) || self.sending.turns.is_empty() {
            return;
        }
        if self.resources.gids.has_flow_ports() {
            // packets from one source port can share a run
            let qps = &self.qps;
            self.sending.turns.sort_fresh_by_key(VISITS, |index| {
                let path = qps.get(index)?.common.peer.path?;
                Some((path.net.src_port, path.net.dst))
            });
        }
        let mut visits = VISITS;
        while visits > 0
            && let Some(turn) = self.sending.begin()
        {
            visits -= 1;
            let index = turn.index;
            if !self.qps.contains(index) {
                self.sending.end(turn, 0, false);
                continue;
            }
            let (sent, ends) = self.transmit_singles(now, &turn, buffer);
            if ends {
                self.sending.end(turn, sent, false);
                continue;
            }
            let counted = self.counted_before(index);
            let mut bytes = sent;
            let (has_more, full) = loop {
                if bytes >= turn.bytes {
                    break (true, false);
                }
                if !self.qps[index].may_send() {
                    break (false, false);
                }
                if bytes > 0 && buffer.has_runs() && self.qps[index].hold_back() {
                    buffer.hold_back();
                    break (true, true);
                }
                let Some(slot) = buffer.slot() else { break (true, true) };
                let (qp, mut env) = self.split_to_send(index, now);
                let Some(built) = qp.build(slot, &mut env) else {
                    let is_flushing = qp.is_flushing();
                    if is_flushing {
                        visits = 0; // flushing is enough work for one call
                    }
                    break (is_flushing, false);
                };
                let Some(path) = self.qps[index].path() else { break (false, false) };
                buffer.commit(&built, path, false);
                self.reports.counters.count_sent(1, built.length + ICRC_LEN);
                self.reports.counters.sent_multicast_packets +=
                    u64::from(path.net.dst.is_multicast());
                self.record_sent(now, index, buffer);
                bytes += (built.length as u64).max(LEAST_PART);
                bytes +=
                    self.transmit_middles(now, index, turn.bytes.saturating_sub(bytes), buffer);
            };
            self.record_decisions(now, index);
            if full {
                self.sending.interrupt(turn, bytes);
            } else {
                self.sending.end(turn, bytes, has_more);
            }
            self.reschedule(index, now);
            self.count_since(counted);
            self.check_cqs(now);
            if full {
                return;
            }
        }
        if !self.sending.turns.is_empty() {
            buffer.hold_back();
        }
    }

    /// Returns the bytes sent, and whether nothing else is to send.
    fn transmit_singles(
        &mut self,
        now: Instant,
        turn: &Turn,
        buffer: &mut TransmitBuffer,
    ) -> (u64, bool) {
        if !self.predicts() {
            return (0, false);
        }
        let Self { qps, sending, resources, reports: Reports { counters, .. }, .. } = self;
        let (qp, dcqcn) = (&mut qps[turn.index], resources.congestion.dcqcn.as_ref());
        let credits = |taken| sending.destinations.credits(turn.index, taken);
        let (mut part, mut requests) = (0, false);
        while part < turn.bytes
            && let Some(slot) = buffer.slot()
            && let Some(single) = qp.build_single(slot, credits, now, dcqcn)
            && let Some(path) = &qp.common.peer.path
        {
            let built = Built::new(single.length);
            buffer.commit(&built, path, part > 0);
            counters.count_sent(1, single.length + ICRC_LEN);
            counters.sent_multicast_packets += u64::from(path.net.dst.is_multicast());
            part += (single.length as u64).max(LEAST_PART);
            requests |= single.is_request;
            if !qp.may_send() {
                if requests {
                    self.reschedule(turn.index, now);
                }
                return (part, part < turn.bytes);
            }
        }
        (part, false)
    }

    /// Returns the bytes sent.
    fn transmit_middles(
        &mut self,
        now: Instant,
        index: usize,
        left: u64,
        buffer: &mut TransmitBuffer,
    ) -> u64 {
        let length = self.qps[index].middle_length().filter(|_| self.predicts());
        let Some(length) = length else { return 0 };
        let part = (length as u64).max(LEAST_PART);
        let most = left.div_ceil(part).min(buffer.room_for(length + ICRC_LEN) as u64);
        let (qp, env) = self.split_to_send(index, now);
        let Some(run) = qp.take_middles(most as u32, length, &env) else { return 0 };
        let Self { qps, reports, .. } = self;
        let qp = &mut qps[index];
        let Some(path) = qp.common.peer.path else { return 0 };
        let packet = Built::new(length);
        let mut built = 0;
        while built < run.count
            && let Some(slot) = buffer.slot()
            && qp.build_middle(&run, built, slot)
        {
            buffer.commit(&packet, &path, built > 0);
            built += 1;
        }
        let sent = u64::from(built);
        reports.counters.count_sent(sent, length + ICRC_LEN);
        sent * part
    }

    /// True if only a few acknowledgements are due, which may wait for a post.
    pub fn only_acknowledges(&self) -> bool {
        let acknowledges = |index| self.qps.get(index).is_some_and(Qp::only_acknowledges);
        !self.cm.has_transmit()
            && !self.sending.turns.is_empty()
            && self.sending.turns.few_fresh(FEW).is_some_and(|mut fresh| fresh.all(acknowledges))
    }

    fn predicts(&self) -> bool {
        self.header_prediction && self.recorder.is_none() && self.is_plain()
    }

    pub(super) fn is_plain(&self) -> bool {
        self.qps.counted.is_empty() && !self.late.is_on()
    }

    fn split(&mut self, index: usize, now: Instant) -> (&mut Qp, Env<'_>) {
        let qp = &mut self.qps[index];
        let mut env = Env::new(now, &mut self.resources, &mut self.reports);
        env.late = self.late.at(now);
        (qp, env)
    }

    fn split_to_send(&mut self, index: usize, now: Instant) -> (&mut Qp, Env<'_>) {
        let qp = &self.qps[index];
        let headroom = qp.has_requests().then(|| self.sending.headroom(index, qp));
        let (qp, mut env) = self.split(index, now);
        (env.read_credits, env.send_credits) = headroom.unwrap_or((Credits::NONE, Credits::NONE));
        (qp, env)
    }

    fn make_ready(&mut self, index: usize) {
        if self.sending.frames.mtu.is_some()
            && let Some(qp) = self.qps.get(index)
            && qp.common.qp_type == QpType::RawPacket
        {
            if qp.has_frames() {
                self.sending.frames.add(index);
            }
            return;
        }
        if self.qps.get(index).is_some_and(Qp::may_send) {
            self.sending.make_ready(index);
        }
    }

    /// Sets the timer, and lets queue pairs send that waited for credits.
    pub(super) fn reschedule(&mut self, index: usize, now: Instant) {
        let qp = &mut self.qps[index];
        let deadline = qp.deadline();
        let next = self.sending.record_headroom(index, qp, now);
        self.qps.timers.set(index, deadline);
        next.into_iter().flatten().for_each(|next| self.make_ready(next));
    }

    fn with_qp<R>(
        &mut self,
        index: usize,
        now: Instant,
        act: impl FnOnce(&mut Qp, &mut Env<'_>) -> R,
    ) -> R {
        let (qp, mut env) = self.split(index, now);
        let result = act(qp, &mut env);
        self.record_decisions(now, index);
        self.make_ready(index);
        self.reschedule(index, now);
        self.check_cqs(now);
        result
    }
}

/// Queue pairs whose acknowledgements may wait.
const FEW: usize = 64;

/// Queue pairs visited per transmit buffer.
const VISITS: usize = 128;

/// Least bytes charged: a turn has at most 64 packets.
const LEAST_PART: u64 = QUANTUM / 64;
