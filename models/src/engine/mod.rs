//! Sleeping and waking of an engine: the provider's files, with a shard and a system of this crate.
//! Those files decide which thread may sleep until when. Sleeps, wake-ups, a shard's work and the
//! time are here.
//!
//! The link is the [ring](crate::runs) of shared memory with its wakeup, because a ring's writer
//! wakes only those that have said that they sleep. A UDP socket, which is readable as long as it
//! holds something, asks less of the engine.
//!
//! Sleeps of the background thread that it ends itself within milliseconds, to look whether the
//! program still polls, end at any time here. The models show that nothing is slept through for
//! ever, or past a timer; not that everything is served at once.
//!
//! Tests leave out one step at a time ([`Omission`]); and each of these changes of the provider's
//! files, made by hand, makes a test fail:
//!
//! | change | test that fails |
//! |---|---|
//! | `sleeps_until` is set when the lock is given back | `a_timer_is_not_slept_through`, `counters_are_not_forgotten` |
//! | the wakeup is cleared after the look at `stop`, or `stop` is set after the wakeup | `a_background_thread_ends` and all others that end |
//! | the background thread does not park, ignores that something is there already, or does not wait on the sockets | `a_request_is_not_slept_through`, `an_event_loop_is_woken` |
//! | its sleep has no end, or none for counters that are to be published | `a_timer_is_not_slept_through`, `counters_are_not_forgotten` |
//! | `after_service` compares the wrong way, or comes before the command | `a_timer_is_not_slept_through` |
//! | nobody wakes it for counters, or it says that it knows of them when it does not | `counters_are_not_forgotten` |
//! | a thread that drives does not park, or ignores that something is there already | `a_waiting_thread_is_woken` |
//! | a thread that drove does not say that it has left | `a_thread_that_has_waited_leaves_the_sockets` |
//! | nor wakes the background thread that left the sockets to it, or that does not look once more whether anyone is there | the same, `a_thread_that_has_served_leaves_the_sockets`, `a_thread_is_woken_by_one_that_serves` |
//! | it unparks twice | `waiting_threads_are_woken_whoever_takes_their_runs` |
//! | no timer is set for acknowledgements that wait | `what_waits_for_an_answer_leaves` |
//! | a program that enters its event loop does not wake the background thread that leaves the sockets to it, or that does not look once more whether it is one | `a_program_that_leaves_its_event_loop_is_served` |
//! | every look finds that the program still polls | `a_request_is_not_slept_through` |
//!
//! Without the end of `sleeps_until` after a sleep nothing fails: the thread is then woken more
//! often than it need be.

mod atomics;
#[allow(dead_code, reason = "a file of another crate, of which no model needs all")]
#[path = "../../../provider/src/engine/background.rs"]
mod background;
#[allow(dead_code, reason = "a file of another crate, of which no model needs all")]
#[path = "../../../provider/src/engine/corked.rs"]
mod corked;
#[allow(dead_code, reason = "a file of another crate, of which no model needs all")]
#[path = "../../../provider/src/engine/event_loop.rs"]
mod event_loop;
#[path = "../../../provider/src/engine/loop_state.rs"]
mod loop_state;
mod poller;
#[allow(
    dead_code,
    unreachable_pub,
    reason = "a file of another crate, of which no model needs all"
)]
#[path = "../../../provider/src/engine/program.rs"]
mod program;
#[allow(dead_code, reason = "a file of another crate, of which no model needs all")]
#[path = "../../../provider/src/engine/publication.rs"]
mod publication;
#[allow(dead_code, reason = "files of another crate, of which no model needs all")]
#[path = "../../../provider/src/engine/schedule/mod.rs"]
mod schedule;
mod serve;
mod shard;
#[path = "../../../provider/src/engine/shared_cork.rs"]
mod shared_cork;
mod sleep;
pub mod threads;
#[allow(dead_code, reason = "a file of another crate, of which no model needs all")]
#[path = "../../../provider/src/engine/waiting.rs"]
mod waiting;
#[allow(dead_code, reason = "a file of another crate, of which no model needs all")]
#[path = "../../../provider/src/engine/words.rs"]
mod words;

pub use sleep::{Omission, without};
