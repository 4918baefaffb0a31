//! Memory for regions: pages of our own, files, and what the program owns.

mod file;
mod foreign;
mod kernel;
mod pages;
mod reach;

pub use file::FileMemory;
pub use foreign::{ForeignMemory, Unreachable};
pub use pages::MmapMemory;
