//! Memory of GPUs, which the processor cannot reach: the driver that the program has loaded copies.
//!
//! The driver is looked for with `RTLD_NOLOAD`. A program without one has no memory of a GPU.

mod cuda;
mod driver;
mod memory;

pub use memory::{GpuMemory, gpus_work};
