//! States of a queue pair and their edges (10.3.1).

use core::fmt;

use crate::wire::Service;

/// Transport service (`ibv_qp_type`).
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum QpType {
    /// Reliable connection.
    Rc,
    /// Unreliable connection.
    Uc,
    /// Unreliable datagram.
    Ud,
    /// The sending end of XRC (`IBV_QPT_XRC_SEND`), without a receive queue.
    XrcInitiator,
    /// The receiving end of XRC (`IBV_QPT_XRC_RECV`), without queues.
    XrcTarget,
    /// The program's Ethernet frames (`IBV_QPT_RAW_PACKET`).
    RawPacket,
}

impl QpType {
    /// Service in opcodes; raw packets, without opcodes, count as UD.
    #[must_use]
    pub const fn service(self) -> Service {
        match self {
            Self::Rc => Service::Rc,
            Self::Uc => Service::Uc,
            Self::Ud | Self::RawPacket => Service::Ud,
            Self::XrcInitiator | Self::XrcTarget => Service::Xrc,
        }
    }

    /// True if requests are acknowledged and retransmitted.
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
    /// New; no posting.
    Reset,
    /// Accepts receives; receives nothing.
    Init,
    /// Ready to receive.
    Rtr,
    /// Ready to receive and to send.
    Rts,
    /// The send queue drains or has drained.
    Sqd,
    /// Sending failed (UC, UD and raw packets); receiving continues.
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

/// Edges for commands, besides any→RESET and any but RESET→ERR. Only the adapter enters SQE.
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

/// True if this type has this edge.
#[must_use]
pub fn is_legal(qp_type: QpType, from: State, to: State) -> bool {
    match (from, to) {
        (_, State::Reset) => true,
        (State::Reset, State::Err) => false,
        (_, State::Err) => true,
        (State::Sqe, _) if qp_type.is_reliable() => false, // no such state in reliable services
        edge => EDGES.contains(&edge),
    }
}
