//! Stale connections, unknown to a peer that has restarted.
//!
//! A REQ or REP with a connected queue pair indicates one (12.9.8.3.1). It is rejected, but does
//! not end the old connection: it may be forged, since peers know the GUID and can guess a QPN. A
//! probe decides: a DREQ with the connection's IDs, but another queue pair. A peer with the
//! connection ignores it; one without sends a DREP (Linux does both). The transaction ID proves the
//! response.

use super::{
    arrival::Arrival,
    connection::ConnState,
    connections::Connections,
    message::{Dreq, Message, PrivateData},
    probe::Probe,
    reason::MadReason,
};
use crate::ids::Qpn;

/// Queue pair named by a probe: QP0, never connected.
const NO_CONNECTIONS: Qpn = Qpn::new(0);

impl Connections {
    /// Probes an established connection, rate-limited; other states have a deadline.
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
