//! Sleeping and waking of an engine: the provider's files, with a shard and a system of this crate.
//! Who may sleep until when is decided there; that a thread sleeps and is woken, what a shard has to
//! do, and the time, are here.
//!
//! The link is the [ring](crate::runs) of shared memory with its wakeup, because a ring's writer wakes
//! only those that have said that they sleep. A UDP socket, which is readable as long as it holds
//! something, asks less of the engine.
//!
//! Sleeps of the background thread that it ends itself within milliseconds, to look whether the program
//! still polls, end at any time here. So what is shown is that nothing is slept through for ever, or
//! until a timer that is due too late; not that everything is served at once.

#[allow(dead_code, reason = "a file of another crate, of which no model needs all")]
#[path = "../../../provider/src/engine/background.rs"]
mod background;
#[allow(
    dead_code,
    unreachable_pub,
    reason = "a file of another crate, of which no model needs all"
)]
#[path = "../../../provider/src/engine/program.rs"]
mod program;
mod serve;
mod shard;
mod sleep;
pub mod threads;

pub use sleep::{Omission, without};
