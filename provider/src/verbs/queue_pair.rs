//! Queue pairs.

use std::{fmt, io, sync::Arc};

use roce_transport::{
    adapter::{Adapter, McastError, ObjectError},
    addr::{AddressVector, Gid, Mtu, Qpn},
    mem::Access,
    psn::Psn,
    qp::{
        Init, ModifyError, PostError, QpCaps, QpInfo, QpInit, QpType, QpUpdate, Quirks, Rtr, Rts,
        State,
    },
    time::Instant,
    work::{RecvWr, SendWr},
};
use thiserror::Error;

use super::{CompletionQueue, Context, ProtectionDomain, SharedReceiveQueue, XrcDomain};

/// What a new queue pair is (`ibv_qp_init_attr`).
#[derive(Clone, Debug)]
pub struct QpInitAttr {
    /// Its service.
    pub qp_type: QpType,
    /// Where its send requests complete.
    pub send_cq: CompletionQueue,
    /// Where its receive requests complete; an XRC initiator has none.
    pub recv_cq: CompletionQueue,
    /// A shared receive queue that it receives from, instead of a queue of its own.
    pub srq: Option<SharedReceiveQueue>,
    /// Its sizes; with a shared receive queue those of the receive queue mean nothing.
    pub caps: QpCaps,
    /// Every send request is signaled, whatever its flags say. Off by default.
    pub sq_sig_all: bool,
    /// What its peer does otherwise than the specification. Nothing by default.
    pub quirks: Quirks,
}

impl QpInitAttr {
    /// A queue pair that completes everything in one queue, with default sizes.
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

/// What a peer must know to connect to a queue pair.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct Endpoint {
    /// Its address.
    pub gid: Gid,
    /// Its number.
    pub qpn: Qpn,
    /// The first PSN that it sends.
    pub psn: Psn,
}

/// A queue pair (`ibv_qp`). Destroyed with its last handle; what is still posted then gives no
/// completions.
#[derive(Clone)]
pub struct QueuePair {
    inner: Arc<QpInner>,
}

struct QpInner {
    context: Context,
    qpn: Qpn,
    psn: Psn,
    /// Held so that they outlive it.
    parts: Parts,
}

/// What a queue pair is made from.
enum Parts {
    Queues { _pd: ProtectionDomain, _cqs: [CompletionQueue; 2], srq: Option<SharedReceiveQueue> },
    XrcTarget(#[allow(dead_code, reason = "only held")] XrcDomain),
}

impl Drop for QpInner {
    fn drop(&mut self) {
        let mut shard = self.context.inner.engine.lock();
        let (adapter, link) = shard.adapter_and_link();
        let groups: Vec<_> = adapter.mcast_groups(Some(self.qpn)).collect();
        for group in groups {
            if adapter.detach_mcast(self.qpn, group) == Ok(true) {
                link.leave(group.to_ip());
            }
        }
        let _ = adapter.destroy_qp(self.qpn);
    }
}

/// Why posting a list stopped. The requests before `index` are posted.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Error)]
#[error("request {index}: {error}")]
pub struct BadWorkRequest {
    /// The first request that is not posted.
    pub index: usize,
    /// What is wrong with it.
    pub error: PostError,
}

/// Why a queue pair cannot be connected.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Error)]
pub enum ConnectError {
    /// No own GID of the peer's address family.
    #[error("this device has no address of the same family as the peer's {0}")]
    NoAddress(Gid),
    /// A transition was refused.
    #[error(transparent)]
    Modify(#[from] ModifyError),
}

/// Why a queue pair cannot be attached to a multicast group. Nothing has changed.
#[derive(Debug, Error)]
pub enum AttachError {
    /// The adapter refuses.
    #[error(transparent)]
    Adapter(#[from] McastError),
    /// The link cannot join the group.
    #[error("cannot join {group}: {source}")]
    Join {
        /// The group.
        group: Gid,
        /// What the system said.
        source: io::Error,
    },
}

impl QueuePair {
    pub(super) fn new(pd: &ProtectionDomain, attr: &QpInitAttr) -> Result<Self, ObjectError> {
        // the adapter knows its completion queues themselves, but of a shared receive queue only
        // the number
        if attr.srq.as_ref().is_some_and(|srq| !srq.is_of(pd.context())) {
            return Err(ObjectError::Unknown);
        }
        let init = QpInit {
            qp_type: attr.qp_type,
            send_cq: attr.send_cq.inner.ring.clone(),
            recv_cq: attr.recv_cq.inner.ring.clone(),
            srq: attr.srq.as_ref().map(SharedReceiveQueue::id),
            caps: attr.caps,
            sq_sig_all: attr.sq_sig_all,
            pd: pd.inner.id,
            quirks: attr.quirks,
        };
        let cqs = [attr.send_cq.clone(), attr.recv_cq.clone()];
        let parts = Parts::Queues { _pd: pd.clone(), _cqs: cqs, srq: attr.srq.clone() };
        Self::create(pd.context(), parts, |adapter| adapter.create_qp(init))
    }

