//! Models of roce's concurrency. [loom] runs each in every order of its threads within a bound of
//! preemptions; a load finds each value that C++'s memory model allows. An endless wait is a
//! failure.
//!
//! Models run the code itself, as modules; only atomics, shared memory and wake-ups are replaced.
//!
//! [`weakened`] leaves out one kind of ordering; tests state which ones each model must catch. Loom
//! cannot show a load of a value stored only later, hence no weakened release of room that is read
//! and written again.
//!
//! [loom]: https://docs.rs/loom

// those files' tests belong to their crates
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

// expected by other crates' files at their root
extern crate alloc;
mod ids {
    pub(crate) use roce_transport::ids::CqId;
}
mod time {
    pub(crate) use roce_transport::time::Instant;
}

/// Explores a model with at most `preemptions`.
fn check(preemptions: usize, model: impl Fn() + Send + Sync + 'static) {
    let mut builder = loom::model::Builder::new();
    builder.preemption_bound = Some(preemptions);
    builder.check(model);
}
