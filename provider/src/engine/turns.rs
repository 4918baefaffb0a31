use roce_transport::time::Instant;

use super::{
    schedule::times::BUDGET,
    shard::{BATCH, Found, Shard},
};
use crate::clock;

impl Shard {
    /// Serves in turns: receive a batch, handle it, send one buffer, deliver events. Ends without
    /// work, after [`BUDGET`], or when threads wait for the lock. Returns the number of messages
    /// received.
    pub(super) fn serve(
        &mut self,
        start: Instant,
        polls: bool,
        is_wanted: impl Fn() -> bool,
    ) -> usize {
        let (mut now, mut received) = (start, 0);
        loop {
            let receives = self.completed_receives();
            let batch = self.receive(now);
            received += batch;
            if batch == 0 && !self.has_work(now) {
                break; // the common case of a polling program
            }
            let found = (polls && (1..BATCH).contains(&batch))
                .then(|| Found { written: self.completed_receives() == receives });
            let keeps = self.take_turn(now, found);
            if keeps || batch < BATCH && !self.is_due() || is_wanted() {
                break;
            }
            now = clock::now();
            if now.since(start) >= BUDGET {
                break;
            }
        }
        received
    }
}
