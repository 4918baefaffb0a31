//! Interface requests may block, so they run without the lock.

use std::io;

use roce_transport::ids::Qpn;

use super::serve::Engine;
use crate::link::Prepared;
use roce_ethernet::{FlowAttr, FlowId, MacAddr};

/// Maximum flows per device.
const FLOWS: usize = 65_536;

#[derive(Debug)]
pub(crate) enum FlowRefused {
    NoFrames,
    /// The maximum.
    TooMany(usize),
    System(io::Error),
}

impl Engine {
    /// Adds a checked flow; returns the interface's filter to keep with it.
    pub(crate) fn add_flow(
        &self,
        qpn: Qpn,
        attr: FlowAttr,
    ) -> Result<(FlowId, Option<Prepared>), FlowRefused> {
        let prepare = {
            let mut shard = self.lock();
            let own = shard.link().frame_address().unwrap_or_else(MacAddr::zero);
            let (frames, link) = shard.frames_and_link();
            let link = link.ok_or(FlowRefused::NoFrames)?;
            if frames.flows.len() >= FLOWS {
                return Err(FlowRefused::TooMany(FLOWS));
            }
            attr.membership(own).map(|membership| link.prepare_membership(membership))
        };
        let kept = prepare.map(|prepare| prepare()).transpose().map_err(FlowRefused::System)?;
        let mut shard = self.lock();
        let (frames, link) = shard.frames_and_link();
        let link = link.ok_or(FlowRefused::NoFrames)?;
        if frames.flows.is_empty() {
            link.listen(true).map_err(FlowRefused::System)?;
        }
        Ok((frames.flows.add(qpn, attr), kept))
    }

    pub(crate) fn remove_flow(&self, id: FlowId) {
        let mut shard = self.lock();
        let (frames, link) = shard.frames_and_link();
        frames.flows.remove(id);
        if let Some(link) = link.filter(|_| frames.flows.is_empty()) {
            let _ = link.listen(false); // on failure, frames match no flow
        }
    }
}
