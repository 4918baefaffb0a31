//! An adapter: the tables of objects, the way of packets to and from queue pairs, and the order of sending.
//!
//! It does nothing by itself. Someone who owns a link and a clock calls, under one lock:
//!
//! * commands (`create_qp`, `post_send`, …) when the program wants something;
//! * [`handle_datagram`](Adapter::handle_datagram) for each datagram that arrives, and
//!   [`handle_timeout`](Adapter::handle_timeout) when the time of [`poll_timeout`](Adapter::poll_timeout) has come;
//! * after any of these, in this order: [`poll_transmit`](Adapter::poll_transmit) until it yields nothing more,
//!   [`poll_event`](Adapter::poll_event) until it is empty, and [`poll_timeout`](Adapter::poll_timeout) once.
//!
//! Completions go straight to the [`CompletionQueue`]s, which their owners poll without the adapter.

mod gids;
mod hash;
mod timers;
mod transmit;

use alloc::{collections::VecDeque, sync::Arc, vec::Vec};

use hashbrown::HashMap;
use rand_chacha::ChaCha12Rng;
use rand_core::{RngCore, SeedableRng};
use slab::Slab;
use thiserror::Error;

pub use gids::{GidTable, SourcePort};
pub(crate) use hash::IdHasher;
pub use transmit::{Transmit, TransmitBuffer, TransmitLimits};

use crate::{
    addr::{Gid, Mtu, PKey, Qpn},
    event::{Counters, Disposition, DropReason, Event},
    mem::{MrAttr, Region, RegionTable, RegisterError},
    psn::Psn,
    qp::{Common, Env, Init, ModifyError, PostError, Qp, QpInfo, QpInit, Rtr, Rts, State},
    time::Instant,
    wire::{IcrcMatch, NetHeader, Packet, Service, verify_icrc},
    work::{CompletionQueue, CqId, RecvWr, SendWr, SharedQueue, SrqAttr, SrqError, SrqId, SrqInfo},
};
use timers::Timers;

/// Names a protection domain of an adapter.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct PdId(pub(crate) u32);

/// How much of everything an adapter holds, and the largest sizes it grants.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct Limits {
    /// Protection domains.
    pub max_pd: usize,
    /// Memory regions.
    pub max_mr: usize,
    /// Completion queues.
    pub max_cq: usize,
    /// Completions in one queue.
    pub max_cqe: usize,
    /// Queue pairs.
    pub max_qp: usize,
    /// Shared receive queues.
    pub max_srq: usize,
    /// Requests in one work queue.
    pub max_qp_wr: u32,
    /// Elements in one request's list.
    pub max_sge: u32,
    /// Inline bytes of one request.
    pub max_inline_data: u32,
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            max_pd: 1 << 16,
            max_mr: 1 << 19,
            max_cq: 1 << 16,
            max_cqe: 1 << 20,
            max_qp: 1 << 17,
            max_srq: 1 << 16,
            max_qp_wr: 1 << 15,
            max_sge: 32,
            max_inline_data: 512,
        }
    }
}

/// What an adapter is made from.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct AdapterConfig {
    /// Where all its random numbers come from: keys, queue pair numbers, PSNs. Must be unpredictable outside of tests.
    pub seed: [u8; 32],
    /// The most payload that the link carries in a packet.
    pub port_mtu: Mtu,
    /// UDP source ports of what it sends.
    pub source_port: SourcePort,
    /// Queue pair numbers are drawn from here; 2..=0xFFFFFE by default. A narrower range lets several adapters share an
    /// address.
    pub qpns: core::ops::RangeInclusive<u32>,
    /// Sizes.
    pub limits: Limits,
}

impl AdapterConfig {
    /// An adapter with this seed, everything else at its default: path MTU 4,096, a source port per flow.
    #[must_use]
    pub fn new(seed: [u8; 32]) -> Self {
        Self { seed, port_mtu: Mtu::B4096, source_port: SourcePort::PerFlow, qpns: 2..=0xFF_FFFE, limits: Limits::default() }
    }
}

