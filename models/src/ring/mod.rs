//! The ring of runs in shared memory: the provider's file, in memory of this crate.

#[allow(clippy::module_inception, reason = "the file's own name")]
#[allow(
    dead_code,
    unreachable_pub,
    reason = "a file of another crate, of which no model needs all"
)]
#[path = "../../../provider/src/link/rings/ring.rs"]
mod ring;
mod ring_memory;
pub mod runs;
