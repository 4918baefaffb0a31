//! The queue pair of an id, and posting to it in one call.

use roce_transport::{
    adapter::ObjectError,
    cm::QpSetup,
    mem::Access,
    psn::Psn,
    qp::{Init, MAX_RD_ATOMIC, ModifyError, QpCaps, QpType, Quirks, Rtr, Rts},
    work::{Data, NotifyKind, RecvWr, Remote, SendFlags, SendOp, SendWr, Sge, UdDestination, Wc},
};

use super::{
    CmError, CmId, UDP_QKEY,
    id::{IdState, Parts},
};
use crate::{
    CompletionChannel, CompletionQueue, Context, MemoryRegion, ProtectionDomain, QpInitAttr,
    QueuePair, SharedReceiveQueue,
};

/// What the queue pair of an id is made from (`ibv_qp_init_attr`); its type is that of the id.
#[derive(Clone, Debug, Default)]
pub struct CmQpAttr {
    /// Where its send requests complete. Without one the id makes one, as large as the send queue,
    /// with a channel.
    pub send_cq: Option<CompletionQueue>,
    /// Where its receive requests complete. Without one the id makes one, as large as the receive
    /// queue, with a channel.
    pub recv_cq: Option<CompletionQueue>,
    /// A shared receive queue that it receives from, instead of a queue of its own.
    pub srq: Option<SharedReceiveQueue>,
    /// Its sizes.
    pub caps: QpCaps,
    /// Every send request is signaled, whatever its flags say. Off by default.
    pub sq_sig_all: bool,
    /// What its peer does otherwise than the specification. Nothing by default.
    pub quirks: Quirks,
}

/// A queue pair with what belongs to it.
pub(super) struct Queues {
    pub(super) qp: QueuePair,
    pub(super) pd: ProtectionDomain,
    pub(super) send: Completions,
    pub(super) recv: Completions,
    pub(super) srq: bool,
}

/// Where completions come, and, if the id has made the queue, who tells of them.
#[derive(Clone)]
pub(super) struct Completions {
    pub(super) cq: CompletionQueue,
    channel: Option<CompletionChannel>,
}

impl Completions {
    fn new(context: &Context, given: Option<&CompletionQueue>, size: u32) -> Result<Self, CmError> {
        if let Some(cq) = given {
            return Ok(Self { cq: cq.clone(), channel: None });
        }
        let channel = context.create_channel()?;
        let cq = context.create_cq(size.max(1) as usize, Some(&channel))?;
        Ok(Self { cq, channel: Some(channel) })
    }

    /// The next completion, however long it takes.
    fn next(&self) -> Result<Wc, CmError> {
        loop {
            if let Some(wc) = self.cq.poll_one() {
                return Ok(wc);
            }
            let Some(channel) = &self.channel else { continue };
            self.cq.req_notify(NotifyKind::Next);
            if let Some(wc) = self.cq.poll_one() {
                return Ok(wc);
            }
            channel.wait(None)?;
        }
    }
}

/// From RESET to where requests can be posted.
fn prepare(qp: &QueuePair) -> Result<(), ModifyError> {
    if qp.query().qp_type == QpType::Ud {
        qp.to_init(Init { qkey: UDP_QKEY, ..Init::default() })?;
        qp.to_rtr(Rtr::Ud)?;
        return qp.to_rts(Rts::Ud { sq_psn: qp.context().random_psn() });
    }
    let access = Access::REMOTE_CHANGE
        | Access::REMOTE_READ
        | Access::FLUSH_GLOBAL
        | Access::FLUSH_PERSISTENT;
    qp.to_init(Init { access, ..Init::default() })
}

const fn is_xrc(qp_type: QpType) -> bool {
    matches!(qp_type, QpType::XrcInitiator | QpType::XrcTarget)
}

impl Parts {
    const fn has_qp(&self) -> bool {
        self.queues.is_some() || self.adopted.is_some()
    }

