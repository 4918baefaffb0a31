//! Findings in a capture.

use std::{fmt, time::Duration};

use roce_transport::event::DropReason;

use super::{icrc::WrongIcrcs, network::Address};

/// Something that is wrong, or looks so.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Finding {
    /// Frame of the packet that shows it, from 1.
    pub frame: usize,
    /// Its connection, if it has one.
    pub connection: Option<usize>,
    /// The fault.
    pub kind: FindingKind,
}

/// Kinds of findings.
#[derive(Clone, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub enum FindingKind {
    /// The ICRC is wrong: the packet was damaged, or changed by a router that may not, or its
    /// sender computes none.
    WrongIcrc,
    /// The ICRCs of so many packets are wrong, and yet taken for right.
    WrongIcrcs {
        /// Their number.
        packets: usize,
        /// The sender's and the receiver's address.
        way: [Address; 2],
        /// Common cause.
        fault: WrongIcrcs,
    },
    /// Bytes that are no packet.
    Unreadable(DropReason),
    /// Number of missing PSNs.
    PsnJump(u32),
    /// A NAK that ends the connection.
    FatalNak(String),
    /// Packets that asked for an answer and got none within this time, to the capture's end.
    NoAnswer(Duration),
    /// An answer came this much later than usual.
    LateAnswer(Duration, Duration),
    /// A packet was sent so many times.
    Storm(u32),
    /// Percentage of retransmitted packets.
    ManyRepeats(u32),
    /// Packets arrived marked, and nobody told their sender.
    MarksWithoutNotification(u32),
    /// A sender went on as before after so many notifications.
    NotificationsIgnored(u32),
    /// A packet inside a message has another length than the others.
    MtuMismatch {
        /// Bytes of the others, or those agreed on.
        expected: u32,
        /// Its bytes.
        found: u32,
    },
    /// Sent again after this time, though the answer to the first was on its way.
    TimeoutTooShort(Duration, Duration),
    /// The capture has one direction only, or the other end was silent.
    OneDirection,
    /// The other direction is in one of so many connections, and the capture does not show in
    /// which.
    OneOf(usize),
    /// A request for a connection was refused.
    Rejected(String),
}

impl FindingKind {
    /// A short name for machines.
    #[must_use]
    pub const fn name(&self) -> &'static str {
        match self {
            Self::WrongIcrc => "wrong_icrc",
            Self::WrongIcrcs { .. } => "wrong_icrcs",
            Self::Unreadable(_) => "unreadable",
            Self::PsnJump(_) => "psn_jump",
            Self::FatalNak(_) => "fatal_nak",
            Self::NoAnswer(_) => "no_answer",
            Self::LateAnswer(..) => "late_answer",
            Self::Storm(_) => "retransmission_storm",
            Self::ManyRepeats(_) => "many_retransmissions",
            Self::MarksWithoutNotification(_) => "marks_without_cnp",
            Self::NotificationsIgnored(_) => "cnp_ignored",
            Self::MtuMismatch { .. } => "mtu_mismatch",
            Self::TimeoutTooShort(..) => "timeout_too_short",
            Self::OneDirection => "one_direction",
            Self::OneOf(_) => "one_of",
            Self::Rejected(_) => "rejected",
        }
    }
}

impl fmt::Display for FindingKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::WrongIcrc => f.write_str(
                "wrong ICRC: damaged on the way, changed by something that may not change it, or never \
                 right",
            ),
            // one alone proves nothing: all in the other direction are
            Self::WrongIcrcs { packets: 1, way: [src, dst], .. } => write!(
                f,
                "the ICRC of the packet from {src} to {dst} is wrong, as all of the other direction \
                 are; it is taken for right"
            ),
            Self::WrongIcrcs { packets, way: [src, dst], fault } => write!(
                f,
                "the ICRCs of {packets} packets from {src} to {dst} {fault}; they are taken for right"
            ),
            Self::Unreadable(reason) => write!(f, "no packet: {reason}"),
            Self::PsnJump(1) => f.write_str("a PSN is missing: lost before the capture, or overtaken"),
            Self::PsnJump(count) => {
                write!(
                    f,
                    "{count} PSNs are missing: lost before the capture, overtaken, or not captured"
                )
            }
            Self::FatalNak(syndrome) => write!(f, "{syndrome}: the connection is over"),
            Self::NoAnswer(time) => {
                write!(f, "no answer, and the capture goes on for {time:.1?}")
            }
            Self::LateAnswer(time, usual) => {
                write!(f, "the answer took {time:.1?}; {usual:.1?} is usual")
            }
            Self::Storm(times) => write!(f, "sent {times} times"),
            Self::ManyRepeats(percent) => {
                write!(f, "{percent} % of the request packets were sent again")
            }
            Self::MarksWithoutNotification(count) => write!(
                f,
                "{count} packets arrived marked (ECN), and no CNP went back: is congestion \
                 notification on at the receiver?"
            ),
            Self::NotificationsIgnored(count) => write!(
                f,
                "{count} CNPs, and the sender was no slower afterwards: is congestion control on?"
            ),
            Self::MtuMismatch { expected, found } => write!(
                f,
                "{found} bytes inside a message where {expected} are expected: the path MTU differs"
            ),
            Self::TimeoutTooShort(waited, round_trip) => write!(
                f,
                "sent again after {waited:.1?}, but the answer takes {round_trip:.1?}: the timeout \
                 is too short"
            ),
            Self::OneDirection => f.write_str(
                "nothing came from the other end, or the capture has one direction only: reasons \
                     that lie in the other are not known",
            ),
            Self::OneOf(1) => f.write_str(
                "its other direction may be another connection here: the capture does not show it",
            ),
            Self::OneOf(count) => write!(
                f,
                "its other direction is one of {count} connections here: the capture does not show \
                 which"
            ),
            Self::Rejected(reason) => write!(f, "the connection was refused: {reason}"),
        }
    }
}
