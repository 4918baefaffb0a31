use alloc::{
    collections::VecDeque,
    format,
    string::{String, ToString},
    vec::Vec,
};
use core::{fmt, net::IpAddr, time::Duration};

use super::Caller;
use crate::{
    bounded,
    event::{Disposition, DropReason},
    ids::Qpn,
    psn::Psn,
    qp::{Failure, QpType, State, Timer},
    time::{Instant, rnr_timer},
    trace::{Call, PacketRecord, What},
    wire::Syndrome,
    work::{WcError, WcOpcode, WcStatus},
};

/// Requests of a queue remembered.
const POSTS: usize = 256;
/// Timeouts remembered.
const TIMEOUTS: usize = 8;
/// RNR NAKs of one request last longer only if the receiver has a mistake.
const STALLED: Duration = Duration::from_secs(1);

/// Events since the requester's last progress.
#[derive(Debug, Default)]
struct Silence {
    timeouts: VecDeque<Instant>,
    not_ready: Option<Stall>,
    /// Dropped responses.
    dropped: Dropped,
    /// Malformed packets and unknown queue pairs, from the peer's address.
    unmatched_drops: Dropped,
}

/// A request, perhaps outstanding.
#[derive(Debug)]
struct Post {
    wr_id: u64,
    call: Call,
    caller: Option<Caller>,
}

/// Requests of a queue, oldest first.
#[derive(Debug, Default)]
pub(super) struct Posts(VecDeque<Post>);

impl Posts {
    fn add(&mut self, wr_id: u64, call: Call, caller: Option<Caller>) {
        bounded::push(&mut self.0, Post { wr_id, call, caller }, POSTS);
    }

    /// A completion covers all earlier requests.
    fn complete(&mut self, wr_id: u64) {
        if let Some(place) = self.0.iter().position(|post| post.wr_id == wr_id) {
            self.0.drain(..=place);
        }
    }

    fn of(&self, wr_id: u64) -> impl Iterator<Item = &Post> {
        self.0.iter().filter(move |post| post.wr_id == wr_id)
    }

    /// `None` if unknown, or if several callers use the `wr_id`.
    pub(super) fn caller(&self, wr_id: u64) -> Option<Caller> {
        let mut callers = self.of(wr_id).map(|post| post.caller);
        let first = callers.next()?;
        if callers.all(|caller| caller == first) { first } else { None }
    }
}

/// Receive requests of the queue pair itself.
#[derive(Debug, Default)]
pub(super) struct Receives {
    pub(super) posts: Posts,
    outstanding: u32,
    /// By the latest RESET, if none was posted since.
    pub(super) discarded: u32,
}

/// RNR NAKs of one request.
#[derive(Clone, Copy, Debug)]
struct Stall {
    psn: Psn,
    since: Instant,
    naks: u32,
    /// Of the last NAK.
    wait: Duration,
    is_reported: bool,
}

impl Stall {
    fn extend(this: &mut Option<Self>, at: Instant, psn: Psn, wait: Duration) {
        let new = Self { psn, since: at, naks: 0, wait, is_reported: false };
        let stall = this.get_or_insert(new);
        if stall.psn != psn {
            *stall = new;
        }
        stall.naks = stall.naks.saturating_add(1);
        stall.wait = wait;
    }

    /// Time and NAKs, once and if it is long.
    fn report(&mut self, at: Instant) -> Option<(Duration, u32)> {
        let time = at.since(self.since);
        if self.is_reported || time < STALLED {
            return None;
        }
        self.is_reported = true;
        Some((time, self.naks))
    }
}

/// Drop counts by reason, latest last.
#[derive(Debug, Default)]
struct Dropped(Vec<(DropReason, u32)>);

impl Dropped {
    fn count(&mut self, reason: DropReason) {
        let known = self.0.iter().position(|(its, _)| *its == reason);
        let count = known.map_or(0, |place| self.0.remove(place).1);
        self.0.push((reason, count.saturating_add(1)));
    }

    fn latest(&self) -> Option<DropReason> {
        self.0.last().map(|(reason, _)| *reason)
    }

    /// Most frequent reason that blocks every response.
    fn obstacle(&self) -> Option<(DropReason, u32)> {
        let obstacles = self.0.iter().filter(|(reason, _)| reason.is_obstacle());
        obstacles.max_by_key(|(_, count)| *count).copied()
    }
}

