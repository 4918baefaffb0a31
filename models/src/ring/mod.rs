//! The ring of runs in shared memory: the provider's file in this crate's memory.

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
