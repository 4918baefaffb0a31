//! Verbs by commands in JSON, so that a test drives a device of another process or host.
//!
//! A line is a list of commands, and the answer is a line with a list of as many answers. A command
//! that fails is answered with `{"error": NAME_OF_ERRNO, "text": REASON}` and has changed nothing.
//! The file `command.rs` lists them; [`PYTHON`] executes the same with pyverbs.

#![cfg(target_os = "linux")]

mod bound;
mod command;
mod failure;
mod named;
mod objects;
mod pattern;
mod translate;

use roce::{Context, Quirks};

use crate::{
    bound::{COMMANDS, Waiting},
    failure::Failure,
    objects::Objects,
};

/// An agent for devices with a driver of rdma-core: a program in Python, whole in one file.
pub const PYTHON: &str = include_str!("../agent.py");

/// The same in C, for hosts without Python: it executes what `roce conform` asks for.
pub const C: &str = include_str!("../agent.c");

/// A device, and what commands have made on it.
pub struct Agent {
    objects: Objects,
}

impl Agent {
    /// An agent without objects; `quirks` are those of the peers of its queue pairs.
    #[must_use]
    pub fn new(context: Context, quirks: Quirks) -> Self {
        Self { objects: Objects::new(context, quirks) }
    }

    /// Executes a line of commands, and returns the line of answers, without its end. Commands wait
    /// for 30 s in all, and no longer once `is_gone` says that nobody waits for the answer.
    ///
    /// # Errors
    /// When the line is no list in JSON.
    pub fn answer(
        &mut self,
        line: &str,
        is_gone: &dyn Fn() -> bool,
    ) -> Result<String, serde_json::Error> {
        let commands: Vec<serde_json::Value> = serde_json::from_str(line)?;
        if commands.len() > COMMANDS {
            let text = format!("{} commands in a line: at most {COMMANDS}", commands.len());
            return serde_json::to_string(&[Failure::malformed(text).into_json()]);
        }
        let waiting = Waiting::begin(is_gone);
        let answers: Vec<_> = commands
            .into_iter()
            .take_while(|_| !waiting.is_gone())
            .map(|command| {
                let command =
                    serde_json::from_value(command).map_err(|error| Failure::new("EPROTO", error));
                command
                    .and_then(|command| self.objects.execute(command, &waiting))
                    .unwrap_or_else(Failure::into_json)
            })
            .collect();
        serde_json::to_string(&answers)
    }
}

impl std::fmt::Debug for Agent {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Agent").finish_non_exhaustive()
    }
}