    pub(super) fn new_target(xrcd: &XrcDomain) -> Result<Self, ObjectError> {
        Self::create(xrcd.context(), Parts::XrcTarget(xrcd.clone()), |adapter| {
            adapter.create_xrc_target(xrcd.id())
        })
    }

    fn create(
        context: &Context,
        parts: Parts,
        create: impl FnOnce(&mut Adapter) -> Result<Qpn, ObjectError>,
    ) -> Result<Self, ObjectError> {
        let mut shard = context.inner.engine.lock();
        let (qpn, psn) = (create(shard.adapter())?, shard.adapter().random_psn());
        drop(shard);
        Ok(Self { inner: Arc::new(QpInner { context: context.clone(), qpn, psn, parts }) })
    }

    /// The device it belongs to.
    #[must_use]
    pub fn context(&self) -> &Context {
        &self.inner.context
    }

    /// Its number.
    #[must_use]
    pub fn qpn(&self) -> Qpn {
        self.inner.qpn
    }

    /// Whether it receives from a shared receive queue; an XRC target does.
    pub(crate) fn has_srq(&self) -> bool {
        matches!(&self.inner.parts, Parts::XrcTarget(_) | Parts::Queues { srq: Some(_), .. })
    }

    /// What it tells of itself (`ibv_query_qp`).
    ///
    /// # Panics
    /// Never: the handle keeps the queue pair alive.
    #[must_use]
    pub fn query(&self) -> QpInfo {
        let engine = &self.inner.context.inner.engine;
        engine
            .command(|adapter, _| adapter.query_qp(self.inner.qpn))
            .expect("a handle keeps its queue pair alive")
    }

    /// RESET→INIT, and INIT→INIT (`ibv_modify_qp`).
    ///
    /// # Errors
    /// See [`ModifyError`] (`EINVAL`); then nothing has changed. The same holds for every
    /// transition.
    pub fn to_init(&self, init: Init) -> Result<(), ModifyError> {
        self.engine_command(|adapter, _, qpn| adapter.to_init(qpn, &init))
    }

    /// INIT→RTR.
    ///
    /// # Errors
    /// See [`ModifyError`] (`EINVAL`).
    pub fn to_rtr(&self, rtr: Rtr) -> Result<(), ModifyError> {
        self.engine_command(|adapter, _, qpn| adapter.to_rtr(qpn, &rtr))
    }

    /// RTR→RTS; with [`Rts::Resume`] SQD→RTS and SQE→RTS.
    ///
    /// # Errors
    /// See [`ModifyError`] (`EINVAL`).
    pub fn to_rts(&self, rts: Rts) -> Result<(), ModifyError> {
        self.engine_command(|adapter, now, qpn| adapter.to_rts(now, qpn, &rts))
    }

    /// RTS→SQD: nothing new is sent. With `notify` an asynchronous event tells when the rest has
    /// completed.
    ///
    /// # Errors
    /// See [`ModifyError`] (`EINVAL`).
    pub fn to_sqd(&self, notify: bool) -> Result<(), ModifyError> {
        self.engine_command(|adapter, now, qpn| adapter.to_sqd(now, qpn, notify))
    }

    /// Any state but RESET to ERR: everything posted completes as flushed.
    ///
    /// # Errors
    /// See [`ModifyError`] (`EINVAL`).
    pub fn to_error(&self) -> Result<(), ModifyError> {
        self.engine_command(|adapter, now, qpn| adapter.to_error(now, qpn))
    }

    /// Any state to RESET: everything posted is forgotten without completions.
    ///
    /// # Errors
    /// See [`ModifyError`] (`EINVAL`).
    pub fn to_reset(&self) -> Result<(), ModifyError> {
        self.engine_command(|adapter, _, qpn| adapter.to_reset(qpn))
    }

    /// The same as [`to_rtr`](Self::to_rtr), with optional attributes changed on the way.
    ///
    /// # Errors
    /// See [`ModifyError`] (`EINVAL`).
    pub fn to_rtr_with(&self, rtr: Rtr, changes: QpUpdate) -> Result<(), ModifyError> {
        self.engine_command(|adapter, _, qpn| adapter.to_rtr_with(qpn, &rtr, &changes))
    }

    /// The same as [`to_rts`](Self::to_rts), with optional attributes changed on the way; with
    /// [`Rts::Resume`] also RTS→RTS.
    ///
    /// # Errors
    /// See [`ModifyError`] (`EINVAL`).
    pub fn to_rts_with(&self, rts: Rts, changes: QpUpdate) -> Result<(), ModifyError> {
        self.engine_command(|adapter, now, qpn| adapter.to_rts_with(now, qpn, &rts, &changes))
    }

