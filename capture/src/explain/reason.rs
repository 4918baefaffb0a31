use std::{fmt, time::Duration};

use derive_more::Display;
use roce_transport::{psn::Psn, wire::Syndrome};

/// Cause of a retransmission.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Display)]
#[repr(u8)]
pub enum Cause {
    /// NAK "PSN sequence error".
    #[display("NAK")]
    Nak = 1,
    /// Response to a later request while READ or atomic data is missing.
    #[display("implied NAK")]
    ImpliedNak = 2,
    /// No response in time: acknowledge timer, or an earlier probe.
    #[display("no response in time")]
    NoResponse = 4,
    /// Expired RNR timer.
    #[display("RNR")]
    NotReady = 8,
    /// Nothing of the other end was captured.
    #[display("no response captured")]
    NotCaptured = 16,
}

impl Cause {
    const ALL: [Self; 5] =
        [Self::Nak, Self::ImpliedNak, Self::NoResponse, Self::NotReady, Self::NotCaptured];
}

/// Possible causes.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
pub struct Causes(u8);

impl Causes {
    /// No known cause.
    pub const UNKNOWN: Self = Self(0);

    /// Set of causes.
    #[must_use]
    pub fn of(causes: &[Cause]) -> Self {
        Self(causes.iter().fold(0, |all, &cause| all | cause as u8))
    }

    #[must_use]
    pub(super) const fn or(self, cause: Cause) -> Self {
        Self(self.0 | cause as u8)
    }

    /// True if the cause is possible.
    #[must_use]
    pub const fn contains(self, cause: Cause) -> bool {
        self.0 & cause as u8 != 0
    }

    /// Every possible cause.
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

/// Reason for a packet, as far as the capture proves.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
#[non_exhaustive]
#[allow(missing_docs, reason = "an explanation's comment describes its fields")]
pub enum Explanation {
    /// First packet of a new message.
    First,
    /// Next packet of a message.
    Next,
    /// First captured packet of a requester.
    Joined,
    /// Far from earlier PSNs: a reconnection, or much was not captured.
    Jump,
    /// Number of missing PSNs before.
    AfterGap(u32),
    /// Seen after later packets: overtaken, or lost and retransmitted.
    Late,
    /// Retransmitted.
    Retransmit(Causes),
    /// Copy, too soon for a retransmission.
    Copy,
    /// Acknowledges everything up to a PSN: newly acknowledged packets, and the time since the last
    /// was sent, if sent once.
    Acknowledges { up_to: Psn, packets: u32, after: Option<Duration> },
    /// Acknowledges nothing new.
    DuplicateAcknowledge(Psn),
    /// NAK or RNR NAK of this PSN.
    Negative(Psn, Syndrome),
    /// Response with data. `again`: the PSN already had a response.
    Responses { again: bool },
    /// Response to an uncaptured request.
    RespondsToUnseen,
    /// Response to one of this many connections.
    RespondsToOneOf(usize),
    /// A CNP.
    Congestion,
    /// A datagram.
    Datagram,
    /// First transmission of a CM message.
    Message,
    /// Retransmitted CM message.
    MessageRetransmit,
    /// Does not parse.
    Unreadable,
    /// Damaged: fields are unreliable.
    Damaged,
}

impl fmt::Display for Explanation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::First => f.write_str("first of a message"),
            Self::Next => f.write_str("next of its message"),
            Self::Joined => f.write_str("first captured packet"),
            Self::Jump => f.write_str(
                "far from the earlier PSNs: many packets were not captured, or a new connection \
                 started",
            ),
            Self::AfterGap(1) => f.write_str("one PSN before it is missing"),
            Self::AfterGap(count) => write!(f, "{count} PSNs before it are missing"),
            Self::Late => f.write_str("late: reordered, or lost and retransmitted"),
            Self::Retransmit(causes) => write!(f, "retransmitted: {causes}"),
            Self::Copy => f.write_str("a copy: too early for a retransmit"),
            // the packet shows the PSN
            Self::Acknowledges { packets: 1, after: Some(after), .. } => {
                write!(f, "acknowledges 1 packet after {after:.1?}")
            }
            Self::Acknowledges { packets, after: Some(after), .. } => {
                write!(f, "acknowledges {packets} packets, the last after {after:.1?}")
            }
            Self::Acknowledges { packets, after: None, .. } => {
                write!(f, "acknowledges {packets} packet{}", if *packets == 1 { "" } else { "s" })
            }
            Self::DuplicateAcknowledge(psn) => write!(f, "duplicate ACK up to {}", psn.get()),
            Self::Negative(psn, Syndrome::RnrNak { .. }) => {
                write!(f, "not ready for {}", psn.get())
            }
            Self::Negative(psn, Syndrome::Nak(roce_transport::wire::NakCode::PsnSequenceError)) => {
                write!(f, "NAK for the gap at {}", psn.get())
            }
            Self::Negative(psn, _) => write!(f, "refuses {}", psn.get()),
            Self::Responses { again: false } => f.write_str("response"),
            Self::Responses { again: true } => f.write_str("repeated response"),
            Self::RespondsToUnseen => f.write_str("responds to a packet that was not captured"),
            Self::RespondsToOneOf(1) => {
                f.write_str("responds to another connection, or to a packet that was not captured")
            }
            Self::RespondsToOneOf(count) => {
                write!(f, "responds to one of {count} connections: the capture does not show which")
            }
            Self::Congestion => f.write_str("congestion experienced"),
            Self::Datagram => f.write_str("datagram"),
            Self::Message => f.write_str("first transmission"),
            Self::MessageRetransmit => f.write_str("retransmitted"),
            Self::Unreadable => f.write_str("does not parse"),
            Self::Damaged => f.write_str("damaged: its ICRC is wrong"),
        }
    }
}