impl fmt::Display for Dropped {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (n, (reason, count)) in self.0.iter().enumerate() {
            write!(f, "{}{count} × {reason}", if n > 0 { ", " } else { "" })?;
        }
        Ok(())
    }
}

#[derive(Debug)]
pub(super) struct History {
    pub(super) qp_type: QpType,
    pub(super) state: State,
    pub(super) sends: Posts,
    pub(super) receives: Receives,
    /// Requests of the peer that find no receive.
    refused: Option<Stall>,
    silence: Silence,
    /// Latest accepted packet of the peer.
    heard: Option<Instant>,
    acknowledged: bool,
    /// Destination of the latest packet.
    pub(super) peer: Option<(IpAddr, Qpn)>,
    pub(super) arrived: Option<PacketRecord>,
    /// Latest completion in error, not flushed.
    failed: Option<(Instant, u64, WcError)>,
    /// To ERR or SQE.
    pub(super) failure: Option<(Instant, Failure)>,
    /// A bit per reason.
    reported: u64,
    pub(super) flush_reported: bool,
}

impl History {
    pub(super) fn new(qp_type: QpType) -> Self {
        Self {
            qp_type,
            state: State::Reset,
            sends: Posts::default(),
            receives: Receives::default(),
            refused: None,
            silence: Silence::default(),
            heard: None,
            acknowledged: false,
            peer: None,
            arrived: None,
            failed: None,
            failure: None,
            reported: 0,
            flush_reported: false,
        }
    }

    pub(super) fn observe(
        &mut self,
        at: Instant,
        what: &What,
        caller: impl FnOnce() -> Option<Caller>,
    ) {
        match what {
            What::Sent { packet, .. } => {
                self.peer = Some((packet.net.dst, packet.headers.bth().dest_qp));
            }
            What::Arrived { packet, disposition } => self.record_arrival(at, packet, *disposition),
            What::Call { call: call @ Call::PostSend { wr_id, .. }, result: Ok(()) } => {
                self.sends.add(*wr_id, *call, caller());
            }
            What::Call { call: call @ Call::PostRecv { wr_id, .. }, result: Ok(()) } => {
                self.receives.posts.add(*wr_id, *call, caller());
                self.receives.outstanding = self.receives.outstanding.saturating_add(1);
                self.receives.discarded = 0;
            }
            What::Acknowledged { .. } => {
                self.silence = Silence::default();
                self.acknowledged = true;
            }
            What::Timer(Timer::Acknowledge(_)) => {
                bounded::push(&mut self.silence.timeouts, at, TIMEOUTS);
            }
            What::Completed { wr_id, result: Err(error) }
                if error.status != WcStatus::WrFlushErr =>
            {
                self.failed = Some((at, *wr_id, *error));
            }
            What::Completed { wr_id, result: Ok(ok) } => match ok.opcode {
                WcOpcode::Recv | WcOpcode::RecvRdmaWithImm => {
                    self.receives.posts.complete(*wr_id);
                    self.receives.outstanding = self.receives.outstanding.saturating_sub(1);
                }
                _ => self.sends.complete(*wr_id),
            },
            What::State { to, failure, .. } => self.enter(at, *to, *failure),
            _ => {}
        }
    }

    fn record_arrival(&mut self, at: Instant, packet: &PacketRecord, disposition: Disposition) {
        let psn = packet.headers.bth().psn;
        match disposition {
            Disposition::Dropped(reason) => self.silence.dropped.count(reason),
            Disposition::NakReceived(Syndrome::RnrNak { timer }) => {
                Stall::extend(&mut self.silence.not_ready, at, psn, rnr_timer(timer));
                self.heard = Some(at);
            }
            Disposition::Refused(Syndrome::RnrNak { timer }, _) => {
                Stall::extend(&mut self.refused, at, psn, rnr_timer(timer));
                self.heard = Some(at);
            }
            _ => self.heard = Some(at),
        }
        self.arrived = Some(packet.clone());
    }

    pub(super) fn record_unmatched_drop(&mut self, from: IpAddr, reason: DropReason) {
        if self.peer.is_some_and(|(address, _)| address == from) {
            self.silence.unmatched_drops.count(reason);
        }
    }

    fn enter(&mut self, at: Instant, to: State, failure: Failure) {
        self.state = to;
        match to {
            State::Reset => {
                let discarded = self.receives.outstanding;
                let receives = Receives { discarded, ..Receives::default() };
                *self = Self { receives, ..Self::new(self.qp_type) };
            }
            State::Err | State::Sqe => {
                self.failure = Some((at, failure));
                if to == State::Err {
                    self.receives.outstanding = 0; // flushed
                }
            }
            State::Init | State::Rtr | State::Rts | State::Sqd => {}
        }
    }

