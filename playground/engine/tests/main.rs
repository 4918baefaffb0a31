//! The engine, and the course's claims.

mod course;
mod plays;
