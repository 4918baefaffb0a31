//! Two to four adapters in virtual time on a simulated network, and scenarios for them.
//!
//! A scenario is a function of its [`Settings`]: equal settings give equal packets, byte for byte.
//! A [`Viewer`] sees each line and may stop the scenario; playing to a line gives the state after
//! the line. A [`Script`] is a scenario as text (`docs/guide/demo.md`).

mod failure;
mod line;
mod names;
mod node;
pub mod packet_text;
mod post;
mod scenario;
mod scenarios;
mod script;
mod settings;
mod viewer;
mod world;

pub use failure::Failure;
pub use line::{Direction, End, Event, Line, Tone};
pub use node::{Buffer, Node};
pub use scenario::{FREE, SCENARIOS, Scenario, play, play_script};
pub use script::{Script, ScriptError};
pub use settings::{Fate, MOST_RECORDS, Post, PostKind, Settings};
pub use viewer::{SentDatagram, Viewer};
pub use world::World;
