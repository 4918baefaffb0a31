//! XRC domains.

use std::{fmt, sync::Arc};

use roce_transport::{adapter::ObjectError, work::XrcdId};

use super::context::Context;

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

impl Context {
    /// Makes an XRC domain (`ibv_open_xrcd`).
    ///
    /// # Errors
    /// [`ObjectError::TooMany`] (`ENOMEM`).
    pub fn open_xrcd(&self) -> Result<XrcDomain, ObjectError> {
        let id = self.inner.engine.lock().adapter().open_xrcd()?;
        Ok(XrcDomain { inner: Arc::new(XrcdInner { context: self.clone(), id }) })
    }
}

impl XrcDomain {
    pub(super) fn id(&self) -> XrcdId {
        self.inner.id
    }

    /// The device it belongs to.
    #[must_use]
    pub fn context(&self) -> &Context {
        &self.inner.context
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
