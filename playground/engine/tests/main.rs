//! The playground's engine, and the course's claims about it.

mod course;
mod plays;
