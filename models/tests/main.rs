//! Models of concurrency: what holds, and what would not if a step or an ordering was left out.

mod completions;
mod engine;
mod runs;
