//! Stale connections: those that a peer which has started again does not know any more.
//!
//! The sign of one is a REQ or a REP with a queue pair that is connected already (12.9.8.3.1). It
//! is rejected, but does not end the old connection, as it can be forged: all peers know the GUID,
//! and a queue pair number can be guessed. The peer is asked instead, by a DREQ with the
//! connection's communication IDs for a queue pair that is not the connection's. A peer that has
//! the connection ignores that DREQ; one that does not answers it, as any DREQ about nothing (Linux
//! does both). The answer has a transaction ID that only the peer has seen.

use super::{
    arrival::Arrival,
    connection::ConnState,
    connections::Connections,
    message::{Dreq, Message, PrivateData},
    probe::Probe,
    reason::MadReason,
};
use crate::ids::Qpn;

/// The queue pair that the question names: QP0, which has no connections.
const NO_CONNECTIONS: Qpn = Qpn::new(0);

impl Connections {
    /// Asks the peer if it still has an established connection, unless it was asked just now. Any
    /// other has a deadline.
    pub(super) fn probe(&mut self, arrival: &mut Arrival<'_>, id: u32) {
        let Some(conn) = self.conns.get_mut(&id) else { return };
        let ConnState::Established(remote) = conn.state else { return };
        let Some(probe) = Probe::after(conn.probe, arrival.now, arrival.rng) else { return };
        conn.probe = Some(probe);
        let dreq = Dreq {
            local_id: id,
            remote_id: remote.id,
            remote_qpn: NO_CONNECTIONS,
            private_data: PrivateData::default(),
        };
        self.common.send_for(MadReason::Stale, conn.path, probe.transaction, Message::Dreq(dreq));
    }
}
