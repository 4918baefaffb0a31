use std::{
    fmt::{self, Write},
    time::Duration,
};

use roce_capture::explain::{Cause, Explanation};

/// Adapter of a scenario.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
#[expect(missing_docs, reason = "their letters are their names")]
pub enum End {
    A,
    B,
    C,
    D,
}

impl End {
    /// Left to right.
    pub const ALL: [Self; 4] = [Self::A, Self::B, Self::C, Self::D];

    /// Upper-case letter.
    #[must_use]
    pub const fn letter(self) -> char {
        (b'A' + self as u8) as char
    }

    /// End of a letter in either case.
    #[must_use]
    pub fn of_letter(letter: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|end| letter.eq_ignore_ascii_case(&end.to_string()))
    }

    /// Direction to another end.
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
    /// `None`: a group.
    pub to: Option<End>,
}

/// Tone of a line.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Tone {
    /// Ordinary.
    Plain,
    /// Lost, refused or failed.
    Bad,
    /// Retransmitted or slowed down.
    Warned,
    /// Beside the packets.
    Faint,
    /// A program's call or event.
    Strong,
}

impl Tone {
    /// Name in pages.
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
    /// Departure: text and reason.
    Sent(Direction, String, String),
    /// Arrival: text and effect. The direction ends where the packet arrives.
    Arrived(Direction, String, String),
    /// Captured packet: text and reason.
    Seen(Direction, String, String),
    /// Lost packet.
    Lost(Direction, String),
    /// Event at an end.
    Note(End, String),
}

/// Line of a ladder.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Line {
    /// Time since the start.
    pub at: Duration,
    /// Event.
    pub event: Event,
    /// Tone.
    pub tone: Tone,
    /// Datagram number from 0 in sending order; a duplicate has its original's.
    pub datagram: Option<u64>,
}
