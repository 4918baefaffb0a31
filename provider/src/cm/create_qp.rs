//! Queue pair of an id.

use roce_transport::{
    adapter::{ObjectError, ObjectMismatch},
    cm::QpSetup,
    psn::Psn,
    qp::MAX_RD_ATOMIC,
};

use super::{
    error::CmError,
    id::{CmId, IdInner},
    kind::IdState,
    queues::{CmQpAttr, Completions, Queues, is_xrc, prepare},
};
use crate::{CompletionChannel, CompletionQueue, Context, ProtectionDomain, QpInitAttr, QueuePair};

impl CmId {
    /// Creates the queue pair (`rdma_create_qp`) in `pd`, or the channel's domain.
    ///
    /// The queue pair is in INIT, UD in RTS. The peer has READ, WRITE and atomic access where
    /// regions allow.
    ///
    /// # Errors
    /// [`CmError::NoDevice`], [`CmError::HasQueuePair`], [`CmError::Object`], [`CmError::Modify`];
    /// [`CmError::Io`] (`EMFILE`).
    pub fn create_qp(&self, pd: Option<&ProtectionDomain>, attr: &CmQpAttr) -> Result<(), CmError> {
        let mut inner = self.inner();
        if inner.has_qp() {
            return Err(CmError::HasQueuePair);
        }
        let context = inner.device_addr()?.context.clone();
        let pd = match pd {
            Some(pd) => pd.clone(),
            None => inner.events.channel.default_domain(&context)?,
        };
        context.check_own(pd.context())?;
        let send = Completions::new(&context, attr.send_cq.as_ref(), attr.caps.max_send_wr)?;
        let recv = Completions::new(&context, attr.recv_cq.as_ref(), attr.caps.max_recv_wr)?;
        send.cq.prefer_first_shard();
        recv.cq.prefer_first_shard();
        let qp = pd.create_qp(&QpInitAttr {
            qp_type: inner.options.qp_type,
            send_cq: send.cq.clone(),
            recv_cq: recv.cq.clone(),
            srq: attr.srq.clone(),
            caps: attr.caps,
            sq_sig_all: attr.sq_sig_all,
            quirks: attr.quirks,
        })?;
        prepare(&qp)?;
        self.shared().state().qpn = Some(qp.qpn());
        inner.queues = Some(Queues { qp, pd, send, recv, srq: attr.srq.is_some() });
        Ok(())
    }

    /// Adopts a program's queue pair in RESET, as if by [`create_qp`](Self::create_qp).
    ///
    /// The program still destroys the queue pair, and attaches multicast groups.
    ///
    /// # Errors
    /// [`CmError::NoDevice`]; [`CmError::HasQueuePair`]; [`CmError::Object`] for another device or
    /// [shard](crate::OpenOptions::shards) than the first; [`CmError::WrongService`] for another
    /// type; [`CmError::Modify`].
    pub fn adopt_qp(&self, qp: &QueuePair) -> Result<(), CmError> {
        let mut inner = self.inner();
        if inner.has_qp() {
            return Err(CmError::HasQueuePair);
        }
        inner.device_addr()?.context.check_own(qp.context())?;
        if !qp.is_in_first_shard() {
            return Err(ObjectError::from(ObjectMismatch::Shards).into());
        }
        let qp_type = qp.query().qp_type;
        // one id serves both ends of XRC
        if qp_type != inner.options.qp_type && !(is_xrc(qp_type) && is_xrc(inner.options.qp_type)) {
            return Err(CmError::WrongService(qp_type));
        }
        prepare(qp)?;
        self.shared().state().qpn = Some(qp.qpn());
        inner.adopted = Some((qp.qpn(), qp.has_srq()));
        Ok(())
    }

    /// Releases the queue pair (`rdma_destroy_qp`), destroyed by its last handle.
    pub fn destroy_qp(&self) {
        let queues = {
            let mut inner = self.inner();
            self.shared().state().qpn = None;
            inner.adopted = None;
            inner.groups.values_mut().for_each(|attached| *attached = false);
            inner.queues.take()
        };
        drop(queues);
    }

    /// Queue pair (`id->qp`).
    #[must_use]
    pub fn qp(&self) -> Option<QueuePair> {
        self.inner().queues.as_ref().map(|queues| queues.qp.clone())
    }

    /// Domain of the queue pair (`id->pd`), or of a future one.
    ///
    /// # Errors
    /// [`CmError::NoDevice`]; [`CmError::Object`] (`ENOMEM`).
    pub fn pd(&self) -> Result<ProtectionDomain, CmError> {
        let inner = self.inner();
        match &inner.queues {
            Some(queues) => Ok(queues.pd.clone()),
            None => inner.events.channel.default_domain(&inner.device_addr()?.context),
        }
    }

    /// Send completion queue (`id->send_cq`).
    #[must_use]
    pub fn send_cq(&self) -> Option<CompletionQueue> {
        self.inner().queues.as_ref().map(|queues| queues.send.cq.clone())
    }

    /// Receive completion queue (`id->recv_cq`).
    #[must_use]
    pub fn recv_cq(&self) -> Option<CompletionQueue> {
        self.inner().queues.as_ref().map(|queues| queues.recv.cq.clone())
    }

    /// Channel of the send completion queue (`id->send_cq_channel`).
    #[must_use]
    pub fn send_cq_channel(&self) -> Option<CompletionChannel> {
        self.inner().queues.as_ref().and_then(|queues| queues.send.channel.clone())
    }

    /// Channel of the receive completion queue (`id->recv_cq_channel`).
    #[must_use]
    pub fn recv_cq_channel(&self) -> Option<CompletionChannel> {
        self.inner().queues.as_ref().and_then(|queues| queues.recv.channel.clone())
    }

    /// Attributes for a queue pair that the program moves (`rdma_init_qp_attr`).
    ///
    /// Available from the request or response until established. The accepting side has them until
    /// the end: the confirmation may overtake the program. Before acceptance, READ and atomic
    /// limits are the peer's.
    #[must_use]
    pub fn qp_setup(&self) -> Option<QpSetup> {
        let mut inner = self.inner();
        let (conn, requested) = {
            let state = self.shared().state();
            let waits = state.state == IdState::RequestReceived;
            (
                state.conn?,
                state.request.as_ref().filter(|_| waits).and_then(|request| request.conn.clone()),
            )
        };
        let context = inner.device_addr.as_ref()?.context.clone();
        let mut setup = context.inner.engine.lock().adapter().cm().qp_setup(conn)?;
        if let Some(requested) = requested {
            setup.rq_psn = inner.first_psn(&context);
            setup.max_dest_rd_atomic = requested.responder_resources.min(MAX_RD_ATOMIC);
            setup.max_rd_atomic = requested.initiator_depth.min(MAX_RD_ATOMIC);
            setup.min_rnr_timer = inner.options.min_rnr_timer;
        }
        Some(setup)
    }
}

impl IdInner {
    const fn has_qp(&self) -> bool {
        self.queues.is_some() || self.adopted.is_some()
    }

    pub(super) fn first_psn(&mut self, context: &Context) -> Psn {
        *self.psn.get_or_insert_with(|| context.random_psn())
    }
}
