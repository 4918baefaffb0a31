//! Simulated network (`roce-fabric`): drops, duplicates, delays, reorders, corrupts and marks
//! datagrams by rules and seed.

pub use roce_fabric::*;