    pub(super) fn request(&self, wr_id: u64) -> String {
        match self.sends.of(wr_id).next() {
            Some(post) => format!("ibv_{}", post.call),
            None => format!("request {wr_id}"),
        }
    }

    /// The oldest request, and the caller of its post.
    pub(super) fn oldest_request(&self) -> (String, Option<Caller>) {
        match self.sends.0.front() {
            Some(post) => (format!("ibv_{}", post.call), post.caller),
            None => ("a request".to_string(), None),
        }
    }

    /// Time and RNR NAKs of a request that the peer has long refused, once.
    pub(super) fn waits_for_receiver(&mut self, at: Instant) -> Option<(Duration, u32)> {
        self.silence.not_ready.as_mut()?.report(at)
    }

    /// Time and RNR NAKs of a request of the peer that is long refused, once.
    pub(super) fn lacks_receive(&mut self, at: Instant) -> Option<(Duration, u32)> {
        self.refused.as_mut()?.report(at)
    }

    pub(super) fn failed_at(&self, at: Instant) -> Option<(u64, WcError)> {
        self.failed.filter(|failed| failed.0 == at).map(|(_, wr_id, error)| (wr_id, error))
    }

    /// The peer responds with PSNs never sent.
    pub(super) fn has_psn_mismatch(&self) -> bool {
        let dropped = self.silence.dropped.latest();
        let other_psns = [DropReason::ResponseOutsideWindow, DropReason::StaleResponse].map(Some);
        !self.acknowledged && other_psns.contains(&dropped)
    }

    /// The peer has sent nothing.
    pub(super) fn heard_nothing(&self) -> bool {
        self.heard.is_none() && self.silence.dropped.0.is_empty()
    }

    /// Reason why every response is dropped.
    pub(super) fn obstacle(&self) -> Option<DropReason> {
        let Silence { dropped, unmatched_drops, .. } = &self.silence;
        // responses to others prove nothing
        let is_sign = |reason| self.heard.is_none() || reason != DropReason::UnknownQp;
        let unmatched_drops = unmatched_drops.obstacle().filter(|(reason, _)| is_sign(*reason));
        dropped.obstacle().or(unmatched_drops).map(|(reason, _)| reason)
    }

    /// The peer's responses to a request out of retries.
    pub(super) fn responses(&self, at: Instant) -> String {
        let Silence { timeouts, not_ready, dropped, unmatched_drops } = &self.silence;
        let mut parts = Vec::new();
        if !timeouts.is_empty() {
            let ago = |&time: &Instant| format!("{:.1?}", at.since(time));
            let times: Vec<_> = timeouts.iter().map(ago).collect();
            parts.push(format!("ACK timeouts {} ago", times.join(", ")));
        }
        if let Some(Stall { naks, wait, .. }) = not_ready {
            parts.push(format!("RNR NAKs sent: {naks}, last wait {wait:.1?}"));
            if dropped.0.is_empty() {
                return parts.join("; ");
            }
        }
        let peer = match self.peer {
            Some((address, qpn)) => format!("{address}, queue pair {qpn}"),
            None => "the peer".to_string(),
        };
        parts.push(match self.heard {
            _ if !dropped.0.is_empty() => {
                format!("{peer} responds, but its packets were dropped: {dropped}")
            }
            None if !unmatched_drops.0.is_empty() => format!(
                "no packet for this queue pair arrived from {peer}; dropped packets from its \
                 address: {unmatched_drops}"
            ),
            None => format!("no packet arrived from {peer}"),
            Some(heard) => {
                format!("the last packet from {peer} arrived {:.1?} before", at.since(heard))
            }
        });
        if self.heard.is_some() && dropped.0.is_empty() && !unmatched_drops.0.is_empty() {
            parts.push(format!("dropped packets from its address since: {unmatched_drops}"));
        }
        parts.join("; ")
    }

    /// True on the first report of this reason.
    pub(super) const fn report_once(&mut self, reason: DropReason) -> bool {
        const { assert!(DropReason::ALL.len() <= u64::BITS as usize) };
        let bit = 1 << reason as u32;
        let is_new = self.reported & bit == 0;
        self.reported |= bit;
        is_new
    }
}
