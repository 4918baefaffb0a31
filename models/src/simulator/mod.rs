//! Simulator of threads and processors: the provider's engine in virtual time.
//!
//! The files of `provider/src/engine` run on simulated threads of a machine ([`Simulation`]) with
//! processors, time slices and [costs](Costs). Clock, locks, sleeps, yields, poller and link are
//! replaced. Packets are numbers: the adapter is not part of it, and `shard.rs` and `verbs.rs`
//! repeat the order of the provider's calls.
//!
//! Tests state what programs may expect. Each of these changes of the provider's files fails a
//! test:
//!
//! | change | test that fails |
//! |---|---|
//! | each request waits for the next | `a_lone_message_leaves_at_once` |
//! | an acknowledgement does not wait for the response | the same |
//! | the background thread serves in the place of an event loop | the same, `a_program_that_sleeps_is_woken_by_what_arrives` |
//! | no request waits for the next | `the_first_of_a_burst_leaves_at_once` |
//! | the background thread serves a program that polls | `a_polling_program_does_not_wait_for_the_background_thread` and others |
//! | it serves at a look though the program does | `a_program_that_sleeps_is_woken_by_what_arrives` |
//! | it does not assist, does not spin, looks after 16 ms, or takes 1 ms for an absence | `a_program_that_spins_on_memory_is_served`, `…_without_a_free_processor_…` |
//! | it wakes each millisecond, or an event loop without calls stays one | `an_idle_device_costs_no_wakeups` |
//! | a thread that waits does not serve, or not on the sockets; the background thread serves beside it | `a_program_that_sleeps_is_woken_by_what_arrives` |
//! | the background thread spins on when an event loop begins | `the_program_receives_once_its_event_loop_begins` |
//! | no program enters an event loop | the same, `event_loops_exchange_messages` |
//! | the timer of corked requests is not set, not attended to at once, or later | `corked_requests_leave_in_time` |
//! | a program without a processor is absent | `a_program_that_is_preempted_is_not_absent` |

#[path = "../../../provider/src/engine/atomics.rs"]
mod atomics;
#[allow(dead_code, reason = "a file of another crate, of which the simulator needs a part")]
#[path = "../../../provider/src/engine/background.rs"]
mod background;
#[allow(dead_code, reason = "a file of another crate, of which the simulator needs a part")]
#[path = "../../../provider/src/engine/corked.rs"]
mod corked;
#[allow(dead_code, reason = "a file of another crate, of which the simulator needs a part")]
#[path = "../../../provider/src/engine/event_loop.rs"]
mod event_loop;
#[allow(dead_code, reason = "a file of another crate, of which the simulator needs a part")]
#[path = "../../../provider/src/engine/lock.rs"]
mod lock;
#[path = "../../../provider/src/engine/loop_state.rs"]
mod loop_state;
pub(crate) mod machine;
mod poller;
#[allow(dead_code, reason = "a file of another crate, of which the simulator needs a part")]
#[path = "../../../provider/src/engine/posting.rs"]
mod posting;
mod processor;
#[allow(
    dead_code,
    unreachable_pub,
    reason = "a file of another crate, of which the simulator needs a part"
)]
#[path = "../../../provider/src/engine/program.rs"]
mod program;
mod serve;
mod shard;
mod sleep;
pub(crate) mod sync;
#[path = "../../../provider/src/engine/turns.rs"]
mod turns;
mod verbs;
#[allow(dead_code, reason = "a file of another crate, of which the simulator needs a part")]
#[path = "../../../provider/src/engine/waiting.rs"]
mod waiting;
#[allow(dead_code, reason = "a file of another crate, of which the simulator needs a part")]
#[path = "../../../provider/src/engine/words.rs"]
mod words;

use super::{publication, schedule, shared_cork};

pub use machine::{Costs, Figures, Simulation, figures, now, pause, work};
pub use shard::Sent;
pub use verbs::{Completion, Device, Operation};
