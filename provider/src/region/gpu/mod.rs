//! GPU memory, which the processor cannot reach: the driver copies.
//!
//! `RTLD_NOLOAD`: a program without the driver has no GPU memory.

mod cuda;
mod memory;

pub use memory::{GpuMemory, gpus_work};
