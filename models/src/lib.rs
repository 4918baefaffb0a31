//! Models of roce's concurrency. [loom] runs each model in every order in which its threads can
//! run, within a number of preemptions, and with every value that a load may find by the rules of
//! C++'s memory model; a thread that waits for ever is a failure.
//!
//! What is modelled is the code itself: the files of the transport and of the provider are modules
//! of this crate, too, and only what they are made of (atomics, the memory that is shared, the
//! system's wake-ups) is another one here. So a change of theirs is tried out with the next run of
//! the tests, and no copy can fall behind.
//!
//! A model is worth what it refuses. Therefore [`weakened`] leaves out one kind of ordering at a
//! time, and tests state which of these each model must catch. What loom cannot show: a load that
//! finds what is stored only later, and so a weakened release of room that is read and written
//! again.
//!
//! [loom]: https://docs.rs/loom

// the tests in those files belong to their own crates
#![cfg(not(test))]

mod atomic;
mod bell;
mod clock;
pub mod completions;
pub mod engine;
mod ring;
mod work;

pub use atomic::{Weakening, weakened};
pub use ring::runs;

// what the files of other crates expect at the root of theirs
extern crate alloc;
mod ids {
    pub(crate) use roce_transport::ids::CqId;
}
mod time {
    pub(crate) use roce_transport::time::Instant;
}

/// Tries a model out, with so many preemptions at most.
fn check(preemptions: usize, model: impl Fn() + Send + Sync + 'static) {
    let mut builder = loom::model::Builder::new();
    builder.preemption_bound = Some(preemptions);
    builder.check(model);
}
