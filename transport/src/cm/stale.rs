//! Stale connections, unknown to a restarted peer.
//!
//! A REQ or REP with a connected queue pair (12.9.8.3.1) may be forged: rejected, it ends nothing.
//! A probe decides: a DREQ with the connection's IDs but another queue pair. A peer with the
//! connection ignores the probe; a peer without sends a DREP (Linux does both), proven by the
//! transaction ID.

use core::time::Duration;

use rand_core::RngCore;

use super::{
    arrival::Arrival,
    connection::Probe,
    connections::Connections,
    message::{Dreq, Message},
    resend::MadReason,
    state::CmState,
};
use crate::ids::Qpn;

/// Queue pair of probes, never connected.
const NO_CONNECTIONS: Qpn = Qpn::new(0);

/// Between probes.
const PROBE_INTERVAL: Duration = Duration::from_secs(1);

impl Connections {
    /// Probes an established connection; other states have a deadline.
    pub(super) fn probe(&mut self, arrival: &mut Arrival<'_>, id: u32) {
        let Some(conn) = self.conns.get_mut(&id) else { return };
        if conn.state != CmState::Established {
            return;
        }
        let transaction = match conn.probe {
            Some(last) if arrival.now.since(last.sent) < PROBE_INTERVAL => return,
            Some(last) => last.transaction,
            None => arrival.rng.next_u64(),
        };
        conn.probe = Some(Probe { transaction, sent: arrival.now });
        let (remote_id, remote_qpn) = (conn.remote_id(), NO_CONNECTIONS);
        let dreq = Dreq { local_id: id, remote_id, remote_qpn, ..Dreq::default() };
        self.common.send(MadReason::Stale, conn.path, transaction, Message::Dreq(dreq));
    }
}
