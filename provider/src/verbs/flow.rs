use roce_transport::qp::QpType;

use super::queue_pair::QueuePair;
pub use crate::engine::FlowError;
use crate::{link::Prepared, sync::Mutex};
use roce_ethernet::{FlowAttr, FlowId};

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
    /// [`FlowError`] with its `errno`: `EINVAL`, `EOPNOTSUPP`, `ENOMEM`, or the system's.
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
        let (id, kept) = self.inner.engine().add_flow(self.qpn(), attr.clone())?;
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

opaque_debug!(Flow, |this| qp: this.qp, id: this.id);
