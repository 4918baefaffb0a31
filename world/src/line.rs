//! Lines of a ladder: two ends, and the packets between them.

use std::time::Duration;

use roce_capture::explain::{Cause, Explanation};

/// One of the two ends.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum Side {
    /// A.
    Left,
    /// B.
    Right,
}

impl Side {
    /// The other one.
    #[must_use]
    pub const fn other(self) -> Self {
        match self {
            Self::Left => Self::Right,
            Self::Right => Self::Left,
        }
    }
}

/// Kind of what a line says.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Tone {
    /// What is usual.
    Plain,
    /// Something was lost, refused or failed.
    Bad,
    /// Something is done again, or slower.
    Warned,
    /// What is beside the packets.
    Faint,
    /// What a program does, or is told.
    Strong,
}

impl Tone {
    /// Its name in pages.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Plain => "plain",
            Self::Bad => "bad",
            Self::Warned => "warned",
            Self::Faint => "faint",
            Self::Strong => "strong",
        }
    }
}

impl From<&Explanation> for Tone {
    fn from(why: &Explanation) -> Self {
        match why {
            Explanation::Negative(..) | Explanation::Unreadable | Explanation::Damaged => Self::Bad,
            Explanation::Again(causes) if causes.contains(Cause::NoAnswer) => Self::Bad,
            Explanation::Again(_)
            | Explanation::AfterGap(_)
            | Explanation::Late
            | Explanation::MessageAgain
            | Explanation::Congestion
            | Explanation::Answers { again: true } => Self::Warned,
            _ => Self::Plain,
        }
    }
}

/// Event that a line shows.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Event {
    /// A packet leaves an end: what, and why.
    Sent(Side, String, String),
    /// A packet arrives at an end: what, and what becomes of it.
    Arrived(Side, String, String),
    /// A packet from an end, as a capture has it: what, and why.
    Seen(Side, String, String),
    /// A packet from an end does not arrive.
    Lost(Side, String),
    /// Something that happens at an end.
    Note(Side, String),
}

/// A line.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Line {
    /// Its time, from the start.
    pub at: Duration,
    /// The event.
    pub event: Event,
    /// Its kind.
    pub tone: Tone,
    /// Number of the datagram that leaves, arrives or is lost, counted from 0 in the order of
    /// sending. A duplicate has the number of its original.
    pub datagram: Option<u64>,
}
