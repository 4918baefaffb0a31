//! A scenario in a few lines of text.

mod parse;

use std::{collections::BTreeMap, time::Duration};

use roce_transport::qp::QpType;
use thiserror::Error;

use crate::{line::End, node::Options, post::Request, settings::Fate};

/// A scenario as text: a statement a line. `docs/guide/demo.md` describes them.
///
/// ```
/// use roce_world::Script;
/// let script: Script = "connect rc\nA post write 1 bytes 2500\nlose packet 1".parse()?;
/// let wrong = "connect rc\nA post wriet 1".parse::<Script>().unwrap_err();
/// assert!(wrong.to_string().starts_with("line 2: "));
/// # Ok::<(), roce_world::ScriptError>(())
/// ```
#[derive(Clone, Debug)]
pub struct Script {
    pub(crate) ends: usize,
    /// Clauses of a plan of faults.
    pub(crate) network: Option<String>,
    pub(crate) fates: BTreeMap<u64, Fate>,
    pub(crate) steps: Vec<Step>,
}

impl Script {
    /// A script to begin with: a gap, its NAK, an atomic.
    pub const EXAMPLE: &str = include_str!("script/example.script");
    /// Lines that a script may have: more is no lesson.
    pub const MOST_LINES: usize = 300;
    /// Bytes of memory of each end.
    pub const MEMORY: usize = 8192;

    /// Adapters of it: those from A to the last one that it names, two at least.
    #[must_use]
    pub const fn ends(&self) -> usize {
        self.ends
    }

    /// Clauses of the network, if it says something of it.
    #[must_use]
    pub fn network(&self) -> Option<&str> {
        self.network.as_deref()
    }
}

/// A text that is no script: its first line that cannot be read.
#[derive(Clone, PartialEq, Eq, Debug, Error)]
#[error("line {line}: {problem}")]
pub struct ScriptError {
    /// Number of the line, from 1.
    pub line: usize,
    /// The error, and what may stand there; one line.
    pub problem: String,
}

/// A step; steps run in their order.
#[derive(Clone, Debug)]
pub(crate) enum Step {
    Say(String),
    /// A new queue pair of each of these, connected to the other's.
    Connect([End; 2], QpType, Options),
    Post(End, Request),
    /// Eight bytes at this offset, in the host's byte order.
    Set(End, u64, u64),
    /// `None`: until nothing is left to do.
    Wait(Option<Duration>),
}
