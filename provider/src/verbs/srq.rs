use std::sync::Arc;

use roce_transport::{
    adapter::ObjectError,
    qp::PostError,
    work::{RecvWr, SrqAttr, SrqError, SrqId, SrqInfo},
};

use super::{
    context::Context,
    cq::CompletionQueue,
    domain::{DomainInner, ProtectionDomain, XrcDomain},
    post::{BadWorkRequest, post},
    shards::HomeShard,
};
use crate::engine::{Engine, Posted};

/// Shared receive queue (`ibv_srq`): its requests serve arriving messages in order.
///
/// ```
/// # use roce_provider::{QpInitAttr, transport::{qp::QpType, work::{RecvWr, SrqAttr}}};
/// # let context = roce_provider::Device::named("roce_lo")?.open(Default::default())?;
/// # let pd = context.alloc_pd()?;
/// # let cq = context.create_cq(16, None)?;
/// let srq = pd.create_srq(SrqAttr { max_wr: 16, max_sge: 1 })?;
/// let attr = QpInitAttr { srq: Some(srq.clone()), ..QpInitAttr::new(QpType::Rc, &cq) };
/// let qps = [pd.create_qp(&attr)?, pd.create_qp(&attr)?];
/// srq.post_recv(&[RecvWr::new(1, [])])?;
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone)]
pub struct SharedReceiveQueue {
    pub(super) inner: Arc<SrqInner>,
}

pub(super) struct SrqInner {
    domain: Arc<DomainInner>,
    pub(super) place: HomeShard,
    pub(super) id: SrqId,
    /// Domain and queue of an XRC SRQ, kept alive.
    xrc: Option<(XrcDomain, CompletionQueue)>,
}

impl SrqInner {
    fn at_engine<R>(&self, act: impl FnOnce(&Engine) -> R) -> R {
        self.domain.context.inner.shards.at(&self.place, act)
    }
}

impl Drop for SrqInner {
    fn drop(&mut self) {
        let requests = self.at_engine(|engine| {
            let mut shard = engine.lock();
            let requests = shard.adapter().abandon_srq_requests(self.id);
            // never in use: queue pairs keep it alive
            let _ = shard.adapter().destroy_srq(self.id);
            requests
        });
        drop(requests); // without the lock: there may be thousands
    }
}

impl ProtectionDomain {
    /// Creates a shared receive queue (`ibv_create_srq`).
    ///
    /// # Errors
    /// [`ObjectError::Size`] (`EINVAL`); [`ObjectError::TooMany`] (`ENOMEM`).
    pub fn create_srq(&self, attr: SrqAttr) -> Result<SharedReceiveQueue, ObjectError> {
        let domain = self.inner.clone();
        let made = domain.context.inner.engine.alter(|adapter| adapter.create_srq(domain.id, attr));
        let id = domain.context.explained("ibv_create_srq", made)?;
        let place = HomeShard::unplaced(None);
        Ok(SharedReceiveQueue { inner: Arc::new(SrqInner { domain, place, id, xrc: None }) })
    }

    /// Creates an XRC SRQ (`ibv_create_srq_ex` with `IBV_SRQT_XRC`).
    ///
    /// Targets of `xrcd` receive into it if a request names its
    /// [`number`](SharedReceiveQueue::number), and complete in `cq`.
    ///
    /// # Errors
    /// [`ObjectError::Size`] (`EINVAL`); [`ObjectError::TooMany`] (`ENOMEM`);
    /// [`ObjectError::Unknown`] (`EINVAL`) for another device's object; [`ObjectError::Mismatch`]
    /// (`EINVAL`) for a completion queue outside the first [shard](crate::OpenOptions::shards).
    pub fn create_xrc_srq(
        &self,
        attr: SrqAttr,
        xrcd: &XrcDomain,
        cq: &CompletionQueue,
    ) -> Result<SharedReceiveQueue, ObjectError> {
        let domain = self.inner.clone();
        let own = domain.context.check_own(xrcd.context());
        domain.context.explained("ibv_create_srq_ex", own)?;
        let (place, ring) = (HomeShard::of(0), cq.inner.ring.clone());
        let placed = domain.context.inner.shards.place(&[&place, &cq.inner.place], None);
        domain.context.explained("ibv_create_srq_ex", placed)?;
        let xrc = Some((xrcd.clone(), cq.clone()));
        let mut shard = domain.context.inner.engine.lock();
        let made = shard.adapter().create_xrc_srq(domain.id, attr, xrcd.id(), ring);
        drop(shard);
        let id = domain.context.explained("ibv_create_srq_ex", made)?;
        Ok(SharedReceiveQueue { inner: Arc::new(SrqInner { domain, place, id, xrc }) })
    }
}

impl SharedReceiveQueue {
    pub(super) fn context(&self) -> &Context {
        &self.inner.domain.context
    }

    /// Identifier in events.
    #[must_use]
    pub fn id(&self) -> SrqId {
        self.inner.id
    }

    /// Number of an XRC SRQ for peers (`ibv_get_srq_num`), else `None`.
    #[must_use]
    pub fn number(&self) -> Option<SrqId> {
        self.inner.xrc.is_some().then_some(self.inner.id)
    }

    /// Attributes (`ibv_query_srq`).
    #[must_use]
    pub fn query(&self) -> SrqInfo {
        self.inner
            .at_engine(|engine| engine.lock().adapter().query_srq(self.inner.id))
            .expect("a handle keeps its shared receive queue alive")
    }

    /// Posts receive requests in order (`ibv_post_srq_recv`).
    ///
    /// # Errors
    /// [`BadWorkRequest`] (`ENOMEM` if full, else `EINVAL`).
    pub fn post_recv(&self, wrs: &[RecvWr]) -> Result<(), BadWorkRequest> {
        self.post_recv_with(|one| post(wrs, one))
    }

    /// Posts requests one by one, as
    /// [`QueuePair::post_recv_with`](super::QueuePair::post_recv_with).
    pub fn post_recv_with<R>(
        &self,
        requests: impl FnOnce(&mut dyn FnMut(&RecvWr) -> Result<(), PostError>) -> R,
    ) -> R {
        self.inner.at_engine(|engine| {
            engine.post(Posted::Receive, |posting| {
                requests(&mut |wr| posting.receive_shared(self.inner.id, wr))
            })
        })
    }

    /// Arms one event below this number of requests (`ibv_modify_srq` with `IBV_SRQ_LIMIT`).
    ///
    /// # Errors
    /// [`SrqError::Limit`] (`EINVAL`) above the queue's size.
    pub fn set_limit(&self, limit: u32) -> Result<(), SrqError> {
        let context = &self.inner.domain.context;
        let set = |engine: &Engine| engine.alter(|it| it.set_srq_limit(self.inner.id, limit));
        let set = self.inner.at_engine(set);
        context.explained("ibv_modify_srq", set)
    }

    /// Changes the capacity (`ibv_modify_srq` with `IBV_SRQ_MAX_WR`).
    ///
    /// # Errors
    /// [`SrqError::Size`], [`SrqError::Posted`], [`SrqError::Limit`] (all `EINVAL`). Nothing
    /// changes.
    pub fn resize(&self, max_wr: u32) -> Result<(), SrqError> {
        let context = &self.inner.domain.context;
        let resize = |engine: &Engine| engine.alter(|it| it.resize_srq(self.inner.id, max_wr));
        let resized = self.inner.at_engine(resize);
        context.explained("ibv_modify_srq", resized)
    }
}

opaque_debug!(SharedReceiveQueue, |this| context: this.inner.domain.context, id: this.inner.id);