    /// The first PSN that a passive side expects, the same whenever somebody asks.
    pub(super) fn first_psn(&mut self, context: &Context) -> Psn {
        *self.psn.get_or_insert_with(|| context.random_psn())
    }
}

impl CmId {
    /// Makes its queue pair (`rdma_create_qp`), in the protection domain `pd` or in one that the
    /// ids of the channel share on each device. It is in INIT at once, so that receive requests can
    /// be posted before anything comes, and lets the peer read, write and do atomics where regions
    /// allow it; a datagram queue pair is in RTS.
    ///
    /// # Errors
    /// [`CmError::NoDevice`], [`CmError::HasQueuePair`], [`CmError::Object`], [`CmError::Modify`];
    /// [`CmError::Io`] (`EMFILE`).
    pub fn create_qp(&self, pd: Option<&ProtectionDomain>, attr: &CmQpAttr) -> Result<(), CmError> {
        let mut parts = self.parts();
        if parts.has_qp() {
            return Err(CmError::HasQueuePair);
        }
        let context = parts.place()?.context.clone();
        let pd = match pd {
            Some(pd) => pd.clone(),
            None => parts.channel.default_domain(&context)?,
        };
        if !std::sync::Arc::ptr_eq(&pd.context().inner, &context.inner) {
            return Err(ObjectError::Unknown.into());
        }
        let send = Completions::new(&context, attr.send_cq.as_ref(), attr.caps.max_send_wr)?;
        let recv = Completions::new(&context, attr.recv_cq.as_ref(), attr.caps.max_recv_wr)?;
        let qp = pd.create_qp(&QpInitAttr {
            qp_type: parts.options.qp_type,
            send_cq: send.cq.clone(),
            recv_cq: recv.cq.clone(),
            srq: attr.srq.clone(),
            caps: attr.caps,
            sq_sig_all: attr.sq_sig_all,
            quirks: attr.quirks,
        })?;
        prepare(&qp)?;
        self.shared().state().qpn = Some(qp.qpn());
        parts.queues = Some(Queues { qp, pd, send, recv, srq: attr.srq.is_some() });
        Ok(())
    }

    /// Takes a queue pair that the program has made, in RESET, as if [`create_qp`](Self::create_qp)
    /// had made it: it is in INIT at once, a datagram queue pair in RTS, and the adapter moves it
    /// from then on. The id holds no handle, so it is the program's to destroy, before the id or
    /// after, and to attach to multicast groups.
    ///
    /// # Errors
    /// [`CmError::NoDevice`]; [`CmError::HasQueuePair`]; [`CmError::Object`] for one of another
    /// device; [`CmError::WrongService`] for one of another type than the id's;
    /// [`CmError::Modify`].
    pub fn adopt_qp(&self, qp: &QueuePair) -> Result<(), CmError> {
        let mut parts = self.parts();
        if parts.has_qp() {
            return Err(CmError::HasQueuePair);
        }
        if !std::sync::Arc::ptr_eq(&qp.context().inner, &parts.place()?.context.inner) {
            return Err(ObjectError::Unknown.into());
        }
        let qp_type = qp.query().qp_type;
        // one id speaks for both ends of an extended reliable connection
        if qp_type != parts.options.qp_type && !(is_xrc(qp_type) && is_xrc(parts.options.qp_type)) {
            return Err(CmError::WrongService(qp_type));
        }
        prepare(qp)?;
        self.shared().state().qpn = Some(qp.qpn());
        parts.adopted = Some((qp.qpn(), qp.has_srq()));
        Ok(())
    }

    /// Lets go of its queue pair (`rdma_destroy_qp`), which is destroyed unless the program holds
    /// another handle.
    pub fn destroy_qp(&self) {
        let queues = {
            let mut parts = self.parts();
            self.shared().state().qpn = None;
            parts.adopted = None;
            parts.groups.values_mut().for_each(|attached| *attached = false);
            parts.queues.take()
        };
        drop(queues);
    }

