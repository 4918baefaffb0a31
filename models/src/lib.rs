//! Models of roce's concurrency. [loom] explores every thread order within a bound of preemptions,
//! and every value that C++'s memory model allows a load. An endless wait fails.
//!
//! Models run the code itself, as modules. Only atomics, shared memory and wake-ups are replaced.
//!
//! [`weakened`] leaves out one kind of ordering. Loom cannot load a value stored only later: no
//! test weakens the release of room that is reused.
//!
//! The [`simulator`] runs the engine in virtual time instead, in one order.
//!
//! [loom]: https://docs.rs/loom

// those files' tests belong to their crates
#![cfg(not(test))]
#![allow(clippy::duplicate_mod, reason = "loom and the simulator replace different parts")]

mod atomic;
mod bell;
mod clock;
pub mod completions;
pub mod engine;
mod ring;
mod work;

pub use atomic::{Weakening, weakened};
pub use engine::simulator;
pub use ring::runs;

// expected by other crates' files at their root
extern crate alloc;
mod ids {
    pub(crate) use roce_transport::ids::CqId;
}
mod time {
    pub(crate) use roce_transport::time::Instant;
}
mod sync {
    pub(crate) use crate::engine::simulator::sync::Mutex;
}
mod region {
    /// Simulated packets touch no memory.
    pub(crate) struct Section;

    impl Section {
        pub(crate) const fn enter() -> Self {
            Self
        }
    }
}

/// Explores a model with at most `preemptions`.
fn check(preemptions: usize, model: impl Fn() + Send + Sync + 'static) {
    let mut builder = loom::model::Builder::new();
    builder.preemption_bound = Some(preemptions);
    builder.check(model);
}
