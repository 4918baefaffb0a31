//! A simulated network. It drops, duplicates, delays, reorders, corrupts and marks datagrams by
//! rules, the same way for the same seed. A package of its own, `roce-fabric`, has it.

pub use roce_fabric::*;