/// Why an object cannot be made or destroyed. Nothing has changed.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Error)]
pub enum ObjectError {
    /// As many exist as may.
    #[error("no more than {limit} {what} can exist")]
    TooMany {
        /// The kind of object.
        what: &'static str,
        /// How many may exist.
        limit: usize,
    },
    /// A size beyond what the adapter grants, or zero where that makes no sense.
    #[error("{what} must be within {least}..={limit}")]
    Size {
        /// The size.
        what: &'static str,
        /// Its least value.
        least: usize,
        /// Its greatest value.
        limit: usize,
    },
    /// The object does not exist (any more).
    #[error("no such object")]
    Unknown,
    /// Another object still uses it.
    #[error("still in use")]
    InUse,
}

/// See the [module's documentation](self).
pub struct Adapter {
    rng: ChaCha12Rng,
    limits: Limits,
    qpns: core::ops::RangeInclusive<u32>,
    pkey: PKey,
    gids: GidTable,
    pds: Slab<()>,
    cqs: Slab<Arc<CompletionQueue>>,
    srqs: Slab<SharedQueue>,
    regions: RegionTable,
    qps: Slab<Qp>,
    by_qpn: HashMap<Qpn, usize, IdHasher>,
    timers: Timers,
    /// Queue pairs that may have something to send, each once, in the order of their turns.
    ready: VecDeque<usize>,
    is_ready: Vec<bool>,
    counters: Counters,
    events: VecDeque<Event>,
    overrun: Vec<CqId>,
}

impl Adapter {
    /// A new adapter with an empty GID table.
    #[must_use]
    pub fn new(config: AdapterConfig) -> Self {
        Self {
            rng: ChaCha12Rng::from_seed(config.seed),
            limits: config.limits,
            qpns: config.qpns,
            pkey: PKey::DEFAULT,
            gids: GidTable::new(config.port_mtu, config.source_port),
            pds: Slab::new(),
            cqs: Slab::new(),
            srqs: Slab::new(),
            regions: RegionTable::new(config.limits.max_mr),
            qps: Slab::new(),
            by_qpn: HashMap::default(),
            timers: Timers::default(),
            ready: VecDeque::new(),
            is_ready: Vec::new(),
            counters: Counters::default(),
            events: VecDeque::new(),
            overrun: Vec::new(),
        }
    }

    /// Totals since it was made.
    #[must_use]
    pub const fn counters(&self) -> &Counters {
        &self.counters
    }

    /// Its sizes.
    #[must_use]
    pub const fn limits(&self) -> &Limits {
        &self.limits
    }

    /// Its own addresses.
    #[must_use]
    pub const fn gids(&self) -> &GidTable {
        &self.gids
    }

    /// Replaces the GID table. Connected queue pairs keep the addresses that they were connected with.
    pub fn set_gids(&mut self, gids: Vec<Gid>) {
        self.gids.set(gids);
    }

    /// A random PSN, for a connection to start with.
    pub fn random_psn(&mut self) -> Psn {
        Psn::new(self.rng.next_u32())
    }

    // Objects.

    /// Makes a protection domain (`ibv_alloc_pd`).
    ///
    /// # Errors
    /// [`ObjectError::TooMany`].
    pub fn alloc_pd(&mut self) -> Result<PdId, ObjectError> {
        limit("protection domains", self.pds.len(), self.limits.max_pd)?;
        Ok(PdId(self.pds.insert(()) as u32))
    }

    /// Destroys a protection domain (`ibv_dealloc_pd`).
    ///
    /// # Errors
    /// [`ObjectError::InUse`] while a region, a queue pair or a shared receive queue belongs to it; [`ObjectError::Unknown`].
    pub fn dealloc_pd(&mut self, pd: PdId) -> Result<(), ObjectError> {
        if !self.pds.contains(pd.0 as usize) {
            return Err(ObjectError::Unknown);
        }
        let used = self.qps.iter().any(|(_, qp)| qp.common.pd == pd) || self.srqs.iter().any(|(_, srq)| srq.pd == pd);
        if used || self.regions.any_of(pd) {
            return Err(ObjectError::InUse);
        }
        self.pds.remove(pd.0 as usize);
        Ok(())
    }

