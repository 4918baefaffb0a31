//! The playground's engine, and what the course says of it.

mod course;
mod plays;
