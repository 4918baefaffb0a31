//! Connection management of the adapter: QP1, through which its messages pass, and the queue pairs
//! that it moves.
//!
//! Read first: [`cm`](crate::cm); InfiniBand volume 1, 13.5.3 (the general services interface) and
//! 12.9.8 (what moves when).

use super::{Adapter, TransmitBuffer};
use crate::{
    addr::{AddressVector, PKey, QKey, Qpn},
    cm::{
        Accept, Arrival, CmError, CmEvent, CmMad, CmPath, CmState, ConnId, Connect, Listen,
        ListenerId, Outgoing, QpSetup, RejectReason, ServiceId, Taken,
    },
    event::{Disposition, DropReason},
    qp::{Built, MAX_RD_ATOMIC, ModifyError, QpType, Rtr, Rts},
    time::Instant,
    wire::{Bth, Deth, Ext, Headers, MAD_LEN, NetHeader, Opcode, Operation, Packet, Service},
};

impl Adapter {
    // Commands.

    /// Waits for requests for a service (`rdma_listen`).
    ///
    /// # Errors
    /// [`CmError::InUse`] when somebody waits for the same on the same address.
    pub fn cm_listen(&mut self, listen: Listen) -> Result<ListenerId, CmError> {
        self.cm.listen(listen)
    }

    /// Ends a listener. Requests that have come already stay.
    ///
    /// # Errors
    /// [`CmError::Unknown`].
    pub fn cm_unlisten(&mut self, listener: ListenerId) -> Result<(), CmError> {
        self.cm.unlisten(listener)
    }

    /// Asks a peer for a connection (`rdma_connect`). [`CmEvent`]s tell what becomes of it.
    ///
    /// # Errors
    /// [`CmError::NoRoute`], [`CmError::PrivateData`], [`CmError::Range`], [`CmError::TooMany`].
    pub fn cm_connect(&mut self, now: Instant, connect: &Connect<'_>) -> Result<ConnId, CmError> {
        let path = self.gids.path(&connect.av, Qpn::GSI, Qpn::GSI).ok_or(CmError::NoRoute)?;
        self.cm.connect(now, connect, path, &mut self.rng)
    }

    /// Accepts a request (`rdma_accept`). With `managed` the queue pair, which is in INIT, is moved
    /// to RTS before.
    ///
    /// # Errors
    /// [`CmError::QueuePair`]: the request still waits, and can be rejected; [`CmError::State`], [`CmError::Unknown`],
    /// [`CmError::PrivateData`], [`CmError::Range`].
    pub fn cm_accept(
        &mut self,
        now: Instant,
        conn: ConnId,
        accept: &Accept<'_>,
        managed: bool,
    ) -> Result<(), CmError> {
        self.cm.prepare(conn, accept)?;
        if managed {
            let setup = self.cm.qp_setup(conn).ok_or(CmError::Unknown)?;
            self.move_qp(now, &setup).map_err(CmError::QueuePair)?;
        }
        self.cm.accept(now, conn);
        Ok(())
    }

    /// Says that the own queue pair is ready, after [`CmEvent::Reply`] (`rdma_establish`, and
    /// `rdma_accept` on the active side).
    ///
    /// # Errors
    /// [`CmError::State`], [`CmError::Unknown`], [`CmError::PrivateData`].
    pub fn cm_establish(&mut self, conn: ConnId, private_data: &[u8]) -> Result<(), CmError> {
        self.cm.ready(conn, private_data)
    }

    /// Says that the peer's queue pair has been heard before its last message was (`rdma_notify`).
    ///
    /// # Errors
    /// [`CmError::State`], [`CmError::Unknown`].
    pub fn cm_notify(&mut self, conn: ConnId) -> Result<(), CmError> {
        self.cm.notify(conn)
    }

    /// Refuses a request or a reply (`rdma_reject`).
    ///
    /// # Errors
    /// [`CmError::State`], [`CmError::Unknown`], [`CmError::PrivateData`].
    pub fn cm_reject(
        &mut self,
        now: Instant,
        conn: ConnId,
        reason: RejectReason,
        private_data: &[u8],
    ) -> Result<(), CmError> {
        self.cm.reject(now, conn, reason, &[], private_data)
    }

