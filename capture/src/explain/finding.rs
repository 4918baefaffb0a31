//! Findings in a capture.

use std::{fmt, time::Duration};

use roce_transport::event::DropReason;

use super::{icrc::WrongIcrcs, network::Address};

/// A fault, or an apparent one.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Finding {
    /// Frame that shows it, from 1.
    pub frame: usize,
    /// Its connection, if any.
    pub connection: Option<usize>,
    /// The fault.
    pub kind: FindingKind,
}

/// Kinds of faults.
#[derive(Clone, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub enum FindingKind {
    /// Wrong ICRC: a damaged packet, a router that changed it, or a sender that computes none.
    WrongIcrc,
    /// Wrong ICRCs that count as right.
    WrongIcrcs {
        /// Number of packets.
        packets: usize,
        /// Sender and receiver.
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
    /// Packets without the requested response for this time, to the capture's end.
    NoResponse(Duration),
    /// A response's time, and the usual one.
    LateResponse(Duration, Duration),
    /// Transmissions of one packet.
    Storm(u32),
    /// Percentage of retransmitted packets.
    ManyRepeats(u32),
    /// Marked packets without a notification to their sender.
    MarksWithoutNotification(u32),
    /// Notifications that did not slow the sender.
    NotificationsIgnored(u32),
    /// A middle packet of a message has another length than the others.
    MtuMismatch {
        /// Bytes of the others, or those agreed on.
        expected: u32,
        /// Its bytes.
        found: u32,
    },
    /// Retransmitted after this time though the response was on its way.
    TimeoutTooShort(Duration, Duration),
    /// One direction only was captured, or the other end was silent.
    OneDirection,
    /// The other direction is in one of so many connections, undecided by the capture.
    OneOf(usize),
    /// A rejected connection request.
    Rejected(String),
}

impl FindingKind {
    /// Returns a short name for machines.
    #[must_use]
    pub const fn name(&self) -> &'static str {
        match self {
            Self::WrongIcrc => "wrong_icrc",
            Self::WrongIcrcs { .. } => "wrong_icrcs",
            Self::Unreadable(_) => "unreadable",
            Self::PsnJump(_) => "psn_jump",
            Self::FatalNak(_) => "fatal_nak",
            Self::NoResponse(_) => "no_response",
            Self::LateResponse(..) => "late_response",
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
                "wrong ICRC: damaged in transit, rewritten on the way, or wrong at the sender",
            ),
            // a single one: the evidence is the other direction
            Self::WrongIcrcs { packets: 1, way: [src, dst], .. } => write!(
                f,
                "the ICRC of the packet from {src} to {dst} is wrong, as are all of the other \
                 direction; the packet counts as right"
            ),
            Self::WrongIcrcs { packets, way: [src, dst], fault } => write!(
                f,
                "the ICRCs of {packets} packets from {src} to {dst} {fault}; the packets count as \
                 right"
            ),
            Self::Unreadable(reason) => write!(f, "invalid packet: {reason}"),
            Self::PsnJump(1) => {
                f.write_str("a PSN is missing: lost before the capture, or overtaken")
            }
            Self::PsnJump(count) => {
                write!(
                    f,
                    "{count} PSNs are missing: lost before the capture, overtaken, or not captured"
                )
            }
            Self::FatalNak(syndrome) => write!(f, "{syndrome}: the connection is over"),
            Self::NoResponse(time) => {
                write!(f, "no response, and the capture continues for {time:.1?}")
            }
            Self::LateResponse(time, usual) => {
                write!(f, "the response took {time:.1?}; {usual:.1?} is usual")
            }
            Self::Storm(times) => write!(f, "sent {times} times"),
            Self::ManyRepeats(percent) => {
                write!(f, "{percent} % of the request packets were retransmitted")
            }
            Self::MarksWithoutNotification(count) => write!(
                f,
                "{count} packets arrived marked (ECN), and no CNP went back: is congestion \
                 notification on at the receiver?"
            ),
            Self::NotificationsIgnored(count) => write!(
                f,
                "{count} CNPs, and the sender did not slow down: is congestion control on?"
            ),
            Self::MtuMismatch { expected, found } => write!(
                f,
                "{found} bytes inside a message where {expected} are expected: the path MTU differs"
            ),
            Self::TimeoutTooShort(waited, round_trip) => write!(
                f,
                "retransmitted after {waited:.1?}, but the response takes {round_trip:.1?}: the \
                 timeout is too short"
            ),
            Self::OneDirection => f.write_str(
                "no packet came from the other end, or the capture has one direction: reasons in \
                 the other are unknown",
            ),
            Self::OneOf(1) => f.write_str(
                "another connection of this capture may be its other direction: the capture does \
                 not show it",
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
