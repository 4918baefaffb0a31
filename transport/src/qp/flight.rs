//! A requester's bytes in flight, neither acknowledged nor counted as lost, and their window.
//!
//! READ requests weigh nothing: their data has a budget.

use super::read::Credits;
use crate::{
    congestion::{LARGEST, Near, OVERHEAD, Window, WindowConfig},
    time::Instant,
    work::{SendOp, SendWqe},
};

/// Least acknowledgement requests per window, which reopens gradually.
const ACK_REQS: u64 = 4;
/// Maximum between acknowledgement requests, in largest packets.
const ACK_REQ_INTERVAL: u64 = 64;

#[derive(Debug)]
pub(crate) struct Flight {
    window: Window,
    pub(super) bytes: u64,
    /// Bytes since the last acknowledgement request.
    since_ack_req: u64,
    pub(super) waits: bool,
    /// After a timeout, outside the shared budget until a response: others continue.
    timed_out: bool,
    lost: bool,
}

impl Flight {
    pub(super) fn new(config: &WindowConfig) -> Self {
        Self {
            window: Window::new(config.initial, LARGEST, config.most, Near::Packets),
            bytes: 0,
            since_ack_req: 0,
            waits: false,
            timed_out: false,
            lost: false,
        }
    }

    /// Bytes in flight within the shared budget.
    pub(crate) const fn shared(&self) -> u64 {
        if self.timed_out { 0 } else { self.bytes }
    }

    /// True if only shared credits prevent sending.
    pub(super) const fn is_held(&self) -> bool {
        self.waits && self.bytes == 0
    }

    /// True once after a loss.
    pub(crate) const fn take_lost(&mut self) -> bool {
        core::mem::replace(&mut self.lost, false)
    }

    pub(super) const fn window(&self) -> u64 {
        self.window.limit()
    }

    /// Returns `Some` if a packet may leave, true if it must request an acknowledgement.
    pub(super) fn admit(&mut self, cost: u64, largest: u64, credits: Credits) -> Option<bool> {
        let own = self.window.limit().saturating_sub(self.bytes);
        let fits_own = cost <= own || self.bytes == 0;
        let credits = if self.timed_out { Credits::UNLIMITED } else { credits };
        let fits = fits_own && cost <= credits.left;
        if !fits_own {
            self.window.record_cwnd_limited();
        }
        // a shrunken window reopens by acknowledgement
        if !fits && self.since_ack_req == 0 {
            self.waits = fits_own;
            return None;
        }
        let left = own.min(credits.left).saturating_sub(cost);
        Some(self.since_ack_req + cost >= self.interval(largest, credits) || left < largest)
    }

    fn interval(&self, largest: u64, credits: Credits) -> u64 {
        // a portion's last packet requests its shared credits back
        (self.window.limit() / ACK_REQS).min(ACK_REQ_INTERVAL * largest).min(credits.portion)
    }

    /// Packets that [may leave](Self::admit) before one requests an acknowledgement.
    pub(super) fn packets_before_ack_req(&self, cost: u64, largest: u64, credits: Credits) -> u32 {
        let credits = if self.timed_out { Credits::UNLIMITED } else { credits };
        let left = self.window.limit().saturating_sub(self.bytes).min(credits.left);
        let by_window = left.saturating_sub(largest) / cost;
        let interval = self.interval(largest, credits);
        let by_interval = interval.saturating_sub(self.since_ack_req + 1) / cost;
        by_window.min(by_interval).try_into().unwrap_or(u32::MAX)
    }

    pub(super) fn on_sent(&mut self, cost: u64, ack_req: bool) {
        self.bytes += cost;
        self.since_ack_req = if ack_req { 0 } else { self.since_ack_req + cost };
    }

    pub(super) fn on_acknowledged(&mut self, cost: u64, now: Instant) {
        self.timed_out = false;
        self.window.on_acknowledged(cost, self.bytes, now);
        self.bytes = self.bytes.saturating_sub(cost);
    }

    pub(super) fn on_loss(&mut self) {
        if self.bytes > 0 {
            self.window.on_loss(self.bytes);
            self.lost = true;
        }
    }

    pub(super) fn on_timeout(&mut self) {
        if self.bytes > 0 {
            self.window.on_timeout();
            self.lost = !self.timed_out;
            self.timed_out = true;
        }
    }

    pub(super) fn on_notification(&mut self, now: Instant) {
        self.window.on_notification(now);
    }

    pub(super) const fn clear(&mut self) {
        self.bytes = 0;
        self.since_ack_req = 0;
        self.waits = false;
    }
}

/// Bytes with overhead.
pub(super) fn cost(wqe: &SendWqe, from: u32, to: u32, mtu: u32) -> u64 {
    if matches!(wqe.op, SendOp::Read { .. }) {
        return 0;
    }
    let carried = match wqe.awaits_data() {
        true => 0, // an atomic's bytes come with its response
        false => wqe.length,
    };
    let before = |packet: u32| u64::from(packet.saturating_mul(mtu).min(carried));
    u64::from(to - from) * OVERHEAD + before(to) - before(from)
}
