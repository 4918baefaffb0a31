use core::time::Duration;

use rand_chacha::ChaCha12Rng;
use rand_core::RngCore;

use crate::time::Instant;

const INTERVAL: Duration = Duration::from_secs(1);

/// Probe whether the peer has a connection.
#[derive(Clone, Copy)]
pub(super) struct Probe {
    /// Same for all probes and the response.
    pub(super) transaction: u64,
    sent: Instant,
}

impl Probe {
    pub(super) fn after(last: Option<Self>, now: Instant, rng: &mut ChaCha12Rng) -> Option<Self> {
        let transaction = match last {
            Some(last) if now.since(last.sent) < INTERVAL => return None,
            Some(last) => last.transaction,
            None => rng.next_u64(),
        };
        Some(Self { transaction, sent: now })
    }
}
