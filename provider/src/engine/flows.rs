//! Interface requests may block, so they run without the lock.

use std::io;

use roce_transport::{ids::Qpn, qp::QpType};
use thiserror::Error;

use super::serve::Engine;
use crate::link::Prepared;
use roce_ethernet::{FlowAttr, FlowId, FlowSpecError, MacAddr};

/// Maximum flows per device.
const FLOWS: usize = 65_536;

/// Error of creating a flow.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum FlowError {
    /// Invalid flow (`EINVAL`).
    #[error(transparent)]
    Spec(#[from] FlowSpecError),
    /// Not a raw packet queue pair (`EINVAL`).
    #[error("{0} queue pairs take no flows; use a raw packet queue pair")]
    WrongService(QpType),
    /// Link without raw packets (`EOPNOTSUPP`).
    #[error("the device's link carries no raw packets; open raw:INTERFACE or xdp:INTERFACE")]
    NoFrames,
    /// Maximum reached (`ENOMEM`).
    #[error("too many flows; at most {0}")]
    TooMany(usize),
    /// Filter refused by the interface (system's error).
    #[error("the interface refuses the filter for these frames: {0}")]
    Interface(io::Error),
}

impl Engine {
    /// Adds a checked flow; returns the interface's filter to keep with it.
    pub(crate) fn add_flow(
        &self,
        qpn: Qpn,
        attr: FlowAttr,
    ) -> Result<(FlowId, Option<Prepared>), FlowError> {
        let prepare = {
            let mut shard = self.lock();
            let own = shard.link().frame_address().unwrap_or_else(MacAddr::zero);
            let (frames, link) = shard.frames_and_link();
            let link = link.ok_or(FlowError::NoFrames)?;
            if frames.flows.len() >= FLOWS {
                return Err(FlowError::TooMany(FLOWS));
            }
            attr.membership(own).map(|membership| link.prepare_membership(membership))
        };
        let kept = prepare.map(|prepare| prepare()).transpose().map_err(FlowError::Interface)?;
        let mut shard = self.lock();
        let (frames, link) = shard.frames_and_link();
        let link = link.ok_or(FlowError::NoFrames)?;
        if frames.flows.is_empty() {
            link.listen(true).map_err(FlowError::Interface)?;
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
