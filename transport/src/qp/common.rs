use alloc::{collections::VecDeque, sync::Arc, vec::Vec};

use super::{
    attr::{QpCaps, Quirks, RdAtomicLimits},
    decision::{Decision, Decisions},
    injected::{Completing, Injected, Queue},
    read::Credits,
    retry::AckTimer,
    state::{QpType, State},
};
use crate::{
    addr::{AddressVector, Mtu, PKey, QKey},
    congestion::CongestionConfig,
    defaults::defaults,
    event::{Counters, DropReason, Event},
    gids::{GidTable, Path},
    ids::{CqId, PdId, Qpn, SrqId, XrcdId},
    mem::{Access, AccessError, Region, RegionTable, User},
    pkeys::PKeyTable,
    psn::Psn,
    time::Instant,
    wire::{Bth, IcrcFlow, NetHeader, Opcode},
    work::{
        CompletionCounters, CompletionQueue, CountedOps, Half, Late, Pushed, QpHalf, SendFlags,
        SendOp, SendWqe, SharedQueue, SrqTable, Validity, Wc, WcError, WcOk, WcOpcode,
    },
};

pub(crate) struct Resources {
    pub(crate) regions: RegionTable,
    pub(crate) gids: GidTable,
    pub(crate) pkeys: PKeyTable,
    pub(crate) srqs: SrqTable,
    pub(crate) rd_atomic: RdAtomicLimits,
    pub(crate) ack_timer: AckTimer,
    /// For new queue pairs.
    pub(crate) posting: Posting,
    pub(crate) congestion: CongestionConfig,
}

#[derive(Default)]
pub(crate) struct Reports {
    pub(crate) counters: Counters,
    pub(crate) events: VecDeque<Event>,
    pub(crate) decisions: Decisions,
    pub(crate) cqs: AffectedCqs,
}

impl Reports {
    pub(crate) fn record_pushed(&mut self, id: CqId, pushed: Pushed) {
        match pushed {
            Pushed::Quietly | Pushed::Lost => {}
            Pushed::Waking => self.events.push_back(Event::Completion(id)),
            Pushed::Deferred => self.cqs.deferred.push(id),
            Pushed::Overrun => {
                self.events.push_back(Event::CqError(id));
                self.cqs.overrun.push(id);
            }
        }
    }
}

/// The adapter during one call.
pub(crate) struct Env<'a> {
    pub(crate) now: Instant,
    pub(crate) resources: &'a mut Resources,
    pub(crate) reports: &'a mut Reports,
    pub(crate) late: Option<&'a mut Late>,
    pub(crate) read_credits: Credits,
    /// For data in flight to the peer's host.
    pub(crate) send_credits: Credits,
    /// Injected: no receive request is available.
    pub(crate) not_ready: bool,
    pub(crate) congested: bool,
}

#[derive(Clone, Copy)]
pub(super) enum NotReceived {
    Dropped(DropReason),
    /// A bad receive request completed in error.
    Failed,
}

#[derive(Debug, Default)]
pub(crate) struct AffectedCqs {
    pub(crate) overrun: Vec<CqId>,
    pub(crate) deferred: Vec<CqId>,
    pub(crate) injected: Injected,
}

impl AffectedCqs {
    pub(crate) fn are_none(&self) -> bool {
        self.overrun.is_empty() && self.deferred.is_empty() && self.injected.is_empty()
    }
}

impl<'a> Env<'a> {
    pub(crate) const fn new(
        now: Instant,
        resources: &'a mut Resources,
        reports: &'a mut Reports,
    ) -> Self {
        Self {
            now,
            resources,
            reports,
            late: None,
            read_credits: Credits::NONE,
            send_credits: Credits::NONE,
            not_ready: false,
            congested: false,
        }
    }

    #[inline]
    pub(crate) fn record(&mut self, decision: impl FnOnce() -> Decision) {
        self.reports.decisions.take(decision);
    }

    pub(crate) fn record_taken(&mut self, id: SrqId) {
        if self.resources.srqs.get_mut(&id).is_some_and(SharedQueue::passes_limit) {
            self.reports.events.push_back(Event::SrqLimitReached(id));
        }
    }

    pub(crate) fn place(
        &mut self,
        half: QpHalf,
        region: &Arc<Region>,
        address: u64,
        bytes: &[u8],
    ) -> Result<(), AccessError> {
        match &mut self.late {
            None => region.write(address, bytes),
            Some(late) => late.place(half, region, address, bytes, self.now),
        }
    }

    pub(crate) fn has_unplaced(&self, half: QpHalf) -> bool {
        self.late.as_ref().is_some_and(|late| late.has_unplaced(half))
    }

    pub(crate) fn place_all_of(&mut self, half: QpHalf) {
        if let Some(late) = &mut self.late {
            late.place_all_of(half);
        }
    }

