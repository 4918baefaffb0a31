//! State of engines, printed by the tests' watchdog on a hang.

use std::{fmt::Write, sync::atomic::Ordering, thread, time::Duration};

use super::{fork, serve::Engine};
use crate::clock;

/// Attempts to lock, 1 ms apart: the holder may hang.
const ATTEMPTS: u32 = 100;

/// State of every engine.
#[must_use]
pub fn describe_engines() -> String {
    let mut text = String::new();
    for engine in fork::engines() {
        engine.describe(&mut text);
    }
    text
}

impl Engine {
    fn describe(&self, text: &mut String) {
        let _ = writeln!(
            text,
            "engine: now {}, sleeps until {}, lock wanted {}, {} threads of the program on \
             the sockets, handed over {}, {} calls",
            clock::now().as_nanos(),
            self.background.sleeps_until.load(Ordering::SeqCst),
            self.shard.is_wanted(),
            self.waits.socket_waiters.load(Ordering::SeqCst),
            self.waits.handed_over.load(Ordering::SeqCst),
            self.calls.activity.load(Ordering::SeqCst),
        );
        let lock = (0..ATTEMPTS).find_map(|_| {
            self.shard.try_lock().or_else(|| {
                thread::sleep(Duration::from_millis(1));
                None
            })
        });
        let Some(mut shard) = lock else {
            let _ = writeln!(text, "  its lock is held");
            return;
        };
        let (is_due, deadline) = (shard.is_due(), shard.deadline().map(|due| due.as_nanos()));
        let _ = writeln!(text, "  is due {is_due}, deadline {deadline:?}");
        let _ = writeln!(text, "  {:?}", shard.link_counters());
        let adapter = shard.adapter();
        let _ = writeln!(text, "  {:?}", adapter.counters());
        for info in adapter.queue_pairs() {
            let _ = writeln!(text, "  {info:?}");
        }
    }
}
