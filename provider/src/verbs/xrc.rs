//! XRC domains.

use std::{fmt, sync::Arc};

use roce_transport::{adapter::ObjectError, work::XrcdId};

use super::{Context, QueuePair};

/// An XRC domain (`ibv_xrcd`): its targets receive into its XRC SRQs, whichever a request names,
/// and into no others.
///
/// In C a domain can belong to a file, through which several processes share it. Here it belongs to
/// one open device, and so to one process: a process has an address of its own, and a peer that
/// reaches its targets reaches nobody else's SRQs.
#[derive(Clone)]
pub struct XrcDomain {
    inner: Arc<XrcdInner>,
}

struct XrcdInner {
    context: Context,
    id: XrcdId,
}

impl Drop for XrcdInner {
    fn drop(&mut self) {
        // every target and every XRC SRQ of it held it
        let _ = self.context.inner.engine.lock().adapter().close_xrcd(self.id);
    }
}

impl XrcDomain {
    pub(super) fn new(context: &Context) -> Result<Self, ObjectError> {
        let id = context.inner.engine.lock().adapter().open_xrcd()?;
        Ok(Self { inner: Arc::new(XrcdInner { context: context.clone(), id }) })
    }

    pub(super) fn id(&self) -> XrcdId {
        self.inner.id
    }

    /// The device it belongs to.
    #[must_use]
    pub fn context(&self) -> &Context {
        &self.inner.context
    }

    /// Makes the receiving end of an extended reliable connection, in RESET (`ibv_create_qp_ex`
    /// with `IBV_QPT_XRC_RECV`). It has no queues and no protection domain; those of the XRC SRQ
    /// that a request names serve instead. The sending end is a queue pair of type
    /// [`XrcInitiator`](roce_transport::qp::QpType::XrcInitiator) on the other side.
    ///
    /// # Errors
    /// [`ObjectError::TooMany`] (`ENOMEM`).
    pub fn create_target(&self) -> Result<QueuePair, ObjectError> {
        QueuePair::new_target(self)
    }
}

impl fmt::Debug for XrcDomain {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("XrcDomain")
            .field("context", &self.inner.context)
            .field("id", &self.inner.id)
            .finish_non_exhaustive()
    }
}