    /// Registers memory (`ibv_reg_mr`, `ibv_reg_mr_iova`).
    ///
    /// # Errors
    /// See [`RegisterError`].
    pub fn register(&mut self, pd: PdId, attr: MrAttr) -> Result<Arc<Region>, RegisterError> {
        if !self.pds.contains(pd.0 as usize) {
            return Err(RegisterError::UnknownPd);
        }
        self.regions.register(pd, attr, &mut self.rng)
    }

    /// Deregisters memory (`ibv_dereg_mr`). Its keys are dead at once: requests that still use it fail.
    pub fn deregister(&mut self, region: &Region) {
        self.regions.deregister(region);
    }

    /// Makes a completion queue for at least `capacity` completions (`ibv_create_cq`).
    ///
    /// # Errors
    /// [`ObjectError::Size`], [`ObjectError::TooMany`].
    pub fn create_cq(&mut self, capacity: usize) -> Result<Arc<CompletionQueue>, ObjectError> {
        size("completions", capacity, 1, self.limits.max_cqe)?;
        limit("completion queues", self.cqs.len(), self.limits.max_cq)?;
        let entry = self.cqs.vacant_entry();
        let cq = Arc::new(CompletionQueue::new(CqId(entry.key() as u32), capacity));
        entry.insert(cq.clone());
        Ok(cq)
    }

    /// Destroys a completion queue (`ibv_destroy_cq`).
    ///
    /// # Errors
    /// [`ObjectError::InUse`] while a queue pair completes there; [`ObjectError::Unknown`].
    pub fn destroy_cq(&mut self, id: CqId) -> Result<(), ObjectError> {
        if !self.cqs.contains(id.0 as usize) {
            return Err(ObjectError::Unknown);
        }
        if self.qps.iter().any(|(_, qp)| qp.common.send_cq.id() == id || qp.common.recv_cq.id() == id) {
            return Err(ObjectError::InUse);
        }
        self.cqs.remove(id.0 as usize);
        Ok(())
    }

    /// Makes a shared receive queue (`ibv_create_srq`).
    ///
    /// # Errors
    /// [`ObjectError::Size`], [`ObjectError::TooMany`]; [`ObjectError::Unknown`] for a protection domain that does not exist.
    pub fn create_srq(&mut self, pd: PdId, attr: SrqAttr) -> Result<SrqId, ObjectError> {
        size("max_wr", attr.max_wr as usize, 1, self.limits.max_qp_wr as usize)?;
        size("max_sge", attr.max_sge as usize, 0, self.limits.max_sge as usize)?;
        if !self.pds.contains(pd.0 as usize) {
            return Err(ObjectError::Unknown);
        }
        limit("shared receive queues", self.srqs.len(), self.limits.max_srq)?;
        Ok(SrqId(self.srqs.insert(SharedQueue::new(pd, attr)) as u32))
    }

    /// Destroys a shared receive queue (`ibv_destroy_srq`). What is posted there gives no completions any more.
    ///
    /// # Errors
    /// [`ObjectError::InUse`] while a queue pair receives from it; [`ObjectError::Unknown`].
    pub fn destroy_srq(&mut self, id: SrqId) -> Result<(), ObjectError> {
        if !self.srqs.contains(id.0 as usize) {
            return Err(ObjectError::Unknown);
        }
        if self.qps.iter().any(|(_, qp)| qp.common.srq == Some(id)) {
            return Err(ObjectError::InUse);
        }
        self.srqs.remove(id.0 as usize);
        Ok(())
    }

    /// What a shared receive queue tells of itself (`ibv_query_srq`).
    #[must_use]
    pub fn query_srq(&self, id: SrqId) -> Option<SrqInfo> {
        self.srqs.get(id.0 as usize).map(SharedQueue::info)
    }

