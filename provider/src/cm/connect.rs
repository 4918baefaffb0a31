//! Connecting, accepting, disconnecting.

use roce_transport::{
    adapter::Adapter,
    addr::Qpn,
    cm::{
        Accept, CmService, ConnAttribute, ConnEnd, ConnId, Connect, IpHeader, Req, SidrRep, SidrReq,
    },
    psn::Psn,
    qp::{MAX_RD_ATOMIC, QpType},
    time::Instant,
};

use super::{
    CmError, CmId, ConnParam, EventKind, IdState, RejectReason, Status, UDP_QKEY,
    id::{ACK_TIMEOUT, IdInner},
    param::Param,
    presence,
    route::CmDispatcher,
    shared::RequestInfo,
};
use crate::Context;

/// Requests the maximum.
const MAXIMUM: u8 = u8::MAX;

/// Private data bytes of a REQ and a SIDR_REQ.
const REQ_DATA: usize = Req::PRIVATE_DATA - IpHeader::LEN;
const SIDR_REQ_DATA: usize = SidrReq::PRIVATE_DATA - IpHeader::LEN;

impl CmId {
    /// Requests a connection (`rdma_connect`), or for UD a datagram service (SIDR).
    ///
    /// [`Established`](EventKind::Established), [`Rejected`](EventKind::Rejected),
    /// [`Unreachable`](EventKind::Unreachable) or [`ConnectError`](EventKind::ConnectError)
    /// follows. The adapter moves the id's queue pair. The program moves a queue pair of `param`
    /// after [`ConnectResponse`](EventKind::ConnectResponse). At a free loopback address, the call
    /// waits `CmConfig::listen_grace` for a listener, then counts as refused.
    ///
    /// # Errors
    /// [`CmError::State`], [`CmError::NoQueuePair`], [`CmError::PrivateData`], [`CmError::Range`],
    /// [`CmError::NotOfDevice`], [`CmError::Protocol`]; without a channel, [`CmError::Failed`].
    pub fn connect(&self, param: &ConnParam) -> Result<(), CmError> {
        let inner = self.inner();
        self.check(&[IdState::RouteResolved])?;
        let is_ud = inner.options.qp_type == QpType::Ud;
        let room = if is_ud { SIDR_REQ_DATA } else { REQ_DATA };
        if param.private_data.len() > room {
            return Err(CmError::PrivateData(room));
        }
        let (Some(local), Some(peer)) = (inner.local, inner.peer) else {
            return Err(CmError::NoDevice);
        };
        let header = IpHeader { src_port: local.port(), src: local.ip(), dst: peer.ip() };
        let private_data = [&header.encode()[..], &param.private_data].concat();
        let service_id = self.port_space().service(peer.port());
        let av = inner.address_vector()?;
        let context = &inner.device_addr()?.context;
        let connect = if is_ud {
            None
        } else {
            let (.., managed) = inner.end(param)?;
            Some(Connect {
                service_id,
                av,
                service: match inner.options.qp_type {
                    QpType::Uc => CmService::Uc,
                    QpType::XrcInitiator | QpType::XrcTarget => CmService::Xrc,
                    QpType::Rc | QpType::Ud | QpType::RawPacket => CmService::Rc,
                },
                end: inner.conn_end(param, context.random_psn())?,
                managed,
                retry_count: param.retry_count,
                ack_timeout: inner.options.ack_timeout.unwrap_or(ACK_TIMEOUT),
                fits_ack_delay: inner.options.ack_timeout.is_none(),
                path_mtu: inner.path_mtu,
                pkey: context.query_pkey(0).unwrap_or_default(),
                private_data: &private_data,
            })
        };
        if context.inner.host_grace.is_some_and(|grace| !presence::wait_for(peer.ip(), grace)) {
            self.refuse(context, is_ud);
            drop(inner);
            return self.finish(&[EventKind::Established, EventKind::ConnectResponse]);
        }
        context.inner.engine.command_shard(|shard, now| -> Result<(), CmError> {
            let (adapter, _, dispatcher) = shard.parts::<CmDispatcher>();
            let mut state = self.shared().state();
            let conn = match &connect {
                Some(connect) => adapter.cm_connect(now, connect)?,
                None => adapter.sidr_request(now, service_id, &av, &private_data)?,
            };
            (state.conn, state.av, state.state) = (Some(conn), Some(av), IdState::Connecting);
            drop(state);
            dispatcher.conns.insert(conn, self.shared().clone());
            Ok(())
        })?;
        drop(inner);
        self.finish(&[EventKind::Established, EventKind::ConnectResponse])
    }

