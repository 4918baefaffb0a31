//! Unparsed Ethernet frames of `IBV_QPT_RAW_PACKET` queue pairs.

use alloc::vec::Vec;

use super::Adapter;
use crate::{event::DropReason, ids::Qpn, qp::QpType, time::Instant};

impl Adapter {
    /// Sets the frames' MTU, without Ethernet header and VLAN tag; default no frames.
    pub const fn carry_frames(&mut self, mtu: Option<u32>) {
        self.sending.frames.mtu = mtu;
    }

    /// True if [`poll_frame`](Self::poll_frame) has work.
    #[must_use]
    pub fn has_frames(&self) -> bool {
        !self.sending.frames.line.is_empty()
    }

    /// Writes the next frame, without FCS; returns its queue pair. See
    /// [`has_frames`](Self::has_frames) for more.
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
        self.record_decisions(now, index);
        self.check_cqs(now);
        built.then_some(qpn)
    }

    /// Delivers a frame; `flow_tag` is its flow's, or 0.
    ///
    /// # Errors
    /// The drop reason, counted.
    pub fn handle_frame(
        &mut self,
        now: Instant,
        qpn: Qpn,
        bytes: &[u8],
        flow_tag: u32,
    ) -> Result<(), DropReason> {
        let raw = |index: &usize| self.qps[*index].common.qp_type == QpType::RawPacket;
        let result = match self.qps.index_of(qpn).filter(raw) {
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
