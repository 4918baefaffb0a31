//! Queue pairs.

use std::{convert::Infallible, fmt, sync::Arc};

use roce_transport::{
    adapter::{Adapter, ObjectError},
    addr::{Gid, Qpn},
    explain::{Explain, Reason},
    psn::Psn,
    qp::{
        CountError, Init, ModifyError, PostError, QpCaps, QpInfo, QpInit, QpType, QpUpdate, Quirks,
        Rtr, Rts, State,
    },
    time::Instant,
    work::{CompletionCounter, CountedOps, RecvWr, SendWr},
};
use tracing::debug;

use super::{
    context::Context,
    cq::CompletionQueue,
    domain::ProtectionDomain,
    post::{BadWorkRequest, post},
    srq::SharedReceiveQueue,
    xrc::XrcDomain,
};
use crate::engine::{Engine, Posted};

/// Attributes of a new queue pair (`ibv_qp_init_attr`).
#[derive(Clone, Debug)]
pub struct QpInitAttr {
    /// Transport service.
    pub qp_type: QpType,
    /// Completion queue of send requests.
    pub send_cq: CompletionQueue,
    /// Completion queue of receive requests; an XRC initiator has none.
    pub recv_cq: CompletionQueue,
    /// Shared receive queue, instead of a receive queue of its own.
    pub srq: Option<SharedReceiveQueue>,
    /// Sizes of the queues; with a shared receive queue, those of the receive queue are ignored.
    pub caps: QpCaps,
    /// True if every send request is signaled, regardless of its flags. Off by default.
    pub sq_sig_all: bool,
    /// Deviations of the peer from the specification. None by default.
    pub quirks: Quirks,
}

impl QpInitAttr {
    /// Attributes of a queue pair with one completion queue and default sizes.
    #[must_use]
    pub fn new(qp_type: QpType, cq: &CompletionQueue) -> Self {
        Self {
            qp_type,
            send_cq: cq.clone(),
            recv_cq: cq.clone(),
            srq: None,
            caps: QpCaps::default(),
            sq_sig_all: false,
            quirks: Quirks::default(),
        }
    }
}

/// Queue pair (`ibv_qp`). Destroyed with its last handle; requests that are still posted then do
/// not complete.
///
/// ```
/// # use roce_provider::{QpInitAttr, transport::{qp::QpType, work::{Data, RecvWr, SendWr}}};
/// # let context = roce_provider::Device::named("roce_lo")?.open(Default::default())?;
/// # let pd = context.alloc_pd()?;
/// # let cq = context.create_cq(16, None)?;
/// let qp = pd.create_qp(&QpInitAttr::new(QpType::Rc, &cq))?;
/// let peer = qp.endpoint(0).ok_or("no address")?; // itself
/// qp.connect_to(peer)?;
/// qp.post_recv(&[RecvWr::new(1, [])])?;
/// qp.post_send(&[SendWr::send(2, Data::empty())])?;
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone)]
pub struct QueuePair {
    pub(super) inner: Arc<QpInner>,
}

pub(super) struct QpInner {
    context: Context,
    shard: u32,
    qpn: Qpn,
    pub(super) psn: Psn,
    /// Held so that they outlive the queue pair.
    resources: QpResources,
}

