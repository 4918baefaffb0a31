//! QP1, and connection management of queue pairs.
//!
//! Read first: InfiniBand volume 1, 13.5.3, 12.9.8.

use core::net::IpAddr;

use thiserror::Error;

use super::{Adapter, TransmitBuffer};
use crate::{
    addr::{AddressVector, PKey, QKey},
    cm::{
        Accept, Arrival, CmMad, CmPath, ConnError, ConnEvent, ConnId, ConnRecord, Connect,
        Connections, Listen, ListenerId, MadReason, OutgoingMad, QpSetup, RejectReason,
        ReplyOutcome, ServiceId,
    },
    event::{Disposition, DropReason},
    gids::Path,
    ids::Qpn,
    qp::{Built, ModifyError, PeerAttr, QpType, RequesterAttr, Resources, ResponderAttr, Rtr, Rts},
    time::Instant,
    trace::{Call, CallError},
    wire::{
        Bth, Deth, Ext, FrameFields, Headers, ICRC_LEN, MAD_LEN, NetHeader, Opcode, Operation,
        Packet, Service,
    },
};

/// Accept error; the request stays pending unless gone.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Error)]
pub enum AcceptError {
    /// Refused by connection management.
    #[error(transparent)]
    Connection(#[from] ConnError),
    /// Failed queue pair transition.
    #[error("cannot modify the queue pair: {0}")]
    QueuePair(#[from] ModifyError),
}

impl From<AcceptError> for CallError {
    fn from(error: AcceptError) -> Self {
        match error {
            AcceptError::Connection(error) => error.into(),
            AcceptError::QueuePair(error) => error.into(),
        }
    }
}

impl Adapter {
    /// Communication manager, for unrecorded calls.
    #[must_use]
    pub const fn cm(&self) -> &Connections {
        &self.cm
    }

    /// Mutable communication manager.
    pub const fn cm_mut(&mut self) -> &mut Connections {
        &mut self.cm
    }

    /// Listens for a service (`rdma_listen`).
    ///
    /// # Errors
    /// [`ConnError::InUse`] if the address has a listener for it.
    pub fn cm_listen(&mut self, listen: Listen) -> Result<ListenerId, ConnError> {
        self.call_cm(Instant::ZERO, Call::Listen(listen.service_id), |cm| cm.listen(listen))
    }

    /// Requests a connection (`rdma_connect`); [`ConnEvent`]s report progress.
    ///
    /// # Errors
    /// [`ConnError::NoRoute`], [`ConnError::PrivateData`], [`ConnError::Range`],
    /// [`ConnError::TooMany`].
    pub fn cm_connect(&mut self, now: Instant, connect: &Connect<'_>) -> Result<ConnId, ConnError> {
        let call = || Call::Connect { qpn: connect.end.qpn, service: connect.service_id };
        self.recorded(now, Qpn::GSI, call, |adapter| {
            let Self { resources: Resources { gids, .. }, cm, rng, .. } = adapter;
            let path = gids.path(&connect.av, Qpn::GSI, Qpn::GSI).ok_or(ConnError::NoRoute)?;
            cm.connect(now, connect, path, rng)
        })
    }

    /// Accepts a request (`rdma_accept`); `managed` first moves the queue pair to RTS.
    ///
    /// # Errors
    /// [`AcceptError::QueuePair`]: the request stays pending; [`ConnError::State`],
    /// [`ConnError::Unknown`], [`ConnError::PrivateData`], [`ConnError::Range`].
    pub fn cm_accept(
        &mut self,
        now: Instant,
        conn: ConnId,
        accept: &Accept<'_>,
        managed: bool,
    ) -> Result<(), AcceptError> {
        let call = || Call::Accept { conn, qpn: accept.end.qpn };
        self.recorded(now, Qpn::GSI, call, |adapter| {
            adapter.cm.prepare(conn, accept)?;
            if managed {
                let setup = adapter.cm.qp_setup(conn).ok_or(ConnError::Unknown)?;
                adapter.move_qp(now, &setup)?;
            }
            adapter.cm.accept(now, conn, managed);
            Ok(())
        })
    }

    /// Confirms a [`ConnEvent::Reply`] (`rdma_establish`).
    ///
    /// # Errors
    /// [`ConnError::State`], [`ConnError::Unknown`], [`ConnError::PrivateData`].
    pub fn cm_establish(&mut self, conn: ConnId, private_data: &[u8]) -> Result<(), ConnError> {
        self.call_cm(Instant::ZERO, Call::Establish(conn), |cm| cm.establish(conn, private_data))
    }

    /// Rejects a request or reply (`rdma_reject`).
    ///
    /// # Errors
    /// [`ConnError::State`], [`ConnError::Unknown`], [`ConnError::PrivateData`].
    pub fn cm_reject(
        &mut self,
        now: Instant,
        conn: ConnId,
        reason: RejectReason,
        private_data: &[u8],
    ) -> Result<(), ConnError> {
        let call = Call::Reject(conn, reason);
        self.call_cm(now, call, |cm| cm.reject(now, conn, reason, private_data))
    }

    /// Disconnects, or confirms a DREQ (`rdma_disconnect`).
    ///
    /// # Errors
    /// [`ConnError::State`], [`ConnError::Unknown`], [`ConnError::PrivateData`].
    pub fn cm_disconnect(
        &mut self,
        now: Instant,
        conn: ConnId,
        private_data: &[u8],
    ) -> Result<(), ConnError> {
        self.call_cm(now, Call::Disconnect(conn), |cm| cm.disconnect(now, conn, private_data))
    }

    /// Disconnects for an adapter that is gone from this address (see [`share`](crate::share)).
    /// Until [`state`](Connections::state) shows the end, responses must reach this adapter, and
    /// the communication ID stays reserved.
    ///
    /// # Errors
    /// [`ConnError::OwnId`], [`ConnError::TooMany`]; [`ConnError::NoRoute`] without the address.
    pub fn cm_end_for_another(
        &mut self,
        now: Instant,
        record: &ConnRecord,
    ) -> Result<ConnId, ConnError> {
        let (_, path) = self
            .gsi_path(record.local, record.remote, FrameFields::default())
            .ok_or(ConnError::NoRoute)?;
        self.cm.disconnect_for(now, record, path, &mut self.rng)
    }

    /// Resolves a service ID (`rdma_connect` with a datagram id).
    ///
    /// # Errors
    /// As [`cm_connect`](Self::cm_connect).
    pub fn sidr_request(
        &mut self,
        now: Instant,
        service_id: ServiceId,
        av: &AddressVector,
        private_data: &[u8],
    ) -> Result<ConnId, ConnError> {
        let call = || Call::SidrRequest(service_id);
        self.recorded(now, Qpn::GSI, call, |adapter| {
            let Self { resources: Resources { gids, pkeys, .. }, cm, rng, .. } = adapter;
            let path = gids.path(av, Qpn::GSI, Qpn::GSI).ok_or(ConnError::NoRoute)?;
            let path = CmPath { path, pkey: pkeys.get(0).unwrap_or_default() };
            cm.sidr_request(now, service_id, private_data, path, rng)
        })
    }

    /// Responds with a queue pair and Q_Key, or a nonzero status.
    ///
    /// # Errors
    /// [`ConnError::State`], [`ConnError::Unknown`], [`ConnError::PrivateData`].
    pub fn sidr_respond(
        &mut self,
        conn: ConnId,
        receiver: Result<(Qpn, QKey), u8>,
        private_data: &[u8],
    ) -> Result<(), ConnError> {
        self.call_cm(Instant::ZERO, Call::SidrRespond(conn), |cm| {
            cm.sidr_respond(conn, receiver, private_data)
        })
    }

    /// Next connection management event.
    pub fn poll_cm_event(&mut self) -> Option<ConnEvent> {
        self.late.cm_event(|| self.cm.poll_event())
    }

    fn call_cm<T>(
        &mut self,
        now: Instant,
        call: Call,
        act: impl FnOnce(&mut Connections) -> Result<T, ConnError>,
    ) -> Result<T, ConnError> {
        self.recorded(now, Qpn::GSI, || call, |adapter| act(&mut adapter.cm))
    }

    fn move_qp(&mut self, now: Instant, setup: &QpSetup) -> Result<(), ModifyError> {
        let QpSetup { qpn, dest_qpn, rq_psn, av, min_rnr_timer, .. } = *setup;
        let QpSetup { sq_psn, timeout, retry_cnt, rnr_retry, .. } = *setup;
        let qp_type = self.query_qp(qpn).ok_or(ModifyError::UnknownQp)?.qp_type;
        let path_mtu = setup.path_mtu.unwrap_or(self.resources.gids.port_mtu());
        if matches!(qp_type, QpType::Ud | QpType::RawPacket) {
            return Err(ModifyError::WrongService(qp_type));
        }
        let max_dest_rd_atomic = setup.max_dest_rd_atomic.min(self.resources.rd_atomic.responder);
        let max_rd_atomic = setup.max_rd_atomic.min(self.resources.rd_atomic.requester);
        let peer = PeerAttr { dest_qpn, path_mtu, rq_psn, av };
        let responder = ResponderAttr { max_dest_rd_atomic, min_rnr_timer };
        let requester = RequesterAttr { timeout, retry_cnt, rnr_retry, max_rd_atomic };
        self.to_rtr(qpn, &Rtr::new(qp_type, peer, responder))?;
        self.to_rts(now, qpn, &Rts::new(qp_type, sq_psn, requester))
    }

    /// Moves the queue pair after a REP; sends RTU or REJ.
    fn follow(&mut self, now: Instant, conn: ConnId) {
        let setup = self.cm.qp_setup(conn);
        if setup.is_some_and(|setup| self.move_qp(now, &setup).is_ok()) {
            self.cm.complete(conn);
        } else {
            self.cm.fail(now, conn);
        }
    }

    pub(super) fn check_mad(&mut self, packet: &Packet<'_>) -> Result<PKey, DropReason> {
        let Ext::Deth(Deth { qkey, .. }) = packet.headers.ext() else {
            return Err(DropReason::WrongService);
        };
        let pkeys = &self.resources.pkeys;
        let found = pkeys.find(packet.headers.bth().pkey).and_then(|index| pkeys.get(index));
        let Some(pkey) = found else {
            self.reports.counters.pkey_violations += 1;
            return Err(DropReason::PKey);
        };
        if *qkey != QKey::GSI {
            return Err(DropReason::QKey);
        }
        Ok(pkey)
    }

    pub(super) fn receive_mad(
        &mut self,
        now: Instant,
        net: &NetHeader,
        packet: &Packet<'_>,
        pkey: PKey,
    ) -> Result<Disposition, DropReason> {
        let mad = CmMad::parse(packet.payload).map_err(|_| DropReason::NotAMad)?;
        let (sgid_index, path) =
            self.gsi_path(net.dst, net.src, net.frame).ok_or(DropReason::DestinationAddress)?;
        let mut arrival = Arrival {
            now,
            path: CmPath { path, pkey },
            sgid_index,
            port_mtu: self.resources.gids.port_mtu(),
            pkeys: &self.resources.pkeys,
            transaction: mad.transaction,
            rng: &mut self.rng,
        };
        if let ReplyOutcome::MoveQueuePair(conn) = self.cm.handle(&mad.message, &mut arrival)? {
            self.follow(now, conn);
        }
        Ok(Disposition::Executed)
    }

    fn gsi_path(&self, own: IpAddr, peer: IpAddr, frame: FrameFields) -> Option<(u16, Path)> {
        let service_level = frame.service_level();
        let index = self.resources.gids.position_of(frame.version(), |gid| gid == own.into())?;
        let av = AddressVector { service_level, ..AddressVector::new(peer.into(), index) };
        Some((index, self.resources.gids.path(&av, Qpn::GSI, Qpn::GSI)?))
    }

    /// Returns false if `buffer` is full.
    pub(super) fn transmit_mads(&mut self, now: Instant, buffer: &mut TransmitBuffer) -> bool {
        while self.cm.has_transmit() {
            let Some(slot) = buffer.slot() else { return false };
            let Some((built, path, reason)) = self.build_mad(slot) else { break };
            buffer.commit(&built, &path, false);
            self.reports.counters.count_sent(1, built.length + ICRC_LEN);
            self.record_mad(now, buffer, reason);
        }
        true
    }

    fn build_mad(&mut self, slot: &mut [u8]) -> Option<(Built, Path, MadReason)> {
        let (OutgoingMad { path, mad, reason }, psn) = self.cm.poll_transmit()?;
        let mut bth = Bth::new(Opcode::known(Service::Ud, Operation::SendOnly), Qpn::GSI, psn);
        bth.pkey = path.pkey;
        let headers = Headers::built(bth, Ext::Deth(Deth { qkey: QKey::GSI, source_qp: Qpn::GSI }));
        let length = headers.encode(MAD_LEN, slot);
        slot[length..length + MAD_LEN].copy_from_slice(&mad.encode());
        Some((Built::new(length + MAD_LEN), path.path, reason))
    }
}
