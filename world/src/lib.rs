//! Two adapters in virtual time, a simulated network between them, and scenarios that they play.
//!
//! A scenario is a function of its [`Settings`]: the same settings give the same packets, byte for
//! byte. A [`Viewer`] is told what happens, line by line, and ends it with an error when it has seen
//! enough; so the state after any line is had by playing to that line.
//!
//! Nothing here reads a clock, waits or prints.

mod failure;
mod line;
mod names;
mod node;
pub mod packet_text;
mod post;
mod scenario;
mod scenarios;
mod settings;
mod viewer;
mod world;

pub use failure::Failure;
pub use line::{Event, Line, Side, Tone};
pub use node::{Buffer, Node};
pub use scenario::{FREE, SCENARIOS, Scenario, play};
pub use settings::{Fate, Post, PostKind, Settings};
pub use viewer::{SentDatagram, Viewer};
pub use world::World;
