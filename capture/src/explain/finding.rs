use std::{fmt, time::Duration};

use roce_transport::event::DropReason;

use super::{icrc::WrongIcrcs, network::Address};

/// A fault, possibly apparent.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Finding {
    /// Frame number, from 1.
    pub frame: usize,
    /// Connection, if any.
    pub connection: Option<usize>,
    /// Fault.
    pub kind: FindingKind,
}

/// Kinds of faults.
#[derive(Clone, PartialEq, Eq, Debug)]
#[non_exhaustive]
#[allow(missing_docs, reason = "a kind's comment describes its fields")]
pub enum FindingKind {
    /// Wrong ICRC, from damage, a router or the sender.
    WrongIcrc,
    /// Wrong ICRCs that count as right: number of packets, sender and receiver, common cause.
    WrongIcrcs { packets: usize, way: [Address; 2], fault: WrongIcrcs },
    /// Bytes that are no packet.
    Unreadable(DropReason),
    /// Number of missing PSNs.
    PsnJump(u32),
    /// A NAK that ends the connection.
    FatalNak(String),
    /// No response for this time, to the capture's end.
    NoResponse(Duration),
    /// Response time, and the usual time.
    LateResponse(Duration, Duration),
    /// Transmissions of one packet.
    Storm(u32),
    /// Percentage of retransmitted packets.
    ManyRepeats(u32),
    /// Marked packets without a CNP.
    MarksWithoutNotification(u32),
    /// CNPs that did not slow the sender.
    NotificationsIgnored(u32),
    /// A middle packet has another length: path MTU and payload in bytes.
    MtuMismatch { expected: u32, found: u32 },
    /// Retransmitted after the first time; the response takes the second.
    TimeoutTooShort(Duration, Duration),
    /// One direction only was captured, or the other end was silent.
    OneDirection,
    /// Number of connections that may be the other direction.
    OneOf(usize),
    /// A rejected connection request.
    Rejected(String),
}

impl FindingKind {
    /// Short name for machines.
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
            // a single packet: the evidence is the other direction
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
            Self::PsnJump(count) => write!(
                f,
                "{count} PSNs are missing: lost before the capture, overtaken, or not captured"
            ),
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
