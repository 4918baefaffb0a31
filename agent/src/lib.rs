//! Verbs as JSON commands: a test drives a device of another process or host.
//!
//! A line is a list of commands, its response a list of as many responses. A failed command returns
//! `{"error": NAME_OF_ERRNO, "text": REASON}` and changes nothing. [`PYTHON`] takes the same
//! commands with pyverbs.

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

/// Agent for devices with an rdma-core driver, a Python program.
pub const PYTHON: &str = include_str!("../agent.py");

/// Agent in C, limited to what `roce conform` uses, for hosts without Python.
pub const C: &str = include_str!("../agent.c");

/// A device and its objects.
pub struct Agent {
    objects: Objects,
}

impl Agent {
    /// `quirks`: those of its queue pairs' peers.
    #[must_use]
    pub fn new(context: Context, quirks: Quirks) -> Self {
        Self { objects: Objects::new(context, quirks) }
    }

    /// Executes a line, and returns the response without its end. Waits end after 30 s in all, or
    /// once `is_gone` is true.
    ///
    /// # Errors
    /// The line is no JSON list.
    pub fn execute(
        &mut self,
        line: &str,
        is_gone: &dyn Fn() -> bool,
    ) -> Result<String, serde_json::Error> {
        let commands: Vec<serde_json::Value> = serde_json::from_str(line)?;
        if commands.len() > COMMANDS {
            let text = format!(
                "too many commands in a line: {}; at most \
                 {COMMANDS}",
                commands.len()
            );
            return serde_json::to_string(&[Failure::malformed(text).into_json()]);
        }
        let waiting = Waiting::begin(is_gone);
        let responses: Vec<_> = commands
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
        serde_json::to_string(&responses)
    }
}

impl std::fmt::Debug for Agent {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Agent").finish_non_exhaustive()
    }
}
