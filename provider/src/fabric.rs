//! A simulated network: loses, duplicates, delays, reorders, corrupts and marks datagrams as it is
//! told to, the same way for the same seed. A package of its own, `roce-fabric`, has it.

pub use roce_fabric::*;
