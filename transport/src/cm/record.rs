//! Ends connections of an adapter that is gone from this address, as a kernel does for a process.
//!
//! Responses arrive here: no other adapter has their communication IDs.

use core::net::IpAddr;

use rand_chacha::ChaCha12Rng;
use rand_core::RngCore;

use super::{
    arrival::CmPath,
    command::ConnId,
    connection::{Connection, Remote},
    connections::Connections,
    error::ConnError,
    message::{CmMad, Dreq, Message, PrivateData},
    state::CmState,
};
use crate::{addr::PKey, gids::Path, ids::Qpn, time::Instant};

/// Data to disconnect for another adapter.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct ConnRecord {
    /// Local address.
    pub local: IpAddr,
    /// Peer's address.
    pub remote: IpAddr,
    /// P_Key.
    pub pkey: PKey,
    /// Local communication ID.
    pub local_id: u32,
    /// Peer's communication ID.
    pub remote_id: u32,
    /// Local queue pair.
    pub local_qpn: Qpn,
    /// Peer's queue pair.
    pub remote_qpn: Qpn,
}

impl Connections {
    /// Record of a connection that the peer considers established: from REP to DREQ.
    #[must_use]
    pub fn record(&self, id: ConnId) -> Option<ConnRecord> {
        let Connection { state, path, local_qpn, remote, .. } = self.conns.get(&id.0)?;
        let remote = remote.as_ref()?;
        match state {
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

    /// Next changed record, if [`CmConfig::tells_records`](super::CmConfig::tells_records).
    pub fn poll_record(&mut self) -> Option<(ConnId, Option<ConnRecord>)> {
        let id = self.common.records.pop_front()?;
        Some((id, self.record(id)))
    }

    /// Sends a DREQ without events.
    pub(crate) fn disconnect_for(
        &mut self,
        now: Instant,
        record: &ConnRecord,
        path: Path,
        rng: &mut ChaCha12Rng,
    ) -> Result<ConnId, ConnError> {
        let path = CmPath { path, pkey: record.pkey };
        let &ConnRecord { local_id, remote_id, local_qpn, remote_qpn, .. } = record;
        self.common.adopt_id(local_id)?;
        let transaction = rng.next_u64();
        let private_data = PrivateData::default();
        let dreq = Message::Dreq(Dreq { local_id, remote_id, remote_qpn, private_data });
        let mad = CmMad::new(transaction, dreq);
        let conn = Connection {
            local_qpn,
            remote: Some(Remote { id: remote_id, guid: 0, qpn: remote_qpn }),
            resend: Some(self.common.send_until_response(now, local_id, path, mad, true)),
            abandoned: true,
            ..Connection::new(CmState::DreqSent, path, transaction)
        };
        self.conns.insert(local_id, conn);
        Ok(ConnId(local_id))
    }
}
