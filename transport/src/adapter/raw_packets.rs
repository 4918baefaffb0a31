//! Raw packets: whole Ethernet frames between the work queues of `IBV_QPT_RAW_PACKET` queue pairs
//! and a link that carries frames.
//!
//! The transport does not read these frames. The link's owner finds a frame's queue pair by its
//! flows.

use alloc::vec::Vec;

use super::Adapter;
use crate::{event::DropReason, ids::Qpn, qp::QpType, time::Instant};

impl Adapter {
    /// The link carries frames with so many bytes behind their Ethernet header, and its tag, at
    /// most; `None`, as in the beginning: none.
    pub const fn carry_frames(&mut self, mtu: Option<u32>) {
        self.sending.frames.mtu = mtu;
    }

    /// Bytes behind the Ethernet header of a frame, at most, if the link carries frames.
    #[must_use]
    pub const fn frame_mtu(&self) -> Option<u32> {
        self.sending.frames.mtu
    }

    /// True if [`poll_frame`](Self::poll_frame) has something to do.
    #[must_use]
    pub fn has_frames(&self) -> bool {
        !self.sending.frames.line.is_empty()
    }

    /// Writes the next frame that is to be sent to `frame`, without a frame check sequence, and
    /// returns the queue pair that it is of. `None` does not mean that there are no more: then
    /// [`has_frames`](Self::has_frames) is false.
    pub fn poll_frame(&mut self, now: Instant, frame: &mut Vec<u8>) -> Option<Qpn> {
        let index = self.sending.frames.line.pop_front()?;
        if !self.qps.contains(index) {
            return None;
        }
        let mtu = self.sending.frames.mtu.unwrap_or_default();
        let (qp, mut env) = self.split(index, now);
        let built = qp.build_frame(mtu, frame, &mut env);
        let (qpn, has_more) = (qp.common.qpn, qp.has_frames());
        if has_more {
            self.sending.frames.add(index);
        }
        self.record_notes(now, index);
        self.attend_cqs(now);
        built.then_some(qpn)
    }

    /// Takes a frame for a queue pair of raw packets. `flow_tag` is that of its flow, or 0.
    ///
    /// # Errors
    /// The reason why it is not received; it is counted.
    pub fn handle_frame(
        &mut self,
        now: Instant,
        qpn: Qpn,
        bytes: &[u8],
        flow_tag: u32,
    ) -> Result<(), DropReason> {
        let raw = |index: &usize| self.qps[*index].common.qp_type == QpType::RawPacket;
        let result = match self.qps.place(qpn).filter(raw) {
            None => Err(DropReason::UnknownQp),
            Some(index) => {
                self.with_qp(index, now, |qp, env| qp.handle_frame(bytes, flow_tag, env))
            }
        };
        if let Err(reason) = result {
            self.reports.counters.count_drop(reason);
        }
        result
    }
}
