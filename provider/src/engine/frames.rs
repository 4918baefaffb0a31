//! Raw packets between adapter and link, steered by flows.

use std::{io, os::fd::OwnedFd, sync::Arc};

use roce_transport::{adapter::Adapter, ids::Qpn, time::Instant};

use super::room::Room;
use crate::{counters::LinkCounters, link::Link};
use roce_ethernet::{Copies, FlowTable, MacAddr};

/// Frames sent per turn.
const PORTION: usize = 32;

pub(super) struct SteeredFrames {
    pub(super) flows: FlowTable,
    copies: Copies,
    frame: Vec<u8>,
    /// The frame waits for room.
    waits: bool,
    room: Room,
    dropped: u64,
    unmatched: u64,
}

#[derive(Default)]
pub(super) struct SendResult {
    pub(super) counted: bool,
    pub(super) full: bool,
    /// A frame was lost.
    pub(super) error: Option<io::Error>,
}

impl SteeredFrames {
    pub(super) fn new(own: Option<MacAddr>, sockets: Arc<OwnedFd>) -> Self {
        Self {
            flows: FlowTable::new(own.unwrap_or_default()),
            copies: Copies::default(),
            frame: Vec::new(),
            waits: false,
            room: Room::new(sockets),
            dropped: 0,
            unmatched: 0,
        }
    }

    pub(super) fn is_due(&self, adapter: &Adapter) -> bool {
        !self.room.is_blocked() && (self.waits || adapter.has_frames())
    }

    pub(super) fn deadline(&self, adapter: &Adapter) -> Option<Instant> {
        self.room.deadline(self.is_due(adapter))
    }

    pub(super) const fn count_into(&self, totals: &mut LinkCounters) {
        totals.flow_dropped += self.dropped;
        totals.flow_unmatched += self.unmatched;
    }

    /// Drops unsent frames of a replaced link.
    pub(super) fn abandon(&mut self) {
        self.waits = false;
        self.room.abandon();
    }

    /// Sends due frames as room allows; with the link down they are lost.
    pub(super) fn send(
        &mut self,
        now: Instant,
        adapter: &mut Adapter,
        link: &mut dyn Link,
        is_down: bool,
        observe: &mut dyn FnMut(&[u8]),
    ) -> SendResult {
        let mut sent = SendResult::default();
        if !self.waits && !adapter.has_frames() {
            return sent;
        }
        for _ in 0..PORTION {
            if !self.waits {
                if !adapter.has_frames() {
                    break;
                }
                let Some(from) = adapter.poll_frame(now, &mut self.frame) else { continue };
                self.waits = true;
                sent.counted = true;
                observe(&self.frame);
                self.hand_to_others(now, adapter, from);
            }
            let Some(link) = link.frames().filter(|_| !is_down) else {
                self.waits = false;
                continue;
            };
            match link.send_frame(now, &self.frame) {
                Ok(true) => {}
                Ok(false) => {
                    sent.full = !self.room.is_blocked();
                    self.room.wait(now, link.frame_room());
                    break;
                }
                Err(error) => sent.error = Some(error),
            }
            self.waits = false;
            self.room.unblock();
        }
        sent
    }

    /// Delivers the frame to matching flows of other queue pairs: the wire returns no copy.
    fn hand_to_others(&mut self, now: Instant, adapter: &mut Adapter, from: Qpn) {
        if self.flows.is_empty() {
            return;
        }
        self.flows.steer(&self.frame, false, Some(from), &mut self.copies);
        self.dropped += u64::from(self.copies.dropped);
        for &(qpn, tag) in &self.copies.to {
            let _ = adapter.handle_frame(now, qpn, &self.frame, tag); // the adapter counts drops
        }
    }

    /// Returns the number of frames.
    pub(super) fn receive(
        &mut self,
        now: Instant,
        adapter: &mut Adapter,
        link: &mut dyn Link,
        is_down: bool,
        observe: &mut dyn FnMut(&[u8]),
    ) -> io::Result<usize> {
        if self.flows.is_empty() {
            return Ok(0);
        }
        let Some(link) = link.frames() else { return Ok(0) };
        let Self { flows, copies, dropped, unmatched, .. } = self;
        link.receive_frames(now, &mut |frame, is_taken| {
            if is_down {
                return;
            }
            flows.steer(frame, is_taken, None, copies);
            *dropped += u64::from(copies.dropped);
            *unmatched += u64::from(copies.to.is_empty() && !copies.dropped && !is_taken);
            if copies.dropped || !copies.to.is_empty() {
                observe(frame);
            }
            for &(qpn, tag) in &copies.to {
                let _ = adapter.handle_frame(now, qpn, frame, tag); // the adapter counts drops
            }
        })
    }
}