/// Objects that a queue pair is made from.
enum QpResources {
    Queues { _pd: ProtectionDomain, _cqs: [CompletionQueue; 2], srq: Option<SharedReceiveQueue> },
    XrcTarget(#[allow(dead_code, reason = "only held")] XrcDomain),
}

impl QpInner {
    #[inline]
    pub(super) fn engine(&self) -> &Arc<Engine> {
        self.context.inner.shards.engine(self.shard)
    }
}

impl Drop for QpInner {
    fn drop(&mut self) {
        let engine = self.engine();
        engine.pause_loop();
        let has_groups = engine.lock().adapter().mcast_groups(Some(self.qpn)).next().is_some();
        if has_groups {
            let _ = engine.leave_groups(|adapter| {
                let groups: Vec<_> = adapter.mcast_groups(Some(self.qpn)).collect();
                let is_last = |group: &Gid| adapter.detach_mcast(self.qpn, *group) == Ok(true);
                let left = groups.into_iter().filter(is_last).map(Gid::to_ip).collect();
                Ok::<_, Infallible>(left)
            });
        }
        let requests = engine.alter(|adapter| {
            let requests = adapter.abandon_requests(self.qpn);
            let _ = adapter.destroy_qp(self.qpn);
            requests
        });
        drop(requests); // without the lock: there may be thousands
    }
}

impl ProtectionDomain {
    /// Makes a queue pair in RESET (`ibv_create_qp`).
    ///
    /// # Errors
    /// [`ObjectError::Size`] (`EINVAL`); [`ObjectError::TooMany`] (`ENOMEM`);
    /// [`ObjectError::Unknown`] when a completion queue or the shared receive queue is of another
    /// device (`EINVAL`); [`ObjectError::Mismatch`] (`EINVAL`) for an XRC SRQ, for an XRC initiator
    /// with a shared receive queue, for an XRC target, which [`XrcDomain::create_target`] makes,
    /// and for queues of different [shards](crate::OpenOptions::shards).
    pub fn create_qp(&self, attr: &QpInitAttr) -> Result<QueuePair, ObjectError> {
        // the adapter knows its completion queues themselves, but of a shared receive queue only
        // the number
        if attr.srq.as_ref().is_some_and(|srq| !srq.is_of(self.context())) {
            return self.context().explained("ibv_create_qp", Err(ObjectError::Unknown));
        }
        let init = QpInit {
            qp_type: attr.qp_type,
            send_cq: attr.send_cq.inner.ring.clone(),
            recv_cq: attr.recv_cq.inner.ring.clone(),
            srq: attr.srq.as_ref().map(SharedReceiveQueue::id),
            caps: attr.caps,
            sq_sig_all: attr.sq_sig_all,
            pd: self.inner.id,
            quirks: attr.quirks,
        };
        let cqs = [attr.send_cq.clone(), attr.recv_cq.clone()];
        let srq = attr.srq.as_ref().map(|srq| (&srq.inner.place, srq.id()));
        let places = cqs.each_ref().map(|cq| &cq.inner.place);
        let placed = self.context().inner.shards.place(&places, srq);
        let shard = self.context().explained("ibv_create_qp", placed)?;
        let resources = QpResources::Queues { _pd: self.clone(), _cqs: cqs, srq: attr.srq.clone() };
        QueuePair::create(self.context(), shard, resources, |adapter| adapter.create_qp(init))
    }
}

impl XrcDomain {
    /// Makes the receiving end of an extended reliable connection, in RESET (`ibv_create_qp_ex`
    /// with `IBV_QPT_XRC_RECV`). It has no queues and no protection domain; those of the XRC SRQ
    /// that a request names serve instead. The sending end is a queue pair of type
    /// [`XrcInitiator`](roce_transport::qp::QpType::XrcInitiator) on the other side.
    ///
    /// # Errors
    /// [`ObjectError::TooMany`] (`ENOMEM`).
    pub fn create_target(&self) -> Result<QueuePair, ObjectError> {
        let resources = QpResources::XrcTarget(self.clone());
        QueuePair::create(self.context(), 0, resources, |adapter| {
            adapter.create_xrc_target(self.id())
        })
    }
}

impl QueuePair {
    fn create(
        context: &Context,
        shard: u32,
        resources: QpResources,
        create: impl FnOnce(&mut Adapter) -> Result<Qpn, ObjectError>,
    ) -> Result<Self, ObjectError> {
        let engine = context.inner.shards.engine(shard);
        let mut locked = engine.lock();
        let (created, psn) = (create(locked.adapter()), locked.adapter().random_psn());
        drop(locked);
        engine.explain();
        let qpn = created?;
        Ok(Self {
            inner: Arc::new(QpInner { context: context.clone(), shard, qpn, psn, resources }),
        })
    }

    /// Device that the queue pair belongs to.
    #[must_use]
    pub fn context(&self) -> &Context {
        &self.inner.context
    }

    /// Queue pair number.
    #[must_use]
    pub fn qpn(&self) -> Qpn {
        self.inner.qpn
    }

    /// True if it is in the first [shard](crate::OpenOptions::shards).
    pub(crate) fn is_in_first_shard(&self) -> bool {
        self.inner.shard == 0
    }

    /// True if the queue pair receives from a shared receive queue; an XRC target does.
    pub(crate) fn has_srq(&self) -> bool {
        matches!(
            &self.inner.resources,
            QpResources::XrcTarget(_) | QpResources::Queues { srq: Some(_), .. }
        )
    }

    /// Attributes of the queue pair (`ibv_query_qp`).
    ///
    /// # Panics
    /// Never: the handle keeps the queue pair alive.
    #[must_use]
    pub fn query(&self) -> QpInfo {
        let mut shard = self.inner.engine().lock();
        let info = shard.adapter().query_qp(self.inner.qpn);
        info.expect("a handle keeps its queue pair alive")
    }

