//! Making and destroying flows. Requests to an interface are made without the lock, because the
//! system may make the caller wait.

use std::io;

use roce_transport::ids::Qpn;

use super::serve::Engine;
use crate::link::Prepared;
use roce_ethernet::{FlowAttr, FlowId, MacAddr};

/// The most flows of a device.
const FLOWS: usize = 65_536;

/// Reason why a flow cannot be made.
#[derive(Debug)]
pub(crate) enum FlowRefused {
    /// The link carries no frames.
    NoFrames,
    /// As many exist as may.
    TooMany(usize),
    /// The system refuses.
    System(io::Error),
}

impl Engine {
    /// Makes a flow, which has been checked, and what is to be kept as long as it is there.
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

    /// Destroys a flow.
    pub(crate) fn remove_flow(&self, id: FlowId) {
        let mut shard = self.lock();
        let (frames, link) = shard.frames_and_link();
        frames.flows.remove(id);
        if let Some(link) = link.filter(|_| frames.flows.is_empty()) {
            let _ = link.listen(false); // what it hears nevertheless is for nobody
        }
    }
}
