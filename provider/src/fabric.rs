//! Simulated network with faults (`roce-fabric`).

pub use roce_fabric::*;