    /// Sets the limit below which [`Event::SrqLimitReached`] is raised, once (`ibv_modify_srq` with `IBV_SRQ_LIMIT`). If there
    /// are fewer requests already, it is raised with the next that is taken.
    ///
    /// # Errors
    /// [`SrqError::Limit`] beyond the queue's size; [`SrqError::UnknownSrq`].
    pub fn set_srq_limit(&mut self, id: SrqId, limit: u32) -> Result<(), SrqError> {
        let srq = self.srqs.get_mut(id.0 as usize).ok_or(SrqError::UnknownSrq)?;
        if limit > srq.queue.capacity() {
            return Err(SrqError::Limit(srq.queue.capacity()));
        }
        srq.limit = limit;
        Ok(())
    }

    /// Changes how many requests it holds (`ibv_modify_srq` with `IBV_SRQ_MAX_WR`).
    ///
    /// # Errors
    /// [`SrqError::Size`]; [`SrqError::Posted`] when more are posted; [`SrqError::Limit`] when its limit is beyond the new
    /// size; [`SrqError::UnknownSrq`].
    pub fn resize_srq(&mut self, id: SrqId, max_wr: u32) -> Result<(), SrqError> {
        let srq = self.srqs.get_mut(id.0 as usize).ok_or(SrqError::UnknownSrq)?;
        if !(1..=self.limits.max_qp_wr).contains(&max_wr) {
            return Err(SrqError::Size(self.limits.max_qp_wr));
        }
        if srq.queue.len() > max_wr {
            return Err(SrqError::Posted(srq.queue.len()));
        }
        if srq.limit > max_wr {
            return Err(SrqError::Limit(max_wr));
        }
        srq.queue.set_capacity(max_wr);
        Ok(())
    }

    /// Posts one receive request to a shared receive queue (`ibv_post_srq_recv`).
    ///
    /// # Errors
    /// [`PostError::UnknownSrq`], [`PostError::TooManySges`], [`PostError::QueueFull`]; then nothing was posted.
    pub fn post_srq_recv(&mut self, id: SrqId, wr: &RecvWr) -> Result<(), PostError> {
        let srq = self.srqs.get_mut(id.0 as usize).ok_or(PostError::UnknownSrq)?;
        if wr.sges.len() > srq.max_sge as usize {
            return Err(PostError::TooManySges { limit: srq.max_sge });
        }
        if srq.queue.is_full() {
            return Err(PostError::QueueFull);
        }
        srq.queue.push(wr, srq.pd, &self.regions);
        Ok(())
    }

    /// Makes a queue pair in RESET (`ibv_create_qp`).
    ///
    /// # Errors
    /// [`ObjectError::Size`], [`ObjectError::TooMany`]; [`ObjectError::Unknown`] for a protection domain, completion
    /// queue or shared receive queue that is not of this adapter.
    pub fn create_qp(&mut self, init: QpInit) -> Result<Qpn, ObjectError> {
        let QpInit { qp_type, send_cq, recv_cq, srq, caps, sq_sig_all, pd } = init;
        let max_wr = self.limits.max_qp_wr as usize;
        size("max_send_wr", caps.max_send_wr as usize, 0, max_wr)?;
        size("max_recv_wr", caps.max_recv_wr as usize, 0, max_wr)?;
        size("max_send_sge", caps.max_send_sge as usize, 0, self.limits.max_sge as usize)?;
        size("max_recv_sge", caps.max_recv_sge as usize, 0, self.limits.max_sge as usize)?;
        size("max_inline_data", caps.max_inline_data as usize, 0, self.limits.max_inline_data as usize)?;
        let own = |cq: &Arc<CompletionQueue>| self.cqs.get(cq.id().0 as usize).is_some_and(|own| Arc::ptr_eq(own, cq));
        let srq_exists = srq.is_none_or(|id| self.srqs.contains(id.0 as usize));
        if !self.pds.contains(pd.0 as usize) || !own(&send_cq) || !own(&recv_cq) || !srq_exists {
            return Err(ObjectError::Unknown);
        }
        let numbers = (self.qpns.end() - self.qpns.start()) as usize + 1;
        // with the range at most half full a free number is found after two draws on average
        limit("queue pairs", self.qps.len(), self.limits.max_qp.min(numbers.div_ceil(2)))?;
        let qpn = loop {
            let qpn = Qpn::new(self.qpns.start() + self.rng.next_u32() % numbers as u32);
            if !self.by_qpn.contains_key(&qpn) {
                break qpn;
            }
        };
        let common = Common {
            qpn,
            qp_type,
            pd,
            send_cq,
            recv_cq,
            srq,
            caps,
            sq_sig_all,
            state: State::Reset,
            access: crate::mem::Access::empty(),
            qkey: crate::addr::QKey::default(),
            mtu: self.gids.port_mtu(),
            dest_qpn: Qpn::default(),
            path: None,
            av: None,
        };
        let index = self.qps.insert(Qp::new(common, &caps));
        self.by_qpn.insert(qpn, index);
        if self.is_ready.len() <= index {
            self.is_ready.resize(index + 1, false);
        }
        Ok(qpn)
    }

