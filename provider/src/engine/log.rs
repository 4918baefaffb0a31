//! Log of adapter counters that indicate faults.

use roce_transport::event::Counters;
use tracing::{Level, debug, enabled};

/// Counters of normal operation.
const ORDINARY: [&str; 8] = [
    "sent_packets",
    "received_packets",
    "icrc_exact",
    "icrc_solved",
    "icrc_trusted",
    "multicast_packets",
    "cnp_sent",
    "cnp_received",
];

#[derive(Default)]
pub(super) struct CounterLog(Counters);

impl CounterLog {
    pub(super) fn update(&mut self, device: &str, counters: &Counters) {
        if !enabled!(Level::DEBUG) {
            return;
        }
        for (before, now) in self.0.iter().zip(counters.iter()) {
            let count = now.value - before.value;
            if count > 0 && !ORDINARY.contains(&now.name) {
                debug!(device, count, total = now.value, "{}", now.explanation);
            }
        }
        self.0 = counters.clone();
    }
}
