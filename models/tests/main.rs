//! Models of concurrency: properties, and failures if a step or an ordering is left out.
//!
//! The simulator's tests: promises of the engine, in virtual time.

mod completions;
mod engine;
mod runs;
mod simulator;