    /// RESET→INIT, and INIT→INIT (`ibv_modify_qp`).
    ///
    /// # Errors
    /// See [`ModifyError`] (`EINVAL`). Nothing has changed then, as with every transition.
    pub fn to_init(&self, init: Init) -> Result<(), ModifyError> {
        self.moved(State::Init, self.engine_command(|adapter, _, qpn| adapter.to_init(qpn, &init)))
    }

    /// INIT→RTR.
    ///
    /// # Errors
    /// See [`ModifyError`] (`EINVAL`).
    pub fn to_rtr(&self, rtr: Rtr) -> Result<(), ModifyError> {
        self.moved(State::Rtr, self.engine_command(|adapter, _, qpn| adapter.to_rtr(qpn, &rtr)))
    }

    /// RTR→RTS; with [`Rts::Resume`] SQD→RTS and SQE→RTS.
    ///
    /// # Errors
    /// See [`ModifyError`] (`EINVAL`).
    pub fn to_rts(&self, rts: Rts) -> Result<(), ModifyError> {
        self.moved(
            State::Rts,
            self.engine_command(|adapter, now, qpn| adapter.to_rts(now, qpn, &rts)),
        )
    }

    /// RTS→SQD: no further request is started. With `notify` an asynchronous event reports when
    /// those that were have completed.
    ///
    /// # Errors
    /// See [`ModifyError`] (`EINVAL`).
    pub fn to_sqd(&self, notify: bool) -> Result<(), ModifyError> {
        self.moved(
            State::Sqd,
            self.engine_command(|adapter, now, qpn| adapter.to_sqd(now, qpn, notify)),
        )
    }

    /// Any state but RESET→ERR: posted requests complete as flushed.
    ///
    /// # Errors
    /// See [`ModifyError`] (`EINVAL`).
    pub fn to_error(&self) -> Result<(), ModifyError> {
        self.moved(State::Err, self.engine_command(|adapter, now, qpn| adapter.to_error(now, qpn)))
    }

    /// Any state→RESET: posted requests are dropped without completions.
    ///
    /// # Errors
    /// See [`ModifyError`] (`EINVAL`).
    pub fn to_reset(&self) -> Result<(), ModifyError> {
        let (reset, requests) = self.engine_command(|adapter, _, qpn| {
            let requests = adapter.abandon_requests(qpn);
            (adapter.to_reset(qpn), requests)
        });
        drop(requests); // without the lock: there may be thousands
        self.moved(State::Reset, reset)
    }

    /// [`to_rtr`](Self::to_rtr) with optional attributes.
    ///
    /// # Errors
    /// See [`ModifyError`] (`EINVAL`).
    pub fn to_rtr_with(&self, rtr: Rtr, changes: QpUpdate) -> Result<(), ModifyError> {
        self.moved(
            State::Rtr,
            self.engine_command(|adapter, _, qpn| adapter.to_rtr_with(qpn, &rtr, &changes)),
        )
    }

    /// [`to_rts`](Self::to_rts) with optional attributes; with
    /// [`Rts::Resume`] also RTS→RTS.
    ///
    /// # Errors
    /// See [`ModifyError`] (`EINVAL`).
    pub fn to_rts_with(&self, rts: Rts, changes: QpUpdate) -> Result<(), ModifyError> {
        self.moved(
            State::Rts,
            self.engine_command(|adapter, now, qpn| adapter.to_rts_with(now, qpn, &rts, &changes)),
        )
    }

    /// Changes attributes in INIT, RTS or SQD without a transition (`ibv_modify_qp` without a new
    /// state).
    ///
    /// # Errors
    /// See [`ModifyError`] (`EINVAL`); [`ModifyError::NotSupported`] is `EOPNOTSUPP`.
    pub fn update(&self, changes: QpUpdate) -> Result<(), ModifyError> {
        self.engine_command(|adapter, now, qpn| adapter.update(now, qpn, &changes))
    }

    /// Posts send requests, in order, and sends what can be sent (`ibv_post_send`). Between
    /// requests of a long list others may use the device, and post, too.
    ///
    /// # Errors
    /// [`BadWorkRequest`] with the first request that is not posted (`ENOMEM` if the queue is full,
    /// else `EINVAL`); those before it are.
    pub fn post_send(&self, wrs: &[SendWr]) -> Result<(), BadWorkRequest> {
        self.post_send_with(|one| post(wrs, one))
    }

    /// Posts receive requests, in order (`ibv_post_recv`).
    ///
    /// # Errors
    /// [`BadWorkRequest`] with the first request that is not posted (`ENOMEM` if the queue is full,
    /// else `EINVAL`); those before it are.
    pub fn post_recv(&self, wrs: &[RecvWr]) -> Result<(), BadWorkRequest> {
        self.post_recv_with(|one| post(wrs, one))
    }

