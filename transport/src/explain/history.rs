//! What has happened on one queue pair, as far as explanations need it.

use alloc::{
    collections::VecDeque,
    format,
    string::{String, ToString},
    vec::Vec,
};
use core::{net::IpAddr, time::Duration};

use crate::{
    event::{Disposition, DropReason},
    ids::Qpn,
    qp::{Failure, QpType, State, Timer},
    time::{Instant, rnr_timer},
    trace::{Call, PacketRecord, What},
    wire::Syndrome,
    work::{WcError, WcStatus},
};

/// Number of posted send requests that are remembered, to say what a failed one was.
const POSTS: usize = 256;
/// Number of timeouts whose times are told.
const TIMEOUTS: usize = 8;

/// What has happened since the peer has last moved the requester on.
#[derive(Debug, Default)]
struct Silence {
    /// Times at which the acknowledge timer fired, the latest ones.
    timeouts: VecDeque<Instant>,
    /// Number of answers that the receiver is not ready, and the wait that the last one asked for.
    not_ready: (u32, Duration),
    /// Reason for which the latest answer was dropped.
    dropped: Option<DropReason>,
}

/// See the [module's documentation](self).
#[derive(Debug)]
pub(super) struct History {
    pub(super) qp_type: QpType,
    pub(super) state: State,
    posts: VecDeque<Call>,
    silence: Silence,
    /// Time of the latest packet that the queue pair took from its peer.
    heard: Option<Instant>,
    /// True once the peer has acknowledged something.
    acknowledged: bool,
    /// Where the latest packet went.
    pub(super) peer: Option<(IpAddr, Qpn)>,
    /// The latest packet that arrived.
    pub(super) arrived: Option<PacketRecord>,
    /// The latest completion in error that was not flushed.
    failed: Option<(Instant, u64, WcError)>,
    /// Cause of the latest change to ERR or SQE.
    pub(super) failure: Option<(Instant, Failure)>,
    /// Reasons for which dropped packets have been told of, one bit for each.
    told: u64,
    /// A request that was posted in ERR has been told of.
    pub(super) told_flush: bool,
}

impl History {
    pub(super) fn new(qp_type: QpType) -> Self {
        Self {
            qp_type,
            state: State::Reset,
            posts: VecDeque::new(),
            silence: Silence::default(),
            heard: None,
            acknowledged: false,
            peer: None,
            arrived: None,
            failed: None,
            failure: None,
            told: 0,
            told_flush: false,
        }
    }

    pub(super) fn note(&mut self, at: Instant, what: &What) {
        match what {
            What::Sent { packet, .. } => {
                self.peer = Some((packet.net.dst, packet.headers.bth().dest_qp));
            }
            What::Arrived { packet, disposition } => self.note_arrival(at, packet, *disposition),
            What::Call { call: call @ Call::PostSend { .. }, result: Ok(()) } => {
                if self.posts.len() >= POSTS {
                    self.posts.pop_front();
                }
                self.posts.push_back(*call);
            }
            What::Acknowledged { .. } => {
                self.silence = Silence::default();
                self.acknowledged = true;
            }
            What::Timer(Timer::Acknowledge(_)) => {
                if self.silence.timeouts.len() >= TIMEOUTS {
                    self.silence.timeouts.pop_front();
                }
                self.silence.timeouts.push_back(at);
            }
            What::Completed { wr_id, result: Err(error) }
                if error.status != WcStatus::WrFlushErr =>
            {
                self.failed = Some((at, *wr_id, *error));
            }
            What::Completed { wr_id, result: Ok(_) } => self.complete(*wr_id),
            What::State { to, failure, .. } => self.enter(at, *to, *failure),
            _ => {}
        }
    }

    fn note_arrival(&mut self, at: Instant, packet: &PacketRecord, disposition: Disposition) {
        match disposition {
            Disposition::Dropped(reason) => self.silence.dropped = Some(reason),
            Disposition::NakReceived(Syndrome::RnrNak { timer }) => {
                self.silence.not_ready =
                    (self.silence.not_ready.0.saturating_add(1), rnr_timer(timer));
                self.heard = Some(at);
            }
            _ => self.heard = Some(at),
        }
        self.arrived = Some(packet.clone());
    }

    /// A completion stands for all requests before it, which were not signaled.
    fn complete(&mut self, wr_id: u64) {
        let is_it = |post: &Call| matches!(post, Call::PostSend { wr_id: id, .. } if *id == wr_id);
        if let Some(place) = self.posts.iter().position(is_it) {
            self.posts.drain(..=place);
        }
    }

    fn enter(&mut self, at: Instant, to: State, failure: Failure) {
        self.state = to;
        match to {
            State::Reset => *self = Self::new(self.qp_type),
            State::Err | State::Sqe => self.failure = Some((at, failure)),
            State::Init | State::Rtr | State::Rts | State::Sqd => {}
        }
    }

    /// The request whose completion has this error, as it was posted.
    pub(super) fn request(&self, wr_id: u64) -> String {
        let is_it = |post: &&Call| matches!(post, Call::PostSend { wr_id: id, .. } if *id == wr_id);
        match self.posts.iter().find(is_it) {
            Some(post) => format!("ibv_{post}"),
            None => format!("request {wr_id}"),
        }
    }

    /// The completion in error of this moment, if there was one.
    pub(super) fn failed_at(&self, at: Instant) -> Option<(u64, WcError)> {
        self.failed.filter(|failed| failed.0 == at).map(|(_, wr_id, error)| (wr_id, error))
    }

    /// True if the peer answers, but with PSNs that were never sent.
    pub(super) fn is_out_of_step(&self) -> bool {
        let dropped = self.silence.dropped;
        let other_psns = [DropReason::ResponseOutsideWindow, DropReason::StaleResponse].map(Some);
        !self.acknowledged && other_psns.contains(&dropped)
    }

    /// True if nothing at all has come from the peer.
    pub(super) fn is_deaf(&self) -> bool {
        self.heard.is_none() && self.silence.dropped.is_none()
    }

    /// The peer's part in a request that was given up.
    pub(super) fn answers(&self, at: Instant) -> String {
        let Silence { timeouts, not_ready, dropped } = &self.silence;
        let mut parts = Vec::new();
        if !timeouts.is_empty() {
            let ago = |&time: &Instant| format!("{:.1?}", at.since(time));
            let times: Vec<_> = timeouts.iter().map(ago).collect();
            parts.push(format!("no answer in time {} before now", times.join(", ")));
        }
        if not_ready.0 > 0 {
            parts.push(format!(
                "answered \"receiver not ready\" {} times, the last time for {:.1?}",
                not_ready.0, not_ready.1
            ));
        }
        if not_ready.0 > 0 && dropped.is_none() {
            return parts.join("; ");
        }
        let peer = match self.peer {
            Some((address, qpn)) => format!("{address}, queue pair {qpn}"),
            None => "the peer".to_string(),
        };
        parts.push(match (dropped, self.heard) {
            (Some(reason), _) => {
                format!("{peer} does answer, but what came last was dropped: {reason}")
            }
            (None, None) => format!("nothing at all has come from {peer}"),
            (None, Some(heard)) => {
                format!("the last packet from {peer} came {:.1?} before", at.since(heard))
            }
        });
        parts.join("; ")
    }

    /// True if this reason of dropping packets has not been told of before.
    pub(super) const fn tell(&mut self, reason: DropReason) -> bool {
        const { assert!(DropReason::ALL.len() <= u64::BITS as usize) };
        let bit = 1 << reason as u32;
        let is_new = self.told & bit == 0;
        self.told |= bit;
        is_new
    }
}
