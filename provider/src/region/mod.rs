//! Memory for regions.

mod faults;
mod file;
mod foreign;
mod gpu;
mod guard;
mod kernel;
mod pages;
mod pipe;
mod program;
mod reach;
#[cfg_attr(not(any(target_arch = "aarch64", target_arch = "x86_64")), path = "no_routines.rs")]
mod routines;
mod shared;

pub use faults::on_unmapped_access;
pub use file::FileMemory;
pub use foreign::{ForeignMemory, Unreachable};
pub use gpu::{GpuMemory, gpus_work};
pub(crate) use guard::Section;
pub use pages::MmapMemory;
pub use program::{copy_from_program, copy_to_program};
pub use shared::map_shared;