    /// Destroys a queue pair (`ibv_destroy_qp`). What was posted to it gives no completions any more.
    ///
    /// # Errors
    /// [`ObjectError::Unknown`].
    pub fn destroy_qp(&mut self, qpn: Qpn) -> Result<(), ObjectError> {
        let index = self.by_qpn.remove(&qpn).ok_or(ObjectError::Unknown)?;
        self.qps.remove(index);
        self.timers.forget(index);
        Ok(())
    }

    /// What a queue pair tells of itself (`ibv_query_qp`).
    #[must_use]
    pub fn query_qp(&self, qpn: Qpn) -> Option<QpInfo> {
        Some(self.qps[*self.by_qpn.get(&qpn)?].info())
    }

    // Transitions of a queue pair (`ibv_modify_qp`).

    /// RESET→INIT, and INIT→INIT.
    ///
    /// # Errors
    /// See [`ModifyError`]; then nothing has changed.
    pub fn to_init(&mut self, qpn: Qpn, init: &Init) -> Result<(), ModifyError> {
        self.modify(Instant::ZERO, qpn, |qp, _| qp.to_init(init))
    }

    /// INIT→RTR.
    ///
    /// # Errors
    /// See [`ModifyError`]; then nothing has changed.
    pub fn to_rtr(&mut self, qpn: Qpn, rtr: &Rtr) -> Result<(), ModifyError> {
        self.modify(Instant::ZERO, qpn, |qp, env| qp.to_rtr(rtr, env.gids))
    }

    /// RTR→RTS, and SQD→RTS and SQE→RTS with [`Rts::Resume`].
    ///
    /// # Errors
    /// See [`ModifyError`]; then nothing has changed.
    pub fn to_rts(&mut self, now: Instant, qpn: Qpn, rts: &Rts) -> Result<(), ModifyError> {
        self.modify(now, qpn, |qp, _| qp.to_rts(rts))
    }

    /// RTS→SQD. With `notify`, [`Event::SendQueueDrained`] tells when everything started has completed.
    ///
    /// # Errors
    /// See [`ModifyError`]; then nothing has changed.
    pub fn to_sqd(&mut self, now: Instant, qpn: Qpn, notify: bool) -> Result<(), ModifyError> {
        self.modify(now, qpn, |qp, env| qp.to_sqd(notify, env))
    }

    /// Any state but RESET to ERR: everything posted completes as flushed.
    ///
    /// # Errors
    /// See [`ModifyError`]; then nothing has changed.
    pub fn to_error(&mut self, now: Instant, qpn: Qpn) -> Result<(), ModifyError> {
        self.modify(now, qpn, Qp::to_error)
    }

    /// Any state to RESET: everything posted is forgotten, without completions.
    ///
    /// # Errors
    /// [`ModifyError::UnknownQp`].
    pub fn to_reset(&mut self, qpn: Qpn) -> Result<(), ModifyError> {
        self.modify(Instant::ZERO, qpn, |qp, _| {
            qp.to_reset();
            Ok(())
        })
    }