    /// Its queue pair (`id->qp`).
    #[must_use]
    pub fn qp(&self) -> Option<QueuePair> {
        self.parts().queues.as_ref().map(|queues| queues.qp.clone())
    }

    /// The protection domain of its queue pair (`id->pd`); without a queue pair, the one that it
    /// would be made in.
    ///
    /// # Errors
    /// [`CmError::NoDevice`]; [`CmError::Object`] (`ENOMEM`).
    pub fn pd(&self) -> Result<ProtectionDomain, CmError> {
        let parts = self.parts();
        match &parts.queues {
            Some(queues) => Ok(queues.pd.clone()),
            None => parts.channel.default_domain(&parts.place()?.context),
        }
    }

    /// Where its send requests complete (`id->send_cq`).
    #[must_use]
    pub fn send_cq(&self) -> Option<CompletionQueue> {
        self.parts().queues.as_ref().map(|queues| queues.send.cq.clone())
    }

    /// Where its receive requests complete (`id->recv_cq`).
    #[must_use]
    pub fn recv_cq(&self) -> Option<CompletionQueue> {
        self.parts().queues.as_ref().map(|queues| queues.recv.cq.clone())
    }

    /// The channel of a send completion queue that the id has made (`id->send_cq_channel`).
    #[must_use]
    pub fn send_cq_channel(&self) -> Option<CompletionChannel> {
        self.parts().queues.as_ref().and_then(|queues| queues.send.channel.clone())
    }

    /// The channel of a receive completion queue that the id has made (`id->recv_cq_channel`).
    #[must_use]
    pub fn recv_cq_channel(&self) -> Option<CompletionChannel> {
        self.parts().queues.as_ref().and_then(|queues| queues.recv.channel.clone())
    }

    /// What moves a queue pair that the program moves by itself (`rdma_init_qp_attr`): from the
    /// request, or from the peer's answer, on, and until the connection is established. Before a
    /// request is accepted, with as many READs and atomics each way as the peer asks for.
    #[must_use]
    pub fn qp_setup(&self) -> Option<QpSetup> {
        let mut parts = self.parts();
        let (conn, asked) = {
            let state = self.shared().state();
            let waits = state.state == IdState::RequestReceived;
            (
                state.conn?,
                state
                    .incoming
                    .as_ref()
                    .filter(|_| waits)
                    .and_then(|incoming| incoming.conn.clone()),
            )
        };
        let context = parts.place.as_ref()?.context.clone();
        let mut setup = context.inner.engine.lock().adapter().cm_qp_setup(conn)?;
        if let Some(asked) = asked {
            setup.rq_psn = parts.first_psn(&context);
            setup.max_dest_rd_atomic = asked.responder_resources.min(MAX_RD_ATOMIC);
            setup.max_rd_atomic = asked.initiator_depth.min(MAX_RD_ATOMIC);
            setup.min_rnr_timer = parts.options.min_rnr_timer;
        }
        Some(setup)
    }

    // rdma_verbs.

    /// Memory for messages, registered in the id's protection domain (`rdma_reg_msgs`): `length`
    /// bytes of zeros.
    ///
    /// # Errors
    /// [`CmError::NoDevice`], [`CmError::Object`], [`CmError::Region`].
    pub fn reg_msgs(&self, length: usize) -> Result<MemoryRegion, CmError> {
        Ok(self.pd()?.allocate(length, Access::LOCAL_WRITE)?)
    }

    /// Memory that the peer may read (`rdma_reg_read`).
    ///
    /// # Errors
    /// As above.
    pub fn reg_read(&self, length: usize) -> Result<MemoryRegion, CmError> {
        Ok(self.pd()?.allocate(length, Access::LOCAL_WRITE | Access::REMOTE_READ)?)
    }

