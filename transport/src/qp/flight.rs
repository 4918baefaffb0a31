//! Bytes of a requester's packets that are on their way, and the window that limits them.
//!
//! A packet is on its way from when it leaves until it is acknowledged, or until it counts as lost
//! and is sent again. READ requests weigh nothing: what they ask for has a budget of its own.

use super::read::Room;
use crate::{
    congestion::{LARGEST, Near, OVERHEAD, Window, WindowConfig},
    time::Instant,
    work::{SendOp, SendWqe},
};

/// A window has at least so many packets, or runs of packets, that ask for an acknowledgement: it
/// opens again bit by bit.
const ASKS: u64 = 4;
/// At the latest after so many of the largest packets one asks, however large the window is.
const ASK_AFTER: u64 = 64;

/// See the [module's documentation](self).
#[derive(Debug)]
pub(crate) struct Flight {
    window: Window,
    bytes: u64,
    /// Of packets behind the last one that asked for an acknowledgement.
    unasked: u64,
    /// The next packet waits for room in what all queue pairs share.
    waits: bool,
    /// The peer has not answered in time. What is sent to it until it does is little, and no part
    /// of what all share: others go on, whose peers on the same host are alive.
    is_apart: bool,
    /// Something was lost that the adapter has not heard of.
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

    /// Bytes on their way in what all queue pairs share.
    pub(crate) const fn shared(&self) -> u64 {
        if self.is_apart { 0 } else { self.bytes }
    }

    /// Bytes on their way.
    pub(super) const fn bytes(&self) -> u64 {
        self.bytes
    }

    /// True if a packet waits for room in what all queue pairs share.
    pub(crate) const fn waits(&self) -> bool {
        self.waits
    }

    /// True if nothing is on its way because of that.
    pub(super) const fn is_held(&self) -> bool {
        self.waits && self.bytes == 0
    }

    /// True, once, if something was lost.
    pub(crate) const fn take_lost(&mut self) -> bool {
        core::mem::replace(&mut self.lost, false)
    }

    /// Bytes that may be on their way.
    pub(super) const fn window(&self) -> u64 {
        self.window.limit()
    }

    /// Forgets that packets wait for room; the next call tries again.
    pub(super) const fn try_anew(&mut self) {
        self.waits = false;
    }

    /// `Some` if a packet of so many bytes may leave; true if it must ask for an acknowledgement,
    /// as the window has no room for the largest packet after it.
    pub(super) fn admit(&mut self, cost: u64, largest: u64, room: Room) -> Option<bool> {
        let own = self.window.limit().saturating_sub(self.bytes);
        let fits_own = cost <= own || self.bytes == 0;
        let room = if self.is_apart { Room::UNLIMITED } else { room };
        let fits = fits_own && cost <= room.left;
        if !fits_own {
            self.window.record_filled();
        }
        // a window that has shrunk meanwhile: without an answer it would not open again
        if !fits && self.unasked == 0 {
            self.waits = fits_own;
            return None;
        }
        let left = own.min(room.left).saturating_sub(cost);
        Some(self.unasked + cost >= self.interval(largest, room) || left < largest)
    }

    /// Bytes after which a packet asks for an acknowledgement.
    fn interval(&self, largest: u64, room: Room) -> u64 {
        // what is shared is asked back with the last packet of a portion, not with one of its own
        (self.window.limit() / ASKS).min(ASK_AFTER * largest).min(room.portion)
    }

    /// Number of packets of so many bytes each that [may leave](Self::admit) one behind the other
    /// before one asks for an acknowledgement.
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

    /// A NAK shows that something was lost.
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

    /// The peer has sent a congestion notification.
    pub(super) fn on_notification(&mut self, now: Instant) {
        self.window.on_notification(now);
    }

    /// All that was on its way counts as lost, or there is nothing.
    pub(super) const fn clear(&mut self) {
        self.bytes = 0;
        self.unasked = 0;
        self.waits = false;
    }
}

/// Bytes of the packets `from..to` of a request, with their overhead.
pub(super) fn cost(wqe: &SendWqe, from: u32, to: u32, mtu: u32) -> u64 {
    if matches!(wqe.op, SendOp::Read { .. }) {
        return 0;
    }
    let carried = match wqe.awaits_data() {
        true => 0, // an atomic's bytes come with its answer
        false => wqe.length,
    };
    let before = |packet: u32| u64::from(packet.saturating_mul(mtu).min(carried));
    u64::from(to - from) * OVERHEAD + before(to) - before(from)
}
