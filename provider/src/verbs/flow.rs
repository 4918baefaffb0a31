//! Flows: which frames a queue pair of raw packets receives.

use std::{fmt, io};

use roce_transport::qp::QpType;
use thiserror::Error;

use super::queue_pair::QueuePair;
use crate::{engine::FlowRefused, link::Prepared, sync::Mutex};
use roce_ethernet::{FlowAttr, FlowId, FlowSpecError};

/// Error of making a flow.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum FlowError {
    /// There can be no such flow (`EINVAL`).
    #[error(transparent)]
    Spec(#[from] FlowSpecError),
    /// The queue pair receives no raw packets (`EINVAL`).
    #[error("a {0} queue pair receives packets of its transport; flows are of raw packets")]
    WrongService(QpType),
    /// The device's link carries no raw packets (`EOPNOTSUPP`).
    #[error("the device's link carries no raw packets: a raw device does")]
    NoFrames,
    /// As many exist as may (`ENOMEM`).
    #[error("no more than {0} flows can exist")]
    TooMany(usize),
    /// The interface cannot be asked for these frames (the error of the system).
    #[error("the interface cannot be asked for these frames: {0}")]
    Interface(io::Error),
}

/// Flow (`ibv_flow`): frames that match it come to its queue pair. Destroyed when it is dropped; it
/// keeps the queue pair.
pub struct Flow {
    qp: QueuePair,
    id: FlowId,
    /// What has the interface take these frames, as long as it is there.
    kept: Mutex<Option<Prepared>>,
}

impl QueuePair {
    /// Has frames that match come to this queue pair of raw packets (`ibv_create_flow`), whatever
    /// state it is in: from RTR on it receives them.
    ///
    /// RoCE packets for the device's own addresses go to its transport; only a
    /// [`Sniffer`](crate::FlowKind::Sniffer) gets a copy. ARP and neighbour discovery go to the
    /// device, and a flow gets a copy. What other queue pairs of the device send matches, too, but
    /// for sniffers; and nobody hears itself.
    ///
    /// # Errors
    /// [`FlowError`], which names each `errno`: `EINVAL`, `EOPNOTSUPP`, `ENOMEM`, or that of the
    /// system.
    pub fn create_flow(&self, attr: &FlowAttr) -> Result<Flow, FlowError> {
        let result = self.make_flow(attr);
        self.context().explained("ibv_create_flow", result)
    }

    fn make_flow(&self, attr: &FlowAttr) -> Result<Flow, FlowError> {
        let qp_type = self.query().qp_type;
        if qp_type != QpType::RawPacket {
            return Err(FlowError::WrongService(qp_type));
        }
        attr.check()?;
        let added = self.inner.engine().add_flow(self.qpn(), attr.clone());
        let (id, kept) = added.map_err(|refused| match refused {
            FlowRefused::NoFrames => FlowError::NoFrames,
            FlowRefused::TooMany(limit) => FlowError::TooMany(limit),
            FlowRefused::System(error) => FlowError::Interface(error),
        })?;
        Ok(Flow { qp: self.clone(), id, kept: Mutex::new(kept) })
    }
}

impl Flow {
    /// Its queue pair.
    #[must_use]
    pub const fn qp(&self) -> &QueuePair {
        &self.qp
    }
}

impl Drop for Flow {
    fn drop(&mut self) {
        self.qp.inner.engine().remove_flow(self.id);
        drop(self.kept.lock().take()); // without the engine's lock
    }
}

impl fmt::Debug for Flow {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Flow").field("qp", &self.qp).field("id", &self.id).finish_non_exhaustive()
    }
}
