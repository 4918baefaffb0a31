//! A requester's bytes in flight, neither acknowledged nor counted as lost, and their window.
//!
//! READ requests weigh nothing: their data has a budget.

use super::read::Room;
use crate::{
    congestion::{LARGEST, Near, OVERHEAD, Window, WindowConfig},
    time::Instant,
    work::{SendOp, SendWqe},
};

/// Least acknowledgement requests per window, which reopens gradually.
const ASKS: u64 = 4;
/// Maximum between acknowledgement requests, in largest packets.
const ASK_AFTER: u64 = 64;

#[derive(Debug)]
pub(crate) struct Flight {
    window: Window,
    bytes: u64,
    /// Bytes since the last acknowledgement request.
    unasked: u64,
    waits: bool,
    /// After a timeout, outside the shared budget until a response: others continue.
    is_apart: bool,
    lost: bool,
}

impl Flight {
    pub(super) fn new(config: &WindowConfig) -> Self {
        Self {
            window: Window::new(config.initial, LARGEST, config.most, Near::Packets),
            bytes: 0,
            unasked: 0,
            waits: false,
            is_apart: false,
            lost: false,
        }
    }

    /// Bytes in flight within the shared budget.
    pub(crate) const fn shared(&self) -> u64 {
        if self.is_apart { 0 } else { self.bytes }
    }

    pub(super) const fn bytes(&self) -> u64 {
        self.bytes
    }

    pub(crate) const fn waits(&self) -> bool {
        self.waits
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

    pub(super) const fn retry(&mut self) {
        self.waits = false;
    }

    /// Returns `Some` if a packet may leave, true if it must request an acknowledgement.
    pub(super) fn admit(&mut self, cost: u64, largest: u64, room: Room) -> Option<bool> {
        let own = self.window.limit().saturating_sub(self.bytes);
        let fits_own = cost <= own || self.bytes == 0;
        let room = if self.is_apart { Room::UNLIMITED } else { room };
        let fits = fits_own && cost <= room.left;
        if !fits_own {
            self.window.record_filled();
        }
        // a shrunken window reopens by acknowledgement
        if !fits && self.unasked == 0 {
            self.waits = fits_own;
            return None;
        }
        let left = own.min(room.left).saturating_sub(cost);
        Some(self.unasked + cost >= self.interval(largest, room) || left < largest)
    }

    fn interval(&self, largest: u64, room: Room) -> u64 {
        // a portion's last packet asks for its shared credits back
        (self.window.limit() / ASKS).min(ASK_AFTER * largest).min(room.portion)
    }

    /// Packets that [may leave](Self::admit) before one requests an acknowledgement.
    pub(super) fn count_unasked(&self, cost: u64, largest: u64, room: Room) -> u32 {
        let room = if self.is_apart { Room::UNLIMITED } else { room };
        let left = self.window.limit().saturating_sub(self.bytes).min(room.left);
        let by_window = left.saturating_sub(largest) / cost;
        let by_interval = self.interval(largest, room).saturating_sub(self.unasked + 1) / cost;
        by_window.min(by_interval).try_into().unwrap_or(u32::MAX)
    }

    pub(super) fn on_sent(&mut self, cost: u64, asks: bool) {
        self.bytes += cost;
        self.unasked = if asks { 0 } else { self.unasked + cost };
    }

    pub(super) fn on_acknowledged(&mut self, cost: u64, now: Instant) {
        self.is_apart = false;
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
            self.lost = !self.is_apart;
            self.is_apart = true;
        }
    }

    pub(super) fn on_notification(&mut self, now: Instant) {
        self.window.on_notification(now);
    }

    pub(super) const fn clear(&mut self) {
        self.bytes = 0;
        self.unasked = 0;
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