    fn modify(
        &mut self,
        now: Instant,
        qpn: Qpn,
        change: impl FnOnce(&mut Qp, &mut Env<'_>) -> Result<(), ModifyError>,
    ) -> Result<(), ModifyError> {
        let index = *self.by_qpn.get(&qpn).ok_or(ModifyError::UnknownQp)?;
        self.with_qp(index, now, change)
    }

    // Posting.

    /// Posts one send request (`ibv_post_send`).
    ///
    /// # Errors
    /// See [`PostError`]; then nothing was posted.
    pub fn post_send(&mut self, now: Instant, qpn: Qpn, wr: &SendWr) -> Result<(), PostError> {
        let index = *self.by_qpn.get(&qpn).ok_or(PostError::UnknownQp)?;
        self.with_qp(index, now, |qp, env| qp.post_send(wr, env))
    }

    /// Posts one receive request (`ibv_post_recv`).
    ///
    /// # Errors
    /// See [`PostError`]; then nothing was posted.
    pub fn post_recv(&mut self, now: Instant, qpn: Qpn, wr: &RecvWr) -> Result<(), PostError> {
        let index = *self.by_qpn.get(&qpn).ok_or(PostError::UnknownQp)?;
        let (qp, mut env) = self.split(index, now);
        let result = qp.post_recv(wr, &mut env);
        self.fail_overrun(now);
        result
    }

    // The world.

    /// Takes a datagram from the link: `bytes` is its UDP payload. Says what became of it, for captures and people; there
    /// is nothing the caller has to do about it.
    pub fn handle_datagram(&mut self, now: Instant, net: &NetHeader, bytes: &[u8]) -> Disposition {
        self.counters.received_packets += 1;
        self.counters.ecn_marked += u64::from(net.traffic_class & 3 == 3);
        let disposition = self.receive(now, net, bytes).unwrap_or_else(Disposition::Dropped);
        if let Disposition::Dropped(reason) = disposition {
            self.counters.count_drop(reason);
        }
        disposition
    }

    /// The checks of 9.6, cheapest first, nothing changed before the ICRC is known to be right.
    fn receive(&mut self, now: Instant, net: &NetHeader, bytes: &[u8]) -> Result<Disposition, DropReason> {
        let packet = Packet::parse(bytes)?;
        let bth = packet.headers.bth();
        let index = *self.by_qpn.get(&bth.dest_qp).ok_or(DropReason::UnknownQp)?;
        let common = &self.qps[index].common;
        match (bth.opcode.service(), common.qp_type) {
            (Service::Cnp, _) => {}
            (service, qp_type) if service == qp_type.service() => {}
            _ => return Err(DropReason::WrongService),
        }
        let listens = match common.state {
            State::Rtr => !bth.opcode.operation().is_response(),
            State::Rts | State::Sqd | State::Sqe => true,
            State::Reset | State::Init | State::Err => false,
        };
        if !listens {
            return Err(DropReason::QpState);
        }
        if let Some(path) = &common.path {
            if path.dst != net.src {
                return Err(DropReason::SourceAddress);
            }
            if path.src != net.dst {
                return Err(DropReason::DestinationAddress);
            }
        } else if !self.gids.contains(net.dst.into()) {
            return Err(DropReason::DestinationAddress);
        }
        if !self.pkey.matches(bth.pkey) {
            return Err(DropReason::PKey);
        }
        let net = match verify_icrc(net, bytes).ok_or(DropReason::Icrc)? {
            IcrcMatch::Exact => {
                self.counters.icrc_exact += 1;
                *net
            }
            IcrcMatch::Solved { id, dont_fragment } => {
                self.counters.icrc_solved += 1;
                NetHeader { ident: crate::wire::Ident::Known { id, dont_fragment }, ..*net }
            }
        };
        if bth.opcode.service() == Service::Cnp {
            self.counters.cnp_received += 1;
            return Ok(Disposition::Congestion);
        }
        Ok(self.with_qp(index, now, |qp, env| qp.handle(&net, &packet, bytes.len(), env)))
    }

    /// Does what was due at or before `now`.
    pub fn handle_timeout(&mut self, now: Instant) {
        while let Some(index) = self.timers.pop_due(now, |index| self.qps.get(index).and_then(Qp::deadline)) {
            self.with_qp(index, now, Qp::handle_timeout);
        }
    }

    // What is due.

    /// When [`handle_timeout`](Self::handle_timeout) wants to be called next.
    pub fn poll_timeout(&mut self) -> Option<Instant> {
        self.timers.next(|index| self.qps.get(index).and_then(Qp::deadline))
    }

    /// The next event.
    pub fn poll_event(&mut self) -> Option<Event> {
        self.events.pop_front()
    }

    /// Fills `buffer`, which the caller has cleared, with packets that are due, every queue pair in its turn. The caller
    /// sends what is in it and calls again until the buffer stays empty.
    pub fn poll_transmit(&mut self, now: Instant, buffer: &mut TransmitBuffer) {
        while let Some(&index) = self.ready.front() {
            if !self.qps.contains(index) {
                self.end_turn(false);
                continue;
            }
            let mut packets = 0;
            let has_more = loop {
                if packets == QUANTUM {
                    break true;
                }
                let Some(slot) = buffer.slot() else {
                    // no room: the turn goes on with the next buffer
                    return;
                };
                let (qp, mut env) = self.split(index, now);
                let Some(built) = qp.build(slot, &mut env) else { break false };
                buffer.commit(&built);
                self.counters.sent_packets += 1;
                packets += 1;
            };
            self.end_turn(has_more);
            self.timers.set(index, self.qps.get(index).and_then(Qp::deadline));
            self.fail_overrun(now);
        }
    }

    /// Ends the turn of the queue pair at the front.
    fn end_turn(&mut self, has_more: bool) {
        if let Some(index) = self.ready.pop_front() {
            if has_more {
                self.ready.push_back(index);
            } else if let Some(flag) = self.is_ready.get_mut(index) {
                *flag = false;
            }
        }
    }

    // Inside.

    fn split(&mut self, index: usize, now: Instant) -> (&mut Qp, Env<'_>) {
        let env = Env {
            now,
            regions: &self.regions,
            gids: &self.gids,
            srqs: &mut self.srqs,
            counters: &mut self.counters,
            events: &mut self.events,
            overrun: &mut self.overrun,
        };
        (&mut self.qps[index], env)
    }

    /// Does something with a queue pair, and what follows from it: its turn to send, its timer, a full completion queue.
    fn with_qp<R>(&mut self, index: usize, now: Instant, act: impl FnOnce(&mut Qp, &mut Env<'_>) -> R) -> R {
        let (qp, mut env) = self.split(index, now);
        let result = act(qp, &mut env);
        let deadline = qp.deadline();
        self.timers.set(index, deadline);
        if !self.is_ready[index] {
            self.is_ready[index] = true;
            self.ready.push_back(index);
        }
        self.fail_overrun(now);
        result
    }

    /// A completion queue that has lost a completion takes its queue pairs with it (11.6.3.2).
    fn fail_overrun(&mut self, now: Instant) {
        while let Some(id) = self.overrun.pop() {
            for index in 0..self.is_ready.len() {
                let Some(qp) = self.qps.get(index) else { continue };
                let uses = qp.common.send_cq.id() == id || qp.common.recv_cq.id() == id;
                if uses && !matches!(qp.common.state, State::Reset | State::Err) {
                    let (qp, mut env) = self.split(index, now);
                    qp.fail(&mut env);
                    self.events.push_back(Event::QpFatal(self.qps[index].common.qpn));
                }
            }
        }
    }
}

/// Packets that a queue pair sends before the next has its turn.
const QUANTUM: u32 = 64;

fn limit(what: &'static str, exist: usize, limit: usize) -> Result<(), ObjectError> {
    if exist < limit { Ok(()) } else { Err(ObjectError::TooMany { what, limit }) }
}

fn size(what: &'static str, value: usize, least: usize, limit: usize) -> Result<(), ObjectError> {
    if (least..=limit).contains(&value) { Ok(()) } else { Err(ObjectError::Size { what, least, limit }) }
}