    /// Memory that the peer may write (`rdma_reg_write`).
    ///
    /// # Errors
    /// As above.
    pub fn reg_write(&self, length: usize) -> Result<MemoryRegion, CmError> {
        Ok(self.pd()?.allocate(length, Access::LOCAL_WRITE | Access::REMOTE_WRITE)?)
    }

    /// Posts a receive request (`rdma_post_recv`, `rdma_post_recvv`). `id` comes back in the
    /// completion.
    ///
    /// # Errors
    /// [`CmError::NoQueuePair`], [`CmError::Post`].
    pub fn post_recv(
        &self,
        wr_id: u64,
        sges: impl IntoIterator<Item = Sge>,
    ) -> Result<(), CmError> {
        Ok(self.queue_pair()?.post_recv(&[RecvWr::new(wr_id, sges)])?)
    }

    /// Posts a SEND (`rdma_post_send`, `rdma_post_sendv`): of pieces of regions, or of
    /// [`Data::inline`] bytes.
    ///
    /// # Errors
    /// [`CmError::NoQueuePair`], [`CmError::Post`].
    pub fn post_send(
        &self,
        wr_id: u64,
        data: impl Into<Data>,
        flags: SendFlags,
    ) -> Result<(), CmError> {
        self.post(wr_id, SendOp::Send { immediate: None }, data.into(), flags)
    }

    /// Posts a READ of the peer's memory (`rdma_post_read`, `rdma_post_readv`).
    ///
    /// # Errors
    /// [`CmError::NoQueuePair`], [`CmError::Post`].
    pub fn post_read(
        &self,
        wr_id: u64,
        data: impl Into<Data>,
        flags: SendFlags,
        remote: Remote,
    ) -> Result<(), CmError> {
        self.post(wr_id, SendOp::Read { remote }, data.into(), flags)
    }

    /// Posts a WRITE to the peer's memory (`rdma_post_write`, `rdma_post_writev`).
    ///
    /// # Errors
    /// [`CmError::NoQueuePair`], [`CmError::Post`].
    pub fn post_write(
        &self,
        wr_id: u64,
        data: impl Into<Data>,
        flags: SendFlags,
        remote: Remote,
    ) -> Result<(), CmError> {
        self.post(wr_id, SendOp::Write { remote, immediate: None }, data.into(), flags)
    }

    /// Posts a datagram (`rdma_post_ud_send`).
    ///
    /// # Errors
    /// [`CmError::NoQueuePair`], [`CmError::Post`].
    pub fn post_ud_send(
        &self,
        wr_id: u64,
        data: impl Into<Data>,
        flags: SendFlags,
        to: UdDestination,
    ) -> Result<(), CmError> {
        self.post(wr_id, SendOp::SendTo { to, immediate: None }, data.into(), flags)
    }

    /// Waits for the next completion of a send request (`rdma_get_send_comp`). If the id has not
    /// made the completion queue itself, this polls.
    ///
    /// # Errors
    /// [`CmError::NoQueuePair`]; [`CmError::Io`] when the system cannot wait.
    pub fn get_send_comp(&self) -> Result<Wc, CmError> {
        let completions = self.parts().queues.as_ref().map(|queues| queues.send.clone());
        completions.ok_or(CmError::NoQueuePair)?.next()
    }

    /// Waits for the next completion of a receive request (`rdma_get_recv_comp`), likewise.
    ///
    /// # Errors
    /// As above.
    pub fn get_recv_comp(&self) -> Result<Wc, CmError> {
        let completions = self.parts().queues.as_ref().map(|queues| queues.recv.clone());
        completions.ok_or(CmError::NoQueuePair)?.next()
    }

    fn post(&self, wr_id: u64, op: SendOp, data: Data, flags: SendFlags) -> Result<(), CmError> {
        Ok(self.queue_pair()?.post_send(&[SendWr { wr_id, op, data, flags, remote_srq: None }])?)
    }

    fn queue_pair(&self) -> Result<QueuePair, CmError> {
        self.qp().ok_or(CmError::NoQueuePair)
    }
}
