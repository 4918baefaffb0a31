use std::{convert::Infallible, io, sync::Arc};

use roce_transport::{
    adapter::{Adapter, McastError, ObjectError},
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
use thiserror::Error;
use tracing::debug;

use super::{
    context::Context,
    cq::CompletionQueue,
    domain::{ProtectionDomain, XrcDomain},
    post::{BadWorkRequest, post},
    srq::SharedReceiveQueue,
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
    /// Shared receive queue instead of a private one.
    pub srq: Option<SharedReceiveQueue>,
    /// Queue sizes; an SRQ overrides the receive part.
    pub caps: QpCaps,
    /// True if every send request is signaled. Off by default.
    pub sq_sig_all: bool,
    /// Peer's deviations from the specification. None by default.
    pub quirks: Quirks,
}

impl QpInitAttr {
    /// Attributes with one completion queue and default sizes.
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

/// Queue pair (`ibv_qp`). Dropping its last handle destroys it; outstanding requests do not
/// complete.
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
    resources: QpResources,
}

/// Objects that outlive the queue pair.
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
    /// Creates a queue pair in RESET (`ibv_create_qp`).
    ///
    /// # Errors
    /// [`ObjectError::Size`] (`EINVAL`); [`ObjectError::TooMany`] (`ENOMEM`);
    /// [`ObjectError::Unknown`] (`EINVAL`) for a queue of another device.
    /// [`ObjectError::Mismatch`] (`EINVAL`) for an XRC SRQ, an XRC initiator with an SRQ, or an XRC
    /// target ([`XrcDomain::create_target`]); also for queues of different
    /// [shards](crate::OpenOptions::shards).
    pub fn create_qp(&self, attr: &QpInitAttr) -> Result<QueuePair, ObjectError> {
        // the adapter checks completion queues by identity, an SRQ only by number
        let own = attr.srq.as_ref().map_or(Ok(()), |srq| self.context().check_own(srq.context()));
        self.context().explained("ibv_create_qp", own)?;
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
    /// Creates an XRC target in RESET (`ibv_create_qp_ex`, `IBV_QPT_XRC_RECV`).
    ///
    /// Requests use the queues and domain of the XRC SRQ that they name. The peer is an
    /// [`XrcInitiator`](roce_transport::qp::QpType::XrcInitiator).
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

    /// The device.
    #[must_use]
    pub fn context(&self) -> &Context {
        &self.inner.context
    }

    /// Queue pair number.
    #[must_use]
    pub fn qpn(&self) -> Qpn {
        self.inner.qpn
    }

    pub(crate) fn is_in_first_shard(&self) -> bool {
        self.inner.shard == 0
    }

    /// True with a shared receive queue; an XRC target has one.
    pub(crate) fn has_srq(&self) -> bool {
        matches!(
            &self.inner.resources,
            QpResources::XrcTarget(_) | QpResources::Queues { srq: Some(_), .. }
        )
    }

    /// Attributes (`ibv_query_qp`).
    #[must_use]
    pub fn query(&self) -> QpInfo {
        let mut shard = self.inner.engine().lock();
        let info = shard.adapter().query_qp(self.inner.qpn);
        info.expect("a handle keeps its queue pair alive")
    }

    /// Moves RESET→INIT or INIT→INIT (`ibv_modify_qp`).
    ///
    /// # Errors
    /// As for every transition: see [`ModifyError`] (`EINVAL`); nothing changes on error.
    pub fn to_init(&self, init: Init) -> Result<(), ModifyError> {
        self.transition(State::Init, |adapter, _, qpn| adapter.to_init(qpn, &init))
    }

    /// Moves INIT→RTR.
    ///
    /// # Errors
    /// See [`ModifyError`] (`EINVAL`).
    pub fn to_rtr(&self, rtr: Rtr) -> Result<(), ModifyError> {
        self.to_rtr_with(rtr, QpUpdate::NONE)
    }

    /// Moves RTR→RTS; with [`Rts::Resume`] SQD→RTS and SQE→RTS.
    ///
    /// # Errors
    /// See [`ModifyError`] (`EINVAL`).
    pub fn to_rts(&self, rts: Rts) -> Result<(), ModifyError> {
        self.to_rts_with(rts, QpUpdate::NONE)
    }

    /// Moves RTS→SQD: no new request starts; with `notify` an event reports when started ones
    /// complete.
    ///
    /// # Errors
    /// See [`ModifyError`] (`EINVAL`).
    pub fn to_sqd(&self, notify: bool) -> Result<(), ModifyError> {
        self.transition(State::Sqd, |adapter, now, qpn| adapter.to_sqd(now, qpn, notify))
    }

    /// Moves any state but RESET to ERR: requests complete as flushed.
    ///
    /// # Errors
    /// See [`ModifyError`] (`EINVAL`).
    pub fn to_error(&self) -> Result<(), ModifyError> {
        self.transition(State::Err, |adapter, now, qpn| adapter.to_error(now, qpn))
    }

    /// Moves any state to RESET: requests are dropped without completions.
    ///
    /// # Errors
    /// See [`ModifyError`] (`EINVAL`).
    pub fn to_reset(&self) -> Result<(), ModifyError> {
        let mut requests = None;
        let reset = self.transition(State::Reset, |adapter, _, qpn| {
            requests = Some(adapter.abandon_requests(qpn));
            adapter.to_reset(qpn)
        });
        drop(requests); // without the lock: there may be thousands
        reset
    }

    /// Calls [`to_rtr`](Self::to_rtr) with optional attributes.
    ///
    /// # Errors
    /// See [`ModifyError`] (`EINVAL`).
    pub fn to_rtr_with(&self, rtr: Rtr, changes: QpUpdate) -> Result<(), ModifyError> {
        self.transition(State::Rtr, |adapter, _, qpn| adapter.to_rtr_with(qpn, &rtr, &changes))
    }

    /// Calls [`to_rts`](Self::to_rts) with optional attributes; with [`Rts::Resume`] also RTS→RTS.
    ///
    /// # Errors
    /// See [`ModifyError`] (`EINVAL`).
    pub fn to_rts_with(&self, rts: Rts, changes: QpUpdate) -> Result<(), ModifyError> {
        self.transition(State::Rts, |adapter, now, qpn| {
            adapter.to_rts_with(now, qpn, &rts, &changes)
        })
    }

    /// Changes attributes in INIT, RTS or SQD, without a new state (`ibv_modify_qp`).
    ///
    /// # Errors
    /// See [`ModifyError`] (`EINVAL`); [`ModifyError::NotSupported`] is `EOPNOTSUPP`.
    pub fn update(&self, changes: QpUpdate) -> Result<(), ModifyError> {
        self.engine_command(|adapter, now, qpn| adapter.update(now, qpn, &changes))
    }

    /// Posts send requests in order and starts them (`ibv_post_send`).
    ///
    /// Others may use the device between requests of a long list.
    ///
    /// # Errors
    /// [`BadWorkRequest`] (`ENOMEM` if full, else `EINVAL`).
    pub fn post_send(&self, wrs: &[SendWr]) -> Result<(), BadWorkRequest> {
        self.post_send_with(|one| post(wrs, one))
    }

    /// Posts receive requests in order (`ibv_post_recv`).
    ///
    /// # Errors
    /// [`BadWorkRequest`] with the first request not posted (`ENOMEM` if full, else `EINVAL`).
    pub fn post_recv(&self, wrs: &[RecvWr]) -> Result<(), BadWorkRequest> {
        self.post_recv_with(|one| post(wrs, one))
    }

    /// Attaches a counter of completions of these operations, signaled or not
    /// (`ibv_qp_attach_comp_cntr`).
    ///
    /// Allowed in RESET and INIT; the queue pair keeps the counter.
    ///
    /// # Errors
    /// [`CountError::Counted`] (`EBUSY`) if an operation has another counter; else `EINVAL`.
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

    /// Removes this queue pair's unpolled completions. NIC drivers do this on RESET and
    /// destruction; here only this call does.
    pub fn discard_completions(&self) {
        self.inner.engine().alter(|adapter| adapter.discard_completions(self.inner.qpn));
    }

    /// Posts send requests one by one: `requests` gets a function that posts one.
    ///
    /// Packets leave as with [`post_send`](Self::post_send). Other calls of the device inside
    /// `requests` deadlock.
    pub fn post_send_with<R>(
        &self,
        requests: impl FnOnce(&mut dyn FnMut(&SendWr) -> Result<(), PostError>) -> R,
    ) -> R {
        self.inner
            .engine()
            .post(Posted::Send, |posting| requests(&mut |wr| posting.send(self.inner.qpn, wr)))
    }

    /// Posts receive requests one by one, as [`post_send_with`](Self::post_send_with) does.
    pub fn post_recv_with<R>(
        &self,
        requests: impl FnOnce(&mut dyn FnMut(&RecvWr) -> Result<(), PostError>) -> R,
    ) -> R {
        self.inner.engine().post(Posted::Receive, |posting| {
            requests(&mut |wr| posting.receive(self.inner.qpn, wr))
        })
    }

    /// Posts all requests or none (`ibv_wr_complete`).
    ///
    /// # Errors
    /// [`BadWorkRequest`] (`ENOMEM` if the list does not fit, else `EINVAL`).
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
        if let Err(BadWorkRequest { index, error }) = posted
            && !checked
        {
            let (wr_id, number) = (wrs[index].wr_id, index + 1);
            let call = format!("ibv_wr_complete {wr_id}, request {number} of its batch");
            self.explain_call(&call, || error.explain());
        }
        posted
    }

    /// Explains a call that failed before the device saw it. For the C interface.
    #[doc(hidden)]
    pub fn explain_call(&self, call: &str, reason: impl FnOnce() -> Reason) {
        if let Some(diagnosis) = &self.inner.engine().diagnosis {
            diagnosis.report_call(Some(self.inner.qpn), call, reason());
        }
    }

    fn transition(
        &self,
        to: State,
        command: impl FnOnce(&mut Adapter, Instant, Qpn) -> Result<(), ModifyError>,
    ) -> Result<(), ModifyError> {
        let result = self.engine_command(command);
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

opaque_debug!(QueuePair, |this| context: this.inner.context, qpn: this.inner.qpn);

/// Error of attaching to a multicast group; nothing changed.
#[derive(Debug, Error)]
#[non_exhaustive]
#[allow(missing_docs, reason = "an error's comment describes its fields")]
pub enum AttachError {
    /// Refused by the adapter.
    #[error(transparent)]
    Adapter(#[from] McastError),
    /// The link cannot join the group.
    #[error("cannot join {group}: {source}")]
    Join { group: Gid, source: io::Error },
}

impl QueuePair {
    /// Attaches a UD queue pair to a multicast group, IPv6 or mapped IPv4 (`ibv_attach_mcast`,
    /// without LID).
    ///
    /// The queue pair receives datagrams to the group with
    /// [`Qpn::MULTICAST`](roce_transport::addr::Qpn::MULTICAST) and its Q_Key, its own included.
    /// The device leaves the group with the last queue pair.
    ///
    /// # Errors
    /// [`AttachError::Adapter`] for another service or no group (`EINVAL`), or too many groups or
    /// members (`ENOMEM`); [`AttachError::Join`] if the link cannot join (system's error).
    pub fn attach_mcast(&self, group: Gid) -> Result<(), AttachError> {
        let attached = self.inner.engine().join_group(
            group.to_ip(),
            |adapter| adapter.attach_mcast(self.qpn(), group),
            |adapter| {
                let _ = adapter.detach_mcast(self.qpn(), group);
            },
        );
        let joined = attached
            .map_err(AttachError::from)
            .and_then(|joined| joined.map_err(|source| AttachError::Join { group, source }));
        self.context().explained("ibv_attach_mcast", joined)
    }

    /// Detaches from a multicast group (`ibv_detach_mcast`).
    ///
    /// # Errors
    /// [`McastError::NotAttached`], [`McastError::WrongService`] (both `EINVAL`).
    pub fn detach_mcast(&self, group: Gid) -> Result<(), McastError> {
        let left = self.inner.engine().leave_groups(|adapter| {
            let is_last = adapter.detach_mcast(self.qpn(), group)?;
            Ok(is_last.then(|| group.to_ip()).into_iter().collect())
        });
        self.context().explained("ibv_detach_mcast", left)
    }
}