    /// QpUpdate attributes in INIT, RTS or SQD and stays there (`ibv_modify_qp` without a new
    /// state).
    ///
    /// # Errors
    /// See [`ModifyError`] (`EINVAL`); [`ModifyError::NotSupported`] is `EOPNOTSUPP`.
    pub fn update(&self, changes: QpUpdate) -> Result<(), ModifyError> {
        self.engine_command(|adapter, now, qpn| adapter.update(now, qpn, &changes))
    }

    /// Attaches a datagram queue pair to a multicast group (`ibv_attach_mcast`; there is no LID
    /// here): an IPv6 multicast address, or an IPv4 one, mapped. From now on it receives what is
    /// sent to the group with the destination queue pair [`Qpn::MULTICAST`] and its own Q_Key, what
    /// it sends there itself included. The group is left with the last queue pair that is detached
    /// or dropped.
    ///
    /// # Errors
    /// [`AttachError::Adapter`]: no datagram queue pair or no group (`EINVAL`), too many groups or members (`ENOMEM`);
    /// [`AttachError::Join`] when the link cannot join (the system's error).
    pub fn attach_mcast(&self, group: Gid) -> Result<(), AttachError> {
        let mut shard = self.inner.context.inner.engine.lock();
        let (adapter, link) = shard.adapter_and_link();
        if adapter.attach_mcast(self.inner.qpn, group)?
            && let Err(source) = link.join(group.to_ip())
        {
            adapter.detach_mcast(self.inner.qpn, group)?;
            return Err(AttachError::Join { group, source });
        }
        Ok(())
    }

    /// Detaches a queue pair from a multicast group (`ibv_detach_mcast`).
    ///
    /// # Errors
    /// [`McastError::NotAttached`], [`McastError::WrongService`] (both `EINVAL`).
    pub fn detach_mcast(&self, group: Gid) -> Result<(), McastError> {
        let mut shard = self.inner.context.inner.engine.lock();
        let (adapter, link) = shard.adapter_and_link();
        if adapter.detach_mcast(self.inner.qpn, group)? {
            link.leave(group.to_ip());
        }
        Ok(())
    }

    /// What a peer needs to connect here, with the own address at `gid_index`. `None`: no such
    /// address.
    #[must_use]
    pub fn endpoint(&self, gid_index: u16) -> Option<Endpoint> {
        let gid = self.inner.context.gids().get(usize::from(gid_index)).copied()?;
        Some(Endpoint { gid, qpn: self.inner.qpn, psn: self.inner.psn })
    }

    /// Takes a new queue pair, RC or XRC, all the way to RTS: path MTU as the port has it, all
    /// remote rights, 16 READs each way, acknowledge timeout 14 (67 ms), 7 retries, no limit on
    /// "receiver not ready" (timer 12, 0.64 ms). The peer must do the same with this side's
    /// [`endpoint`](Self::endpoint). An XRC initiator's peer is a target, and the other way round.
    ///
    /// # Errors
    /// [`ConnectError::NoAddress`]; [`ConnectError::Modify`] when the queue pair is not in RESET or
    /// of another service (all `EINVAL`). One that was in RESET still is.
    pub fn connect_to(&self, peer: Endpoint) -> Result<(), ConnectError> {
        self.connect_with_mtu(peer, self.inner.context.active_mtu())
    }

    /// The same with a given path MTU, which both ends must have alike.
    ///
    /// # Errors
    /// As above.
    pub fn connect_with_mtu(&self, peer: Endpoint, path_mtu: Mtu) -> Result<(), ConnectError> {
        let context = &self.inner.context;
        let wants_v4 = peer.gid.to_ip().is_ipv4();
        let own = context
            .gids()
            .iter()
            .position(|gid| !gid.is_zero() && gid.to_ip().is_ipv4() == wants_v4);
        let sgid_index = own.ok_or(ConnectError::NoAddress(peer.gid))? as u16;
        let QpInfo { qp_type, state, .. } = self.query();
        let access = Access::REMOTE_CHANGE
            | Access::REMOTE_READ
            | Access::FLUSH_GLOBAL
            | Access::FLUSH_PERSISTENT;
        let (dest_qpn, rq_psn, sq_psn) = (peer.qpn, peer.psn, self.inner.psn);
        let av = AddressVector::new(peer.gid, sgid_index);
        let (max_dest_rd_atomic, min_rnr_timer) = (16, 12);
        let (timeout, retry_cnt, rnr_retry, max_rd_atomic) = (14, 7, 7, 16);
        let (rtr, rts) = match qp_type {
            QpType::XrcInitiator => (
                Rtr::XrcInitiator { dest_qpn, path_mtu, rq_psn, av },
                Rts::XrcInitiator { sq_psn, timeout, retry_cnt, rnr_retry, max_rd_atomic },
            ),
            QpType::XrcTarget => (
                Rtr::XrcTarget {
                    dest_qpn,
                    path_mtu,
                    rq_psn,
                    av,
                    max_dest_rd_atomic,
                    min_rnr_timer,
                },
                Rts::XrcTarget { sq_psn, timeout },
            ),
            QpType::Uc | QpType::Ud => return Err(ModifyError::WrongService(qp_type).into()),
            QpType::Rc => (
                Rtr::Rc { dest_qpn, path_mtu, rq_psn, av, max_dest_rd_atomic, min_rnr_timer },
                Rts::Rc { sq_psn, timeout, retry_cnt, rnr_retry, max_rd_atomic },
            ),
        };
        self.to_init(Init { access, ..Init::default() })?;
        self.to_rtr(rtr).and_then(|()| self.to_rts(rts)).or_else(|error| {
            if state == State::Reset {
                self.to_reset()?;
            }
            Err(error.into())
        })
    }

