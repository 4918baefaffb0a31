//! States of a queue pair and their edges (10.3.1).

use crate::{named::named, wire::Service};

named! {
    /// Transport service (`ibv_qp_type`).
    QpType {
        /// Reliable connection.
        Rc "RC";
        /// Unreliable connection.
        Uc "UC";
        /// Unreliable datagram.
        Ud "UD";
        /// The sending end of XRC (`IBV_QPT_XRC_SEND`), without a receive queue.
        XrcInitiator "XRC initiator";
        /// The receiving end of XRC (`IBV_QPT_XRC_RECV`), without queues.
        XrcTarget "XRC target";
        /// The program's Ethernet frames (`IBV_QPT_RAW_PACKET`).
        RawPacket "raw packet";
    }
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

named! {
    /// A queue pair's state (`ibv_qp_state`).
    State {
        /// New; no posting.
        Reset "RESET";
        /// Accepts receives; receives nothing.
        Init "INIT";
        /// Ready to receive.
        Rtr "RTR";
        /// Ready to receive and to send.
        Rts "RTS";
        /// The send queue drains or has drained.
        Sqd "SQD";
        /// Sending failed (UC, UD and raw packets); receiving continues.
        Sqe "SQE";
        /// Failed; everything posted is flushed.
        Err "ERR";
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