    /// Places late bytes without waiting for copies: the response waits.
    pub(crate) fn place_pieces_of(&mut self, half: QpHalf) {
        if let Some(late) = &mut self.late {
            late.place_pieces_of(half);
        }
    }

    /// Needed before a key is revoked.
    pub(crate) fn place_all(&mut self) {
        if let Some(late) = &mut self.late {
            late.place_all();
        }
    }

    fn complete(
        &mut self,
        half: QpHalf,
        cq: Option<&Arc<CompletionQueue>>,
        wc: Wc,
        validity: &Validity,
        solicited: bool,
    ) {
        let Some(cq) = cq else { return };
        self.record(|| Decision::Completed(wc));
        if let Some(late) = &mut self.late
            && late.delay_completion(half, cq, wc, validity, solicited, self.now)
        {
            return;
        }
        let pushed = cq.push(wc, validity, solicited, self.now);
        self.reports.record_pushed(cq.id(), pushed);
    }
}

pub(crate) struct Common {
    pub(crate) qpn: Qpn,
    pub(crate) qp_type: QpType,
    pub(crate) receiving: Receiving,
    /// XRC target only.
    pub(crate) xrcd: Option<XrcdId>,
    pub(crate) caps: QpCaps,
    pub(crate) state: State,
    pub(crate) admission: Admission,
    pub(crate) mtu: Mtu,
    pub(crate) peer: PeerEnd,
    pub(crate) quirks: Quirks,
    pub(crate) posting: Posting,
    pub(crate) binds: bool,
    pub(crate) completions: Completions,
}

/// Receive objects; for an XRC target those of the current XRC SRQ.
pub(crate) struct Receiving {
    /// Also for sends.
    pub(crate) pd: PdId,
    pub(crate) srq: Option<SrqId>,
    pub(crate) cq: Option<Arc<CompletionQueue>>,
}

impl Receiving {
    pub(super) const NOTHING: Self = Self { pd: PdId::NONE, srq: None, cq: None };
}

#[derive(Default)]
pub(crate) struct Admission {
    pub(crate) pkey: PKey,
    pub(crate) pkey_index: u16,
    pub(crate) qkey: QKey,
    pub(crate) access: Access,
}

#[derive(Default)]
pub(crate) struct PeerEnd {
    pub(crate) qpn: Qpn,
    pub(crate) av: Option<AddressVector>,
    pub(crate) path: Option<Path>,
    /// Flow of the peer's last packet.
    incoming: Option<IcrcFlow>,
}

impl PeerEnd {
    pub(crate) fn set_path(&mut self, path: Option<Path>) {
        (self.path, self.incoming) = (path, None);
    }

    pub(crate) fn flow_of(&mut self, net: &NetHeader) -> Option<IcrcFlow> {
        if !self.incoming.is_some_and(|flow| flow.has(net)) {
            self.incoming = IcrcFlow::of(net);
        }
        self.incoming
    }

    pub(crate) fn sends(&self, net: &NetHeader) -> bool {
        match (&self.incoming, &self.path) {
            (Some(flow), Some(_)) => flow.has(net),
            (None, Some(path)) => {
                path.net.dst == net.src
                    && path.net.src == net.dst
                    && path.net.frame.version() == net.frame.version()
            }
            (_, None) => false,
        }
    }
}

defaults! {
    #[derive(Clone, Copy)]
    pub(crate) Posting {
        /// Longest WRITE, in packets, sent as WRITE ONLYs.
        write_only_packets: u32 = 0;
        max_read_sge: u32 = u32::MAX;
        atomics: bool = true;
        early_posts: bool = false;
    }
}

#[derive(Default)]
pub(crate) struct Completions {
    pub(crate) send_cq: Option<Arc<CompletionQueue>>,
    pub(crate) sq_sig_all: bool,
    pub(crate) validity: Validity,
    pub(crate) counters: CompletionCounters,
}

impl Common {
    pub(crate) const fn half(&self, half: Half) -> QpHalf {
        (self.qpn.get(), half)
    }

    pub(crate) const fn user(&self) -> User {
        User { pd: self.receiving.pd, qpn: self.qpn }
    }

    pub(crate) fn new(qp_type: QpType, caps: QpCaps, mtu: Mtu) -> Self {
        Self {
            qpn: Qpn::default(),
            qp_type,
            receiving: Receiving::NOTHING,
            xrcd: None,
            caps,
            state: State::Reset,
            admission: Admission::default(),
            mtu,
            peer: PeerEnd::default(),
            quirks: Quirks::default(),
            posting: Posting::default(),
            binds: false,
            completions: Completions::default(),
        }
    }

