//! Lines of a ladder: ends and packets.

use std::{
    fmt::{self, Write},
    time::Duration,
};

use roce_capture::explain::{Cause, Explanation};

/// An end.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
#[expect(missing_docs, reason = "their letters are their names")]
pub enum End {
    A,
    B,
    C,
    D,
}

impl End {
    /// All ends, left to right.
    pub const ALL: [Self; 4] = [Self::A, Self::B, Self::C, Self::D];

    /// Returns its letter.
    #[must_use]
    pub const fn letter(self) -> char {
        (b'A' + self as u8) as char
    }

    /// Returns the end with this letter, in either case.
    #[must_use]
    pub fn of_letter(letter: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|end| {
            let mut letters = letter.chars();
            letters.next().is_some_and(|it| it.eq_ignore_ascii_case(&end.letter()))
                && letters.next().is_none()
        })
    }

    /// Returns the way to another end.
    #[must_use]
    pub const fn to(self, to: Self) -> Direction {
        Direction { from: self, to: Some(to) }
    }
}

impl fmt::Display for End {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_char(self.letter())
    }
}

/// Direction of a packet.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Direction {
    /// Sender.
    pub from: End,
    /// Receiver; `None`: a group.
    pub to: Option<End>,
}

/// Kind of a line.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Tone {
    /// An ordinary line.
    Plain,
    /// Lost, refused or failed.
    Bad,
    /// Retransmitted or slowed down.
    Warned,
    /// Beside the packets.
    Faint,
    /// A program's calls and events.
    Strong,
}

impl Tone {
    /// Returns its name in pages.
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
            Explanation::Retransmit(causes)
                if causes.contains(Cause::NoResponse) || causes.contains(Cause::NotCaptured) =>
            {
                Self::Bad
            }
            Explanation::Retransmit(_)
            | Explanation::Jump
            | Explanation::AfterGap(_)
            | Explanation::Late
            | Explanation::MessageRetransmit
            | Explanation::Copy
            | Explanation::Congestion
            | Explanation::Responses { again: true } => Self::Warned,
            _ => Self::Plain,
        }
    }
}

/// Event of a line.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Event {
    /// A packet leaves: text and reason.
    Sent(Direction, String, String),
    /// A packet arrives: text and effect. The way ends where it arrives.
    Arrived(Direction, String, String),
    /// A captured packet: text and reason.
    Seen(Direction, String, String),
    /// A packet is lost.
    Lost(Direction, String),
    /// An event at an end.
    Note(End, String),
}

/// A line of a ladder.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Line {
    /// Time since the start.
    pub at: Duration,
    /// The event.
    pub event: Event,
    /// Its kind.
    pub tone: Tone,
    /// Number of its datagram, from 0 in sending order; a duplicate has its original's.
    pub datagram: Option<u64>,
}
