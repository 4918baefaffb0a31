//! The question whether the peer still has a connection.

use core::time::Duration;

use rand_chacha::ChaCha12Rng;
use rand_core::RngCore;

use crate::time::Instant;

/// Time between two questions about a connection, however many requests name its queue pair.
const INTERVAL: Duration = Duration::from_secs(1);

/// The question whether the peer still has a connection.
#[derive(Clone, Copy)]
pub(super) struct Probe {
    /// Transaction ID of the question and of its answer; the same whenever it is asked.
    pub(super) transaction: u64,
    /// Time at which it was last asked.
    sent: Instant,
}

impl Probe {
    /// The question to ask now, after `last`; none if that was just now.
    pub(super) fn after(last: Option<Self>, now: Instant, rng: &mut ChaCha12Rng) -> Option<Self> {
        let transaction = match last {
            Some(last) if now.since(last.sent) < INTERVAL => return None,
            Some(last) => last.transaction,
            None => rng.next_u64(),
        };
        Some(Self { transaction, sent: now })
    }
}