    /// Has a counter count what completes of these operations, signaled or not
    /// (`ibv_qp_attach_comp_cntr`). The queue pair is in RESET or INIT, and keeps the counter.
    ///
    /// # Errors
    /// [`CountError::Counted`] (`EBUSY`) when another counter counts one of the operations; else
    /// `EINVAL`.
    pub fn count_completions(
        &self,
        ops: CountedOps,
        counter: &Arc<CompletionCounter>,
    ) -> Result<(), CountError> {
        let (context, qpn) = (&self.inner.context, self.inner.qpn);
        let result = self
            .inner
            .engine()
            .alter(|adapter| adapter.count_completions(qpn, ops, counter.clone()));
        context.explained("ibv_qp_attach_comp_cntr", result)
    }

    /// Removes the completions of this queue pair that were not polled yet. Drivers of network
    /// cards do so on the way to RESET and when a queue pair is destroyed; here, only this call
    /// does.
    pub fn discard_completions(&self) {
        self.inner.engine().alter(|adapter| adapter.discard_completions(self.inner.qpn));
    }

    /// Posts send requests that are made one by one: `requests` gets a function that posts one. For
    /// programs that translate lists of their own. Packets leave at the end, and now and then on
    /// the way, as with [`post_send`](Self::post_send). Any other call of the same device in
    /// `requests` is a deadlock.
    pub fn post_send_with<R>(
        &self,
        requests: impl FnOnce(&mut dyn FnMut(&SendWr) -> Result<(), PostError>) -> R,
    ) -> R {
        self.inner
            .engine()
            .post(Posted::Send, |posting| requests(&mut |wr| posting.send(self.inner.qpn, wr)))
    }

    /// Posts receive requests that are made one by one, as [`post_send_with`](Self::post_send_with)
    /// does with send requests.
    pub fn post_recv_with<R>(
        &self,
        requests: impl FnOnce(&mut dyn FnMut(&RecvWr) -> Result<(), PostError>) -> R,
    ) -> R {
        self.inner.engine().post(Posted::Receive, |posting| {
            requests(&mut |wr| posting.receive(self.inner.qpn, wr))
        })
    }

    /// Posts all of these requests or none (`ibv_wr_complete`).
    ///
    /// # Errors
    /// [`BadWorkRequest`] with the first request that cannot be posted (`ENOMEM` if they do not all
    /// fit, else `EINVAL`); none is posted then.
    pub fn post_send_all(&self, wrs: &[SendWr]) -> Result<(), BadWorkRequest> {
        let mut checked = true;
        let qpn = self.inner.qpn;
        let posted = self.inner.engine().post_at_once(wrs, |adapter, now| {
            let check = |(index, wr)| {
                adapter.check_send(qpn, wr, index).map_err(|error| BadWorkRequest { index, error })
            };
            wrs.iter().enumerate().try_for_each(check).inspect_err(|_| checked = false)?;
            post(wrs, |wr| adapter.post_send(now, qpn, wr))
        });
        if let Err(error) = posted.as_ref().map_err(|bad| bad.error)
            && !checked
        {
            self.explain_call("ibv_wr_complete", || error.explain());
        }
        posted
    }

    /// Explains a call on this queue pair that failed before the device was asked, if the device
    /// explains. For the C interface.
    #[doc(hidden)]
    pub fn explain_call(&self, call: &str, reason: impl FnOnce() -> Reason) {
        if let Some(diagnosis) = &self.inner.engine().diagnosis {
            diagnosis.tell_call(Some(self.inner.qpn), call, reason());
        }
    }

    /// Logs a transition to this state, or its refusal.
    fn moved(&self, to: State, result: Result<(), ModifyError>) -> Result<(), ModifyError> {
        let (device, qpn) = (self.inner.context.name(), self.inner.qpn);
        match &result {
            Ok(()) => debug!(device, %qpn, "queue pair moved to {to:?}"),
            Err(error) => debug!(device, %qpn, %error, "queue pair not moved to {to:?}"),
        }
        result
    }

    fn engine_command<R>(&self, command: impl FnOnce(&mut Adapter, Instant, Qpn) -> R) -> R {
        self.inner.engine().command(|adapter, now| command(adapter, now, self.inner.qpn))
    }
}

impl fmt::Debug for QueuePair {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("QueuePair")
            .field("context", &self.inner.context)
            .field("qpn", &self.inner.qpn)
            .finish_non_exhaustive()
    }
}