    pub(crate) fn completes_in(&self, id: CqId) -> bool {
        let cqs = [&self.completions.send_cq, &self.receiving.cq];
        cqs.into_iter().flatten().any(|cq| cq.id() == id)
    }

    pub(crate) fn discard_completions(&mut self) {
        core::mem::take(&mut self.completions.validity).discard();
    }

    pub(super) const fn bth(&self, opcode: Opcode, psn: Psn) -> Bth {
        let mut bth = Bth::new(opcode, self.peer.qpn, psn);
        bth.pkey = self.admission.pkey;
        bth
    }

    /// A success completes only if signaled.
    pub(crate) fn complete_send(
        &self,
        wqe: &SendWqe,
        result: Result<u32, WcError>,
        env: &mut Env<'_>,
    ) {
        if !self.completions.counters.is_empty() {
            env.place_all_of(self.half(Half::Requester));
        }
        let result =
            result.and_then(|length| match env.reports.cqs.injected.judge(|| self.sending(wqe)) {
                None => Ok(length),
                Some(error) => Err(error),
            });
        let counted = CountedOps::of_send(&wqe.op);
        match result {
            Ok(_) => env.reports.counters.completed_sends += u64::from(counted == CountedOps::SEND),
            Err(error) => env.reports.counters.count_failed_send(error.status),
        }
        self.completions.counters.count(counted, result.is_ok().then_some(wqe.length));
        if result.is_ok()
            && !self.completions.sq_sig_all
            && !wqe.flags.contains(SendFlags::SIGNALED)
        {
            return;
        }
        let opcode = opcode_of(&wqe.op);
        let result = result.map(|byte_len| WcOk::new(opcode, byte_len));
        let wc = Wc { wr_id: wqe.id, qpn: self.qpn, timestamp: env.now, result };
        env.complete(
            self.half(Half::Requester),
            self.completions.send_cq.as_ref(),
            wc,
            &self.completions.validity,
            false,
        );
    }

    fn sending(&self, wqe: &SendWqe) -> Completing {
        let needs_receive = matches!(
            wqe.op,
            SendOp::Send { .. }
                | SendOp::SendTo { .. }
                | SendOp::SendInvalidate { .. }
                | SendOp::Write { immediate: Some(_), .. }
        );
        let (qpn, qp_type) = (self.qpn, self.qp_type);
        Completing { qpn, qp_type, queue: Queue::Send, opcode: opcode_of(&wqe.op), needs_receive }
    }

    pub(crate) fn complete_recv(
        &self,
        wr_id: u64,
        result: Result<WcOk, WcError>,
        solicited: bool,
        env: &mut Env<'_>,
    ) {
        self.complete_recv_in(self.receiving.cq.as_ref(), wr_id, result, solicited, env);
    }

    /// `cq` was the completion queue when the request was taken.
    pub(super) fn complete_recv_in(
        &self,
        cq: Option<&Arc<CompletionQueue>>,
        wr_id: u64,
        result: Result<WcOk, WcError>,
        solicited: bool,
        env: &mut Env<'_>,
    ) {
        if !self.completions.counters.is_empty() {
            env.place_all_of(self.half(Half::Responder));
        }
        let result = result.and_then(|ok| {
            let completing = || Completing {
                qpn: self.qpn,
                qp_type: self.qp_type,
                queue: Queue::Receive,
                opcode: ok.opcode,
                needs_receive: false,
            };
            env.reports.cqs.injected.judge(completing).map_or(Ok(ok), Err)
        });
        let bytes = result.as_ref().ok().map(|ok| ok.byte_len);
        self.completions.counters.count(CountedOps::RECV, bytes);
        match result {
            Ok(_) => env.reports.counters.completed_receives += 1,
            Err(error) => env.reports.counters.count_failed_receive(error.status),
        }
        let wc = Wc { wr_id, qpn: self.qpn, timestamp: env.now, result };
        env.complete(self.half(Half::Responder), cq, wc, &self.completions.validity, solicited);
    }
}

const fn opcode_of(op: &SendOp) -> WcOpcode {
    match op {
        SendOp::Send { .. } | SendOp::SendTo { .. } | SendOp::SendInvalidate { .. } => {
            WcOpcode::Send
        }
        SendOp::Write { .. } => WcOpcode::RdmaWrite,
        SendOp::Read { .. } => WcOpcode::RdmaRead,
        SendOp::CompareSwap { .. } => WcOpcode::CompSwap,
        SendOp::FetchAdd { .. } => WcOpcode::FetchAdd,
        SendOp::AtomicWrite { .. } => WcOpcode::AtomicWrite,
        SendOp::Flush { .. } => WcOpcode::Flush,
        SendOp::BindWindow(_) => WcOpcode::BindMw,
        SendOp::LocalInvalidate { .. } => WcOpcode::LocalInv,
    }
}