    /// Ends the attempt like a peer without a listener.
    fn refuse(&self, context: &Context, is_ud: bool) {
        context.inner.engine.command_shard(|shard, now| {
            let mut state = self.shared().state();
            state.state = IdState::Closed;
            if let Some(qpn) = state.qpn {
                let _ = shard.adapter().to_error(now, qpn); // may be in ERR
            }
        });
        let (kind, status) = if is_ud {
            (EventKind::Unreachable, Status::Sidr(SidrRep::NO_SERVICE))
        } else {
            (EventKind::Rejected, Status::Rejected(RejectReason::INVALID_SERVICE_ID))
        };
        self.shared().emit(kind, status, Param::None);
    }

    /// Accepts a request (`rdma_accept`): moves the queue pair to RTS and sends the response.
    ///
    /// [`Established`](EventKind::Established) reports the peer's confirmation. A datagram service
    /// only gets the queue pair's number. After [`ConnectResponse`](EventKind::ConnectResponse),
    /// equals [`establish`](Self::establish).
    ///
    /// # Errors
    /// [`CmError::State`]; [`CmError::NoQueuePair`]; [`CmError::PrivateData`], [`CmError::Range`],
    /// [`CmError::Modify`], which keep the request; [`CmError::Protocol`] if the request is gone;
    /// without a channel, [`CmError::Failed`].
    pub fn accept(&self, param: &ConnParam) -> Result<(), CmError> {
        let mut inner = self.inner();
        if self.check(&[IdState::RequestReceived, IdState::ResponseReceived])?
            == IdState::ResponseReceived
        {
            return self.confirm(&inner, &param.private_data);
        }
        let context = inner.device_addr()?.context.clone();
        let (qpn, _, managed) = inner.end(param)?;
        let RequestInfo { conn: requested, .. } =
            self.shared().state().request.clone().ok_or(CmError::NoDevice)?;
        let starting_psn = inner.first_psn(&context);
        let accept = match requested {
            Some(peer) => {
                let mut end = inner.conn_end(param, starting_psn)?;
                end.responder_resources = end.responder_resources.min(peer.responder_resources);
                end.initiator_depth = end.initiator_depth.min(peer.initiator_depth);
                Some(Accept { end, private_data: &param.private_data })
            }
            None => None,
        };
        self.command(&inner, |adapter, now, conn| match &accept {
            Some(accept) => {
                adapter.cm_accept(now, conn, accept, managed)?;
                Ok(IdState::Accepted)
            }
            None => {
                adapter.sidr_respond(conn, Ok((qpn, UDP_QKEY)), &param.private_data)?;
                Ok(IdState::Established)
            }
        })?;
        drop(inner);
        if accept.is_none() { Ok(()) } else { self.finish(&[EventKind::Established]) }
    }

    /// Rejects a request, or a reply after [`ConnectResponse`](EventKind::ConnectResponse)
    /// (`rdma_reject`).
    ///
    /// Private data: up to 148 bytes, 136 for a datagram service.
    ///
    /// # Errors
    /// [`CmError::State`], [`CmError::PrivateData`], [`CmError::Protocol`].
    pub fn reject(&self, private_data: &[u8]) -> Result<(), CmError> {
        self.reject_for(RejectReason::CONSUMER, private_data)
    }

    /// Rejects because of the peer's vendor options (`rdma_reject_ece`).
    ///
    /// # Errors
    /// As for [`reject`](Self::reject).
    pub fn reject_ece(&self, private_data: &[u8]) -> Result<(), CmError> {
        self.reject_for(RejectReason::VENDOR_OPTION, private_data)
    }

    fn reject_for(&self, reason: RejectReason, private_data: &[u8]) -> Result<(), CmError> {
        let inner = self.inner();
        self.check(&[IdState::RequestReceived, IdState::ResponseReceived])?;
        let is_ud = inner.options.qp_type == QpType::Ud;
        self.command(&inner, |adapter, now, conn| {
            if is_ud {
                adapter.sidr_respond(conn, Err(SidrRep::REJECTED), private_data)?;
            } else {
                adapter.cm_reject(now, conn, reason, private_data)?;
            }
            Ok(IdState::Closed)
        })
    }

