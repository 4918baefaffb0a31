//! Sleeping and waking of an engine: the provider's files with modelled sleeps, wake-ups, work and
//! time.
//!
//! The link is the [ring](crate::runs) of shared memory: its writer wakes only declared sleepers. A
//! UDP socket asks less of the engine.
//!
//! Short sleeps of the background thread end at any time. The models show that no event is missed
//! forever or past a timer, not that all are served at once.
//!
//! Tests omit one step at a time ([`Omission`]). Each of these changes of the provider's files
//! fails a test:
//!
//! | change | test that fails |
//! |---|---|
//! | `sleeps_until` is set when the lock is released | `a_timer_is_not_slept_through`, `counters_are_not_forgotten` |
//! | the wakeup is cleared after the check of `stop`, or `stop` is set after the wakeup | `a_background_thread_ends` and all others that end |
//! | the background thread does not park, check for arrivals, or wait on the sockets | `a_request_is_not_slept_through`, `an_event_loop_is_woken` |
//! | its sleep has no end, or none for due counters | `a_timer_is_not_slept_through`, `counters_are_not_forgotten` |
//! | `after_service` compares the wrong way, or precedes the command | `a_timer_is_not_slept_through` |
//! | nothing wakes it for counters, or it wrongly claims to know of them | `counters_are_not_forgotten` |
//! | a thread on the sockets does not park or check for arrivals | `a_waiting_thread_is_woken` |
//! | a thread that waited on them does not say that it has left | `a_thread_that_has_waited_leaves_the_sockets` |
//! | nor wakes the background thread that left it the sockets, or that does not check for others | the same, `a_thread_that_has_served_leaves_the_sockets`, `a_thread_is_woken_by_one_that_serves` |
//! | it unparks twice | `waiting_threads_are_woken_whoever_takes_their_runs` |
//! | no timer is set for delayed acknowledgements | `what_waits_for_a_response_leaves` |
//! | a program entering its event loop does not wake the background thread that leaves it the sockets, or that does not check for it | `a_program_that_leaves_its_event_loop_is_served` |
//! | every check finds the program polling | `a_request_is_not_slept_through` |
//!
//! Not resetting `sleeps_until` after a sleep fails no test: it only causes extra wake-ups.

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
mod processor;
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
#[path = "../simulator/mod.rs"]
pub mod simulator;
mod sleep;
pub mod threads;
#[allow(dead_code, reason = "a file of another crate, of which no model needs all")]
#[path = "../../../provider/src/engine/waiting.rs"]
mod waiting;
#[allow(dead_code, reason = "a file of another crate, of which no model needs all")]
#[path = "../../../provider/src/engine/words.rs"]
mod words;

pub use sleep::{Omission, without};
