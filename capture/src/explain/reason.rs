//! Reasons that packets prove.

use std::{fmt, time::Duration};

use roce_transport::{psn::Psn, wire::Syndrome};

/// Cause for which a requester sends something again.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
#[repr(u8)]
pub enum Cause {
    /// A NAK "PSN sequence error".
    Nak = 1,
    /// An answer to something later, without the data of a READ or an atomic before it.
    ImpliedNak = 2,
    /// No answer in time: the acknowledge timer, or a probe, which is sent earlier.
    NoAnswer = 4,
    /// The receiver was not ready, and the wait that it asked for is over.
    NotReady = 8,
    /// Nothing of the other end was captured.
    NotCaptured = 16,
}

impl Cause {
    const ALL: [Self; 5] =
        [Self::Nak, Self::ImpliedNak, Self::NoAnswer, Self::NotReady, Self::NotCaptured];
}

impl fmt::Display for Cause {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Nak => "NAK",
            Self::ImpliedNak => "implied NAK",
            Self::NoAnswer => "no answer in time",
            Self::NotReady => "RNR",
            Self::NotCaptured => "no answer was captured",
        })
    }
}

/// Causes that the packets allow: one of them is right.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
pub struct Causes(u8);

impl Causes {
    /// None is known.
    pub const UNKNOWN: Self = Self(0);

    /// These.
    #[must_use]
    pub fn of(causes: &[Cause]) -> Self {
        Self(causes.iter().fold(0, |all, &cause| all | cause as u8))
    }

    /// The same and another.
    #[must_use]
    pub(super) const fn or(self, cause: Cause) -> Self {
        Self(self.0 | cause as u8)
    }

    /// True if this cause is among them.
    #[must_use]
    pub const fn contains(self, cause: Cause) -> bool {
        self.0 & cause as u8 != 0
    }

    /// Each of them.
    pub fn iter(self) -> impl Iterator<Item = Cause> {
        Cause::ALL.into_iter().filter(move |&cause| self.contains(cause))
    }
}

impl fmt::Display for Causes {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if *self == Self::UNKNOWN {
            return f.write_str("the capture does not show why");
        }
        for (n, cause) in self.iter().enumerate() {
            write!(f, "{}{cause}", if n > 0 { " or " } else { "" })?;
        }
        Ok(())
    }
}

/// Reason for which a packet was sent, as far as the capture proves it.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
#[non_exhaustive]
pub enum Explanation {
    /// Begins a message, and is seen for the first time.
    First,
    /// Goes on with a message, for the first time.
    Next,
    /// The first packet of a requester that the capture has: maybe not the first that was sent.
    Joined,
    /// Its PSN is far from those before: much was not captured, or its queue pair was connected
    /// again.
    Anew,
    /// Number of PSNs before it that are missing so far.
    AfterGap(u32),
    /// Behind later ones, and not seen before: it was overtaken, or lost and sent again.
    Late,
    /// Was sent before.
    Again(Causes),
    /// Comes again sooner than anyone would send it again: a copy that the network or the capture
    /// has made.
    Copy,
    /// Acknowledges everything up to this PSN: so many packets, and after which time the last of
    /// them, if it is known.
    Acknowledges {
        /// The last PSN.
        up_to: Psn,
        /// Packets that had no answer before.
        packets: u32,
        /// Time since the last of them was sent, if it was sent once.
        after: Option<Duration>,
    },
    /// An acknowledgement of what was acknowledged before.
    AcknowledgesAgain(Psn),
    /// Refuses this PSN, and acknowledges everything before.
    Negative(Psn, Syndrome),
    /// An answer with data, or to a request that is answered as a READ is.
    Answers {
        /// True if the same PSN was answered before.
        again: bool,
    },
    /// Answers something that the capture does not have.
    AnswersUnseen,
    /// Answers one of so many connections; which, the capture does not show.
    AnswersOneOf(usize),
    /// A congestion notification.
    Congestion,
    /// A datagram.
    Datagram,
    /// A message of connection management, for the first time.
    Message,
    /// The same message again.
    MessageAgain,
    /// No packet that parses.
    Unreadable,
    /// Damaged: its fields may be anything.
    Damaged,
}

impl fmt::Display for Explanation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::First => f.write_str("first of a message"),
            Self::Next => f.write_str("next of its message"),
            Self::Joined => f.write_str("the first that was captured"),
            Self::Anew => f.write_str(
                "far from the PSNs before: much was not captured, or a new connection began",
            ),
            Self::AfterGap(1) => f.write_str("one PSN before it is missing here"),
            Self::AfterGap(count) => write!(f, "{count} PSNs before it are missing here"),
            Self::Late => f.write_str("late: overtaken on the way, or lost and sent again"),
            Self::Again(causes) => write!(f, "again: {causes}"),
            Self::Copy => f.write_str("a copy: too soon to be sent again"),
            // up to which PSN, the packet itself says
            Self::Acknowledges { packets: 1, after: Some(after), .. } => {
                write!(f, "acknowledges 1 packet after {after:.1?}")
            }
            Self::Acknowledges { packets, after: Some(after), .. } => {
                write!(f, "acknowledges {packets} packets, the last after {after:.1?}")
            }
            Self::Acknowledges { packets, after: None, .. } => {
                write!(f, "acknowledges {packets} packet{}", if *packets == 1 { "" } else { "s" })
            }
            Self::AcknowledgesAgain(psn) => {
                write!(f, "acknowledges up to {}, which is known", psn.get())
            }
            Self::Negative(psn, Syndrome::RnrNak { .. }) => {
                write!(f, "not ready for {}", psn.get())
            }
            Self::Negative(psn, Syndrome::Nak(roce_transport::wire::NakCode::PsnSequenceError)) => {
                write!(f, "NAK for the gap at {}", psn.get())
            }
            Self::Negative(psn, _) => write!(f, "refuses {}", psn.get()),
            Self::Answers { again: false } => f.write_str("answer"),
            Self::Answers { again: true } => f.write_str("answer, again"),
            Self::AnswersUnseen => f.write_str("answers what was not captured"),
            Self::AnswersOneOf(1) => {
                f.write_str("answers another connection, or what was not captured")
            }
            Self::AnswersOneOf(count) => {
                write!(f, "answers one of {count} connections: the capture does not show which")
            }
            Self::Congestion => f.write_str("its packets meet congestion"),
            Self::Datagram => f.write_str("datagram"),
            Self::Message => f.write_str("for the first time"),
            Self::MessageAgain => f.write_str("the same again"),
            Self::Unreadable => f.write_str("no packet that parses"),
            Self::Damaged => f.write_str("damaged: its ICRC is wrong"),
        }
    }
}
