//! The states of a queue pair and the edges between them (10.3.1).

use core::fmt;

use crate::wire::Service;

/// The transport service of a queue pair (`ibv_qp_type`).
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum QpType {
    /// Reliable connection.
    Rc,
    /// Unreliable connection.
    Uc,
    /// Unreliable datagram.
    Ud,
    /// The sending end of an extended reliable connection (`IBV_QPT_XRC_SEND`): a send queue and no
    /// receive queue.
    XrcInitiator,
    /// The receiving end of an extended reliable connection (`IBV_QPT_XRC_RECV`): it has no queue
    /// of its own, but receives into the XRC SRQs of its XRC domain.
    XrcTarget,
    /// Whole Ethernet frames of the program's own (`IBV_QPT_RAW_PACKET`): no transport service,
    /// only work queues.
    RawPacket,
}

impl QpType {
    /// The service that its packets' opcodes name. Raw packets have no opcode, and packets of the
    /// transport never reach such a queue pair; it stands with the datagrams.
    #[must_use]
    pub const fn service(self) -> Service {
        match self {
            Self::Rc => Service::Rc,
            Self::Uc => Service::Uc,
            Self::Ud | Self::RawPacket => Service::Ud,
            Self::XrcInitiator | Self::XrcTarget => Service::Xrc,
        }
    }

    /// True if its requests are acknowledged, and sent again when they are not.
    #[must_use]
    pub const fn is_reliable(self) -> bool {
        matches!(self, Self::Rc | Self::XrcInitiator | Self::XrcTarget)
    }
}

impl fmt::Display for QpType {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Rc => "RC",
            Self::Uc => "UC",
            Self::Ud => "UD",
            Self::XrcInitiator => "XRC initiator",
            Self::XrcTarget => "XRC target",
            Self::RawPacket => "raw packet",
        })
    }
}

/// A queue pair's state (`ibv_qp_state`).
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum State {
    /// New; nothing can be posted.
    Reset,
    /// Receives can be posted; nothing is received.
    Init,
    /// Ready to receive.
    Rtr,
    /// Ready to receive and to send.
    Rts,
    /// The send queue is draining or drained; nothing new is sent.
    Sqd,
    /// Sending has failed (UC, UD and raw packets); receiving goes on.
    Sqe,
    /// Failed; everything posted is flushed.
    Err,
}

impl fmt::Display for State {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Reset => "RESET",
            Self::Init => "INIT",
            Self::Rtr => "RTR",
            Self::Rts => "RTS",
            Self::Sqd => "SQD",
            Self::Sqe => "SQE",
            Self::Err => "ERR",
        })
    }
}

impl State {
    /// Every state.
    pub const ALL: [Self; 7] =
        [Self::Reset, Self::Init, Self::Rtr, Self::Rts, Self::Sqd, Self::Sqe, Self::Err];
}

/// Every edge that a command can take, besides those from any state to RESET and from any but RESET
/// to ERR. Only the adapter itself enters SQE. Those that lead back to where they come from only
/// change attributes.
pub const EDGES: &[(State, State)] = &[
    (State::Reset, State::Init),
    (State::Init, State::Init),
    (State::Init, State::Rtr),
    (State::Rtr, State::Rts),
    (State::Rts, State::Rts),
    (State::Rts, State::Sqd),
    (State::Sqd, State::Sqd),
    (State::Sqd, State::Rts),
    (State::Sqe, State::Rts),
];

/// True if a queue pair of this type may be moved from one state to the other.
#[must_use]
pub fn is_legal(qp_type: QpType, from: State, to: State) -> bool {
    match (from, to) {
        (_, State::Reset) => true,
        (State::Reset, State::Err) => false,
        (_, State::Err) => true,
        (State::Sqe, _) if qp_type.is_reliable() => false, // a reliable queue pair has no such state
        edge => EDGES.contains(&edge),
    }
}
