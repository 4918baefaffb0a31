//! Models of roce's concurrency. [loom] runs each model in every order of its threads, within a
//! number of preemptions. A load finds each value that C++'s memory model allows. A thread that
//! waits for ever is a failure.
//!
//! The models run the code itself: files of the transport and of the provider are modules of this
//! crate, too. Only their atomics, shared memory and system wake-ups are replaced. There is no copy
//! to fall behind.
//!
//! [`weakened`] leaves out one kind of ordering at a time, and tests state which of these each
//! model must catch. Loom cannot show a load that finds a value stored only later, and so no
//! weakened release of room that is read and written again.
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
