use std::sync::Arc;

use roce_transport::{adapter::ObjectError, work::XrcdId};

use super::context::Context;

/// XRC domain (`ibv_xrcd`): its targets receive only into its XRC SRQs, as requests name them.
///
/// ```
/// # use roce_provider::transport::work::SrqAttr;
/// # let context = roce_provider::Device::named("roce_lo")?.open(Default::default())?;
/// # let pd = context.alloc_pd()?;
/// # let cq = context.create_cq(16, None)?;
/// let xrcd = context.open_xrcd()?;
/// let srq = pd.create_xrc_srq(SrqAttr { max_wr: 16, max_sge: 1 }, &xrcd, &cq)?;
/// let target = xrcd.create_target()?;
/// // requests of the peer name the SRQ by this number
/// assert!(srq.number().is_some());
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
///
/// Belongs to one open device and process; C domains can be shared through a file.
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
        // never in use: targets and XRC SRQs keep it alive
        let _ = self.context.inner.engine.alter(|adapter| adapter.close_xrcd(self.id));
    }
}

impl Context {
    /// Creates an XRC domain (`ibv_open_xrcd`).
    ///
    /// # Errors
    /// [`ObjectError::TooMany`] (`ENOMEM`).
    pub fn open_xrcd(&self) -> Result<XrcDomain, ObjectError> {
        let opened = self.inner.engine.alter(|adapter| adapter.open_xrcd());
        let id = self.explained("ibv_open_xrcd", opened)?;
        Ok(XrcDomain { inner: Arc::new(XrcdInner { context: self.clone(), id }) })
    }
}

impl XrcDomain {
    pub(super) fn id(&self) -> XrcdId {
        self.inner.id
    }

    /// The device.
    #[must_use]
    pub fn context(&self) -> &Context {
        &self.inner.context
    }
}

opaque_debug!(XrcDomain: "XrcDomain", |this| context: this.inner.context, id: this.inner.id);
