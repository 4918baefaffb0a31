//! Lines of a ladder: the ends, and the packets between them.

use std::{
    fmt::{self, Write},
    time::Duration,
};

use roce_capture::explain::{Cause, Explanation};

/// One of the ends.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
#[expect(missing_docs, reason = "their letters are their names")]
pub enum End {
    A,
    B,
    C,
    D,
}

impl End {
    /// All that there may be, from the left to the right.
    pub const ALL: [Self; 4] = [Self::A, Self::B, Self::C, Self::D];

    /// Its letter.
    #[must_use]
    pub const fn letter(self) -> char {
        (b'A' + self as u8) as char
    }

    /// The end of this letter, capital or small.
    #[must_use]
    pub fn of_letter(letter: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|end| {
            let mut letters = letter.chars();
            letters.next().is_some_and(|it| it.eq_ignore_ascii_case(&end.letter()))
                && letters.next().is_none()
        })
    }

    /// The way from here to another end.
    #[must_use]
    pub const fn to(self, to: Self) -> Way {
        Way { from: self, to: Some(to) }
    }
}

impl fmt::Display for End {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_char(self.letter())
    }
}

/// Way of a packet.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Way {
    /// The end that sends it.
    pub from: End,
    /// The end that it is for; `None`: a group.
    pub to: Option<End>,
}

/// Kind of what a line says.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Tone {
    /// An ordinary line.
    Plain,
    /// Something was lost, refused or failed.
    Bad,
    /// Something is done again, or slower.
    Warned,
    /// A line beside the packets.
    Faint,
    /// A program's calls and events.
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
            Explanation::Again(causes)
                if causes.contains(Cause::NoAnswer) || causes.contains(Cause::NotCaptured) =>
            {
                Self::Bad
            }
            Explanation::Again(_)
            | Explanation::Anew
            | Explanation::AfterGap(_)
            | Explanation::Late
            | Explanation::MessageAgain
            | Explanation::Copy
            | Explanation::Congestion
            | Explanation::Answers { again: true } => Self::Warned,
            _ => Self::Plain,
        }
    }
}

/// Event that a line shows.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Event {
    /// A packet leaves: what, and why.
    Sent(Way, String, String),
    /// A packet arrives: what, and what becomes of it. Its way ends where it arrives.
    Arrived(Way, String, String),
    /// A packet as a capture has it: what, and why.
    Seen(Way, String, String),
    /// A packet does not arrive.
    Lost(Way, String),
    /// Something that happens at an end.
    Note(End, String),
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