    /// Ends a connection, or answers its end (`rdma_disconnect`). The queue pair is the program's
    /// to move.
    ///
    /// # Errors
    /// [`CmError::State`], [`CmError::Unknown`], [`CmError::PrivateData`].
    pub fn cm_disconnect(
        &mut self,
        now: Instant,
        conn: ConnId,
        private_data: &[u8],
    ) -> Result<(), CmError> {
        self.cm.disconnect(now, conn, private_data)
    }

    /// Ends a connection or question in whatever state; nothing is heard of it any more
    /// (`rdma_destroy_id`).
    pub fn cm_destroy(&mut self, now: Instant, conn: ConnId) {
        self.cm.destroy(now, conn);
    }

    /// Asks who receives datagrams for a service (`rdma_connect` on a datagram id).
    ///
    /// # Errors
    /// As for [`cm_connect`](Self::cm_connect).
    pub fn sidr_request(
        &mut self,
        now: Instant,
        service_id: ServiceId,
        av: &AddressVector,
        private_data: &[u8],
    ) -> Result<ConnId, CmError> {
        let path = self.gids.path(av, Qpn::GSI, Qpn::GSI).ok_or(CmError::NoRoute)?;
        let way = CmPath { path, pkey: self.pkeys.get(0).unwrap_or_default() };
        self.cm.ask(now, service_id, private_data, way, &mut self.rng)
    }

    /// Answers such a question: with a queue pair and its key, or with a status other than 0
    /// (`rdma_accept`, `rdma_reject`).
    ///
    /// # Errors
    /// [`CmError::State`], [`CmError::Unknown`], [`CmError::PrivateData`].
    pub fn sidr_respond(
        &mut self,
        conn: ConnId,
        receiver: Result<(Qpn, QKey), u8>,
        private_data: &[u8],
    ) -> Result<(), CmError> {
        self.cm.answer(conn, receiver, private_data)
    }

    /// Where a connection stands; `None` when it is gone.
    #[must_use]
    pub fn cm_state(&self, conn: ConnId) -> Option<CmState> {
        self.cm.state(conn)
    }

    /// Connections and questions that exist, those in their time wait included.
    #[must_use]
    pub fn cm_count(&self) -> usize {
        self.cm.count()
    }

    /// What moves a connection's queue pair to RTR and RTS (`rdma_init_qp_attr`): from the peer's
    /// request, or its reply, on, and until the connection is established.
    #[must_use]
    pub fn cm_qp_setup(&self, conn: ConnId) -> Option<QpSetup> {
        self.cm.qp_setup(conn)
    }

    /// The next event of connection management.
    pub fn poll_cm_event(&mut self) -> Option<CmEvent> {
        self.cm.poll_event()
    }

    // Queue pairs.

    /// From INIT to RTS, as both sides have agreed.
    fn move_qp(&mut self, now: Instant, setup: &QpSetup) -> Result<(), ModifyError> {
        let QpSetup {
            qpn,
            dest_qpn,
            rq_psn,
            sq_psn,
            av,
            timeout,
            retry_cnt,
            rnr_retry,
            min_rnr_timer,
            ..
        } = *setup;
        let qp_type = self.query_qp(qpn).ok_or(ModifyError::UnknownQp)?.qp_type;
        let path_mtu = setup.path_mtu.unwrap_or(self.gids.port_mtu());
        let (rtr, rts) = match qp_type {
            QpType::Rc => {
                let max_dest_rd_atomic = setup.max_dest_rd_atomic.min(MAX_RD_ATOMIC);
                let max_rd_atomic = setup.max_rd_atomic.min(MAX_RD_ATOMIC);
                let rtr =
                    Rtr::Rc { dest_qpn, path_mtu, rq_psn, av, max_dest_rd_atomic, min_rnr_timer };
                (rtr, Rts::Rc { sq_psn, timeout, retry_cnt, rnr_retry, max_rd_atomic })
            }
            QpType::Uc => (Rtr::Uc { dest_qpn, path_mtu, rq_psn, av }, Rts::Uc { sq_psn }),
            QpType::XrcInitiator => {
                let max_rd_atomic = setup.max_rd_atomic.min(MAX_RD_ATOMIC);
                let rtr = Rtr::XrcInitiator { dest_qpn, path_mtu, rq_psn, av };
                (rtr, Rts::XrcInitiator { sq_psn, timeout, retry_cnt, rnr_retry, max_rd_atomic })
            }
            QpType::XrcTarget => {
                let max_dest_rd_atomic = setup.max_dest_rd_atomic.min(MAX_RD_ATOMIC);
                let rtr = Rtr::XrcTarget {
                    dest_qpn,
                    path_mtu,
                    rq_psn,
                    av,
                    max_dest_rd_atomic,
                    min_rnr_timer,
                };
                (rtr, Rts::XrcTarget { sq_psn, timeout })
            }
            QpType::Ud => return Err(ModifyError::WrongService(qp_type)),
        };
        self.to_rtr(qpn, &rtr)?;
        self.to_rts(now, qpn, &rts)
    }

