use std::{fmt, io};

use roce_transport::qp::QpType;
use thiserror::Error;

use super::queue_pair::QueuePair;
use crate::{engine::FlowRefused, link::Prepared, sync::Mutex};
use roce_ethernet::{FlowAttr, FlowId, FlowSpecError};

/// Error of creating a flow.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum FlowError {
    /// Invalid flow (`EINVAL`).
    #[error(transparent)]
    Spec(#[from] FlowSpecError),
    /// Not a raw packet queue pair (`EINVAL`).
    #[error("a {0} queue pair takes no flows; use a raw packet queue pair")]
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

/// Flow (`ibv_flow`): steers matching frames to its queue pair, which it keeps; dropping destroys
/// it.
pub struct Flow {
    qp: QueuePair,
    id: FlowId,
    /// Filter of the interface.
    kept: Mutex<Option<Prepared>>,
}

impl QueuePair {
    /// Steers matching frames to this raw packet queue pair (`ibv_create_flow`), in any state; it
    /// receives from RTR on.
    ///
    /// RoCE packets for the device go to its transport; only a
    /// [`Sniffer`](crate::FlowKind::Sniffer) gets copies. ARP and neighbour discovery go to the
    /// device, with copies for flows. Flows, not sniffers, also match frames of the device's other
    /// queue pairs; no queue pair receives its own.
    ///
    /// # Errors
    /// [`FlowError`].
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
    /// The queue pair.
    #[must_use]
    pub const fn qp(&self) -> &QueuePair {
        &self.qp
    }
}

impl Drop for Flow {
    fn drop(&mut self) {
        self.qp.inner.engine().remove_flow(self.id);
        drop(self.kept.lock().take()); // without the lock
    }
}

impl fmt::Debug for Flow {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Flow").field("qp", &self.qp).field("id", &self.id).finish_non_exhaustive()
    }
}
