//! Ending the connections of another adapter.
//!
//! When a process ends, a kernel disconnects its connections. Where several adapters share an
//! address, a remaining adapter does so for one that is gone. It gets the answers, because no other
//! adapter has the communication IDs that they name. Its record of a connection holds the content
//! and the destination of a DREQ.

use core::{net::IpAddr, time::Duration};

use rand_chacha::ChaCha12Rng;
use rand_core::RngCore;

use super::{
    command::ConnId,
    connection::{ConnState, Connection, Remote},
    connections::Connections,
    credit::Credit,
    error::ConnError,
    message::{CmMad, Dreq, Message, PrivateData},
    path::CmPath,
    state::CmState,
};
use crate::{addr::PKey, gids::Path, ids::Qpn, time::Instant};

/// Record with which another adapter at the same address can end a connection.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct ConnRecord {
    /// Own address.
    pub local: IpAddr,
    /// Address of the peer.
    pub remote: IpAddr,
    /// Partition of the messages.
    pub pkey: PKey,
    /// Communication ID.
    pub local_id: u32,
    /// Communication ID of the peer.
    pub remote_id: u32,
    /// Own queue pair.
    pub local_qpn: Qpn,
    /// Queue pair of the peer.
    pub remote_qpn: Qpn,
}

impl Connections {
    /// Record with which another adapter at the same address ends this connection, should this
    /// adapter be gone. `None` unless the peer takes it for a connection: from the reply on, until
    /// either side ends it.
    #[must_use]
    pub fn record(&self, id: ConnId) -> Option<ConnRecord> {
        let Connection { state, path, local_qpn, .. } = self.conns.get(&id.0)?;
        let remote = state.remote()?;
        match state.name() {
            CmState::RepRcvd | CmState::RepSent | CmState::MraRepRcvd | CmState::Established => {}
            _ => return None,
        }
        Some(ConnRecord {
            local: path.own(),
            remote: path.peer(),
            pkey: path.pkey,
            local_id: id.0,
            remote_id: remote.id,
            local_qpn: *local_qpn,
            remote_qpn: remote.qpn,
        })
    }

    /// The next connection whose record has come, or has gone, since this was last called, and what
    /// the record is now. With [`CmConfig::tells_records`](super::CmConfig::tells_records).
    pub fn poll_record(&mut self) -> Option<(ConnId, Option<ConnRecord>)> {
        let id = self.common.poll_record()?;
        Some((id, self.record(id)))
    }

    /// Announces the end of a connection that another adapter had. No event tells of it.
    pub(crate) fn end_for_another(
        &mut self,
        now: Instant,
        record: &ConnRecord,
        path: Path,
        rng: &mut ChaCha12Rng,
    ) -> Result<ConnId, ConnError> {
        let path = CmPath { path, pkey: record.pkey };
        let &ConnRecord { local_id, remote_id, local_qpn, remote_qpn, .. } = record;
        self.common.take_id_of_another(local_id)?;
        let transaction = rng.next_u64();
        let private_data = PrivateData::default();
        let dreq = Message::Dreq(Dreq { local_id, remote_id, remote_qpn, private_data });
        let mad = CmMad::new(transaction, dreq);
        let resend = self.common.send_until_answered(now, local_id, path, mad, true);
        let remote = Remote { id: remote_id, guid: 0, qpn: remote_qpn };
        let conn = Connection {
            state: ConnState::DreqSent(remote, resend),
            path,
            local_qpn,
            transaction,
            credit: Credit::PROVEN,
            abandoned: true,
            probe: None,
            setup: None,
            // the queue pair is gone
            time_wait: Duration::ZERO,
        };
        self.conns.insert(local_id, conn);
        Ok(ConnId(local_id))
    }
}
