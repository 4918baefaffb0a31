mod parse;

use std::{collections::BTreeMap, time::Duration};

use roce_transport::qp::QpType;
use thiserror::Error;

use crate::{line::End, node::Options, post::Request, settings::Fate};

/// A scenario as text, one statement a line; see `docs/guide/demo.md`.
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
    /// Number of adapters, at least two.
    pub ends: usize,
    /// Clauses of a [`FaultPlan`](roce_fabric::FaultPlan).
    pub network: Option<String>,
    pub(crate) fates: BTreeMap<u64, Fate>,
    pub(crate) steps: Vec<Step>,
}

impl Script {
    /// Example with a gap, its NAK, an atomic.
    pub const EXAMPLE: &str = include_str!("script/example.script");
    /// Greatest number of lines.
    pub const MOST_LINES: usize = 300;
    /// Bytes of memory per end.
    pub const MEMORY: usize = 8192;
}

/// First unreadable line of a script.
#[derive(Clone, PartialEq, Eq, Debug, Error)]
#[error("line {line}: {problem}")]
pub struct ScriptError {
    /// Line number, from 1.
    pub line: usize,
    /// Error and expected input, in one line.
    pub problem: String,
}

#[derive(Clone, Debug)]
pub(crate) enum Step {
    Say(String),
    Connect([End; 2], QpType, Options),
    Post(End, Request),
    /// Offset, and 8 bytes in host byte order.
    Set(End, u64, u64),
    /// `None`: until idle.
    Wait(Option<Duration>),
}