    /// The peer has accepted: our queue pair follows, and the peer hears of it.
    fn follow(&mut self, now: Instant, conn: ConnId) {
        let moved = match self.cm.qp_setup(conn) {
            Some(setup) => self.move_qp(now, &setup).is_ok(),
            None => false,
        };
        if moved {
            self.cm.complete(conn);
        } else {
            self.cm.fail(now, conn);
        }
    }

    // QP1.

    /// Checks a packet to QP1, which is in every partition of the table and answers in the one that
    /// the packet came in; returns that.
    pub(super) fn check_mad(&mut self, packet: &Packet<'_>) -> Result<PKey, DropReason> {
        let Ext::Deth(Deth { qkey, .. }) = packet.headers.ext() else {
            return Err(DropReason::WrongService);
        };
        let Some(pkey) =
            self.pkeys.find(packet.headers.bth().pkey).and_then(|index| self.pkeys.get(index))
        else {
            self.counters.pkey_violations += 1;
            return Err(DropReason::PKey);
        };
        if *qkey != QKey::GSI {
            return Err(DropReason::QKey);
        }
        Ok(pkey)
    }

    /// Takes a packet to QP1 in this partition.
    pub(super) fn receive_mad(
        &mut self,
        now: Instant,
        net: &NetHeader,
        packet: &Packet<'_>,
        pkey: PKey,
    ) -> Result<Disposition, DropReason> {
        let mad = CmMad::parse(packet.payload).map_err(|_| DropReason::NotAMad)?;
        let own = self.gids.entries().iter().position(|&gid| gid == net.dst.into());
        let sgid_index = own.ok_or(DropReason::DestinationAddress)? as u16;
        let back = AddressVector::new(net.src.into(), sgid_index);
        let path =
            self.gids.path(&back, Qpn::GSI, Qpn::GSI).ok_or(DropReason::DestinationAddress)?;
        let way = CmPath { path, pkey };
        let mut arrival =
            Arrival { now, way, sgid_index, port_mtu: self.gids.port_mtu(), rng: &mut self.rng };
        match self.cm.handle(&mad, &mut arrival)? {
            Taken::Done => {}
            Taken::Replied(conn) => self.follow(now, conn),
        }
        Ok(Disposition::Executed)
    }

    /// Puts the messages of connection management that are due into `buffer`. Returns whether there
    /// was room for all.
    pub(super) fn transmit_mads(&mut self, buffer: &mut TransmitBuffer) -> bool {
        while self.cm.has_transmit() {
            let Some(slot) = buffer.slot() else { return false };
            let Some(built) = self.build_mad(slot) else { break };
            buffer.commit(&built);
            self.counters.sent_packets += 1;
        }
        true
    }

    /// Writes the next message of connection management to `slot`.
    fn build_mad(&mut self, slot: &mut [u8]) -> Option<Built> {
        let Outgoing { way, mad } = self.cm.poll_transmit()?;
        let mut bth =
            Bth::new(Opcode::known(Service::Ud, Operation::SendOnly), Qpn::GSI, self.gsi_psn);
        bth.pkey = way.pkey;
        self.gsi_psn = self.gsi_psn.plus(1);
        let headers = Headers::built(bth, Ext::Deth(Deth { qkey: QKey::GSI, source_qp: Qpn::GSI }));
        let length = headers.encode(MAD_LEN, slot);
        slot[length..length + MAD_LEN].copy_from_slice(&mad.encode());
        Some(Built::new(length + MAD_LEN, way.path))
    }
}
