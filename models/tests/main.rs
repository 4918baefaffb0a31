//! Models of concurrency: properties, and failures if a step or an ordering is left out.

mod completions;
mod engine;
mod runs;