    /// Confirms that the program moved its queue pair after
    /// [`ConnectResponse`](EventKind::ConnectResponse) (`rdma_establish`). No event follows.
    ///
    /// # Errors
    /// [`CmError::State`], [`CmError::Protocol`].
    pub fn establish(&self) -> Result<(), CmError> {
        let inner = self.inner();
        self.check(&[IdState::ResponseReceived])?;
        self.confirm(&inner, &[])
    }

    fn confirm(&self, inner: &IdInner, private_data: &[u8]) -> Result<(), CmError> {
        self.command(inner, |adapter, _, conn| {
            adapter.cm_establish(conn, private_data)?;
            Ok(IdState::Established)
        })
    }

    /// Reports a packet before the peer's confirmation (`rdma_notify` with `IBV_EVENT_COMM_EST`).
    ///
    /// # Errors
    /// [`CmError::State`], [`CmError::Protocol`].
    pub fn notify(&self) -> Result<(), CmError> {
        let inner = self.inner();
        self.check(&[IdState::Accepted, IdState::Established])?;
        self.command(&inner, |adapter, _, conn| {
            adapter.cm_mut().notify(conn)?;
            Ok(IdState::Accepted)
        })
    }

    /// Disconnects, or confirms the peer's disconnect (`rdma_disconnect`).
    ///
    /// The queue pair moves to ERR. [`Disconnected`](EventKind::Disconnected) reports the peer's
    /// confirmation.
    ///
    /// # Errors
    /// [`CmError::State`] without a connection; without a channel, [`CmError::Failed`].
    pub fn disconnect(&self) -> Result<(), CmError> {
        let inner = self.inner();
        let state =
            self.check(&[IdState::Accepted, IdState::Established, IdState::Disconnected])?;
        if inner.options.qp_type == QpType::Ud {
            return Err(CmError::WrongService(QpType::Ud));
        }
        let qpn = self.shared().state().qpn;
        self.command(&inner, |adapter, now, conn| {
            if let Some(qpn) = qpn {
                let _ = adapter.to_error(now, qpn); // may be in ERR
            }
            adapter.cm_disconnect(now, conn, &[])?;
            Ok(state)
        })?;
        drop(inner);
        if state == IdState::Disconnected {
            Ok(())
        } else {
            self.finish(&[EventKind::Disconnected])
        }
    }

    /// The id takes the state of `act`, unless an event changed the state.
    fn command(
        &self,
        inner: &IdInner,
        act: impl FnOnce(&mut Adapter, Instant, ConnId) -> Result<IdState, CmError>,
    ) -> Result<(), CmError> {
        inner.device_addr()?.context.inner.engine.command_shard(|shard, now| {
            let (adapter, _, dispatcher) = shard.parts::<CmDispatcher>();
            let (conn, state) = {
                let state = self.shared().state();
                (state.conn.ok_or(CmError::State(state.state))?, state.state)
            };
            let next = act(adapter, now, conn)?;
            let mut shared = self.shared().state();
            if shared.state == state {
                shared.state = next;
            }
            if adapter.cm().state(conn).is_none() {
                shared.conn = None;
                drop(shared);
                dispatcher.conns.remove(&conn);
            }
            Ok(())
        })
    }
}

impl IdInner {
    /// Queue pair number, has an SRQ, is moved by the adapter.
    fn end(&self, param: &ConnParam) -> Result<(Qpn, bool, bool), CmError> {
        match (&self.queues, self.adopted, param.qpn) {
            (Some(queues), ..) => Ok((queues.qp.qpn(), queues.srq, true)),
            (None, Some((qpn, srq)), _) => Ok((qpn, srq, true)),
            (None, None, Some(qpn)) => Ok((qpn, param.srq, false)),
            (None, None, None) => Err(CmError::NoQueuePair),
        }
    }

    fn conn_end(&self, param: &ConnParam, starting_psn: Psn) -> Result<ConnEnd, CmError> {
        let (qpn, srq, _) = self.end(param)?;
        let depth = |attribute, value| match value {
            MAXIMUM => Ok(MAX_RD_ATOMIC),
            value if value > MAX_RD_ATOMIC => Err(CmError::Range(attribute)),
            value => Ok(value),
        };
        Ok(ConnEnd {
            qpn,
            starting_psn,
            responder_resources: depth(
                ConnAttribute::ResponderResources,
                param.responder_resources,
            )?,
            initiator_depth: depth(ConnAttribute::InitiatorDepth, param.initiator_depth)?,
            rnr_retry: param.rnr_retry_count,
            min_rnr_timer: self.options.min_rnr_timer,
            srq,
        })
    }
}