    /// Posts send requests, in order, and sends what can be sent (`ibv_post_send`).
    ///
    /// # Errors
    /// [`BadWorkRequest`] tells the first that is not posted (`ENOMEM` when the queue is full, else
    /// `EINVAL`); those before it are.
    pub fn post_send(&self, wrs: &[SendWr]) -> Result<(), BadWorkRequest> {
        self.engine_command(|adapter, now, qpn| post(wrs, |wr| adapter.post_send(now, qpn, wr)))
    }

    /// Posts receive requests, in order (`ibv_post_recv`).
    ///
    /// # Errors
    /// [`BadWorkRequest`] tells the first that is not posted (`ENOMEM` when the queue is full, else
    /// `EINVAL`); those before it are.
    pub fn post_recv(&self, wrs: &[RecvWr]) -> Result<(), BadWorkRequest> {
        self.receive(|adapter, now, qpn| post(wrs, |wr| adapter.post_recv(now, qpn, wr)))
    }

    /// Takes back every completion of this queue pair that nobody has taken yet: whoever polls does
    /// not find them. Drivers of network cards do so on the way to RESET and when a queue pair is
    /// destroyed; here, it is the program's to say.
    pub fn discard_completions(&self) {
        self.inner.context.inner.engine.lock().adapter().discard_completions(self.inner.qpn);
    }

    /// Posts requests that are made one by one: `requests` gets a function that posts one. For
    /// those who translate lists of their own and need no second one; everything goes out at the
    /// end, as with [`post_send`](Self::post_send). Calling anything else of the same device in
    /// `requests` waits for ever.
    pub fn post_send_with<R>(
        &self,
        requests: impl FnOnce(&mut dyn FnMut(&SendWr) -> Result<(), PostError>) -> R,
    ) -> R {
        self.engine_command(|adapter, now, qpn| requests(&mut |wr| adapter.post_send(now, qpn, wr)))
    }

    /// The same for receive requests.
    pub fn post_recv_with<R>(
        &self,
        requests: impl FnOnce(&mut dyn FnMut(&RecvWr) -> Result<(), PostError>) -> R,
    ) -> R {
        self.receive(|adapter, now, qpn| requests(&mut |wr| adapter.post_recv(now, qpn, wr)))
    }

    /// Posts all of these requests or none (`ibv_wr_complete`).
    ///
    /// # Errors
    /// [`BadWorkRequest`] tells the first that cannot be posted (`ENOMEM` when they do not all fit,
    /// else `EINVAL`); then nothing has been posted.
    pub fn post_send_all(&self, wrs: &[SendWr]) -> Result<(), BadWorkRequest> {
        self.engine_command(|adapter, now, qpn| {
            let check = |(index, wr)| {
                adapter.check_send(qpn, wr, index).map_err(|error| BadWorkRequest { index, error })
            };
            wrs.iter().enumerate().try_for_each(check)?;
            post(wrs, |wr| adapter.post_send(now, qpn, wr))
        })
    }

    fn engine_command<R>(&self, command: impl FnOnce(&mut Adapter, Instant, Qpn) -> R) -> R {
        self.inner
            .context
            .inner
            .engine
            .command(|adapter, now| command(adapter, now, self.inner.qpn))
    }

    fn receive<R>(&self, post: impl FnOnce(&mut Adapter, Instant, Qpn) -> R) -> R {
        self.inner.context.inner.engine.post_recv(|adapter, now| post(adapter, now, self.inner.qpn))
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

pub(super) fn post<W>(
    wrs: &[W],
    mut one: impl FnMut(&W) -> Result<(), PostError>,
) -> Result<(), BadWorkRequest> {
    wrs.iter()
        .enumerate()
        .try_for_each(|(index, wr)| one(wr).map_err(|error| BadWorkRequest { index, error }))
}
