macro_rules! states {
    ($($(#[$doc:meta])* $state:ident $name:ident;)*) => {
        /// State of a connection (12.9.5 to 12.9.7) or service ID resolution (12.11).
        #[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
        pub enum CmState { $($(#[$doc])* $state,)* }

        impl CmState {
            /// Every state.
            pub const ALL: [Self; 12] = [$(Self::$state,)*];
        }

        $(const $name: Option<CmState> = Some(CmState::$state);)*
    };
}

states! {
    /// REQ sent.
    ReqSent REQ_SENT;
    /// MRA for the REQ received.
    MraReqRcvd MRA_REQ_RCVD;
    /// REP received; the program decides.
    RepRcvd REP_RCVD;
    /// REQ received; the program decides.
    ReqRcvd REQ_RCVD;
    /// REP sent.
    RepSent REP_SENT;
    /// MRA for the REP received.
    MraRepRcvd MRA_REP_RCVD;
    /// Established.
    Established ESTABLISHED;
    /// DREQ sent.
    DreqSent DREQ_SENT;
    /// DREQ received.
    DreqRcvd DREQ_RCVD;
    /// Ended; communication IDs reserved while packets may be in flight.
    TimeWait TIME_WAIT;
    /// SIDR_REQ sent.
    SidrReqSent SIDR_REQ_SENT;
    /// SIDR_REQ received; the program responds.
    SidrReqRcvd SIDR_REQ_RCVD;
}

impl CmState {
    pub(super) fn expects(self, trigger: Trigger) -> bool {
        EDGES.iter().any(|&(from, on, _)| from == Some(self) && on == trigger)
    }
}

/// Cause of a transition.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Trigger {
    /// `rdma_connect`.
    Connect,
    /// `rdma_accept`.
    Accept,
    /// `rdma_establish`.
    Establish,
    /// `rdma_notify`, or a packet from the peer.
    Notify,
    /// `rdma_reject`.
    Reject,
    /// `rdma_disconnect`.
    Disconnect,
    /// `rdma_connect` with a datagram id.
    SidrRequest,
    /// `rdma_accept` or `rdma_reject` with a datagram id.
    SidrRespond,
    /// End of a connection whose adapter is gone.
    EndForAnother,
    /// `rdma_destroy_id`.
    Destroy,
    /// REQ.
    Req,
    /// MRA for the REQ.
    MraOfReq,
    /// MRA for the REP.
    MraOfRep,
    /// REP.
    Rep,
    /// RTU.
    Rtu,
    /// REJ.
    Rej,
    /// DREQ.
    Dreq,
    /// DREP.
    Drep,
    /// DREP to a probe.
    Disowned,
    /// LAP.
    Lap,
    /// SIDR_REQ.
    SidrReq,
    /// SIDR_REP.
    SidrRep,
    /// Deadline.
    Timeout,
}

/// A transition; `None`: unused communication ID.
pub type Edge = (Option<CmState>, Trigger, Option<CmState>);

const NONE: Option<CmState> = None;

/// Every edge. Edges to the same state respond, retransmit or do nothing.
pub const EDGES: &[Edge] = &[
    // Active side.
    (NONE, Trigger::Connect, REQ_SENT),
    (REQ_SENT, Trigger::MraOfReq, MRA_REQ_RCVD),
    (REQ_SENT, Trigger::Rep, REP_RCVD),
    (REQ_SENT, Trigger::Rep, NONE), // the peer's queue pair is connected
    (REQ_SENT, Trigger::Rej, NONE),
    (REQ_SENT, Trigger::Rej, REQ_SENT), // no listener; see `listen_grace`
    (REQ_SENT, Trigger::Timeout, REQ_SENT), // retransmits
    (REQ_SENT, Trigger::Timeout, NONE),
    (REQ_SENT, Trigger::Destroy, NONE),
    (MRA_REQ_RCVD, Trigger::MraOfReq, MRA_REQ_RCVD),
    (MRA_REQ_RCVD, Trigger::Rep, REP_RCVD),
    (MRA_REQ_RCVD, Trigger::Rep, NONE),
    (MRA_REQ_RCVD, Trigger::Rej, NONE),
    (MRA_REQ_RCVD, Trigger::Timeout, MRA_REQ_RCVD),
    (MRA_REQ_RCVD, Trigger::Timeout, NONE),
    (MRA_REQ_RCVD, Trigger::Destroy, NONE),
    (REP_RCVD, Trigger::Establish, ESTABLISHED),
    (REP_RCVD, Trigger::Reject, TIME_WAIT),
    (REP_RCVD, Trigger::Rep, REP_RCVD), // sends an MRA
    (REP_RCVD, Trigger::Rej, TIME_WAIT),
    (REP_RCVD, Trigger::Destroy, TIME_WAIT),
    // Passive side.
    (NONE, Trigger::Req, REQ_RCVD),
    (REQ_RCVD, Trigger::Accept, REP_SENT),
    (REQ_RCVD, Trigger::Reject, NONE),
    (REQ_RCVD, Trigger::Req, REQ_RCVD), // sends an MRA
    (REQ_RCVD, Trigger::Rej, NONE),
    (REQ_RCVD, Trigger::Destroy, NONE),
    (REP_SENT, Trigger::Notify, ESTABLISHED),
    (REP_SENT, Trigger::Disconnect, DREQ_SENT),
    (REP_SENT, Trigger::Req, REP_SENT), // retransmits the REP
    (REP_SENT, Trigger::MraOfRep, MRA_REP_RCVD),
    (REP_SENT, Trigger::Rtu, ESTABLISHED),
    (REP_SENT, Trigger::Rej, TIME_WAIT),
    (REP_SENT, Trigger::Dreq, DREQ_RCVD),
    (REP_SENT, Trigger::Timeout, REP_SENT),
    (REP_SENT, Trigger::Timeout, NONE),
    (REP_SENT, Trigger::Destroy, DREQ_SENT),
    (MRA_REP_RCVD, Trigger::Notify, ESTABLISHED),
    (MRA_REP_RCVD, Trigger::Disconnect, DREQ_SENT),
    (MRA_REP_RCVD, Trigger::Req, MRA_REP_RCVD),
    (MRA_REP_RCVD, Trigger::MraOfRep, MRA_REP_RCVD),
    (MRA_REP_RCVD, Trigger::Rtu, ESTABLISHED),
    (MRA_REP_RCVD, Trigger::Rej, TIME_WAIT),
    (MRA_REP_RCVD, Trigger::Dreq, DREQ_RCVD),
    (MRA_REP_RCVD, Trigger::Timeout, MRA_REP_RCVD),
    (MRA_REP_RCVD, Trigger::Timeout, NONE),
    (MRA_REP_RCVD, Trigger::Destroy, DREQ_SENT),
    // Both sides.
    (NONE, Trigger::EndForAnother, DREQ_SENT),
    (ESTABLISHED, Trigger::Notify, ESTABLISHED),
    (ESTABLISHED, Trigger::Disconnect, DREQ_SENT),
    (ESTABLISHED, Trigger::Rep, ESTABLISHED), // retransmits the RTU
    (ESTABLISHED, Trigger::Rej, TIME_WAIT),
    (ESTABLISHED, Trigger::Lap, ESTABLISHED), // refused
    (ESTABLISHED, Trigger::Dreq, DREQ_RCVD),
    (ESTABLISHED, Trigger::Disowned, TIME_WAIT),
    (ESTABLISHED, Trigger::Destroy, DREQ_SENT),
    (DREQ_SENT, Trigger::Disconnect, DREQ_SENT),
    (DREQ_SENT, Trigger::Rej, TIME_WAIT),
    (DREQ_SENT, Trigger::Dreq, TIME_WAIT), // both sent a DREQ
    (DREQ_SENT, Trigger::Drep, TIME_WAIT),
    (DREQ_SENT, Trigger::Timeout, DREQ_SENT),
    (DREQ_SENT, Trigger::Timeout, TIME_WAIT),
    (DREQ_SENT, Trigger::Destroy, DREQ_SENT),
    (DREQ_RCVD, Trigger::Disconnect, TIME_WAIT),
    (DREQ_RCVD, Trigger::Destroy, TIME_WAIT),
    (TIME_WAIT, Trigger::Disconnect, TIME_WAIT),
    (TIME_WAIT, Trigger::Req, TIME_WAIT),  // refused as stale
    (TIME_WAIT, Trigger::Dreq, TIME_WAIT), // retransmits the DREP
    (TIME_WAIT, Trigger::Timeout, NONE),
    (TIME_WAIT, Trigger::Destroy, TIME_WAIT),
    // Service ID resolution.
    (NONE, Trigger::SidrRequest, SIDR_REQ_SENT),
    (SIDR_REQ_SENT, Trigger::SidrRep, NONE),
    (SIDR_REQ_SENT, Trigger::SidrRep, SIDR_REQ_SENT), // no listener
    (SIDR_REQ_SENT, Trigger::Timeout, SIDR_REQ_SENT),
    (SIDR_REQ_SENT, Trigger::Timeout, NONE),
    (SIDR_REQ_SENT, Trigger::Destroy, NONE),
    (NONE, Trigger::SidrReq, SIDR_REQ_RCVD),
    (SIDR_REQ_RCVD, Trigger::SidrRespond, NONE),
    (SIDR_REQ_RCVD, Trigger::Destroy, NONE),
];

pub(super) fn is_edge(from: Option<CmState>, on: Trigger, to: Option<CmState>) -> bool {
    EDGES.contains(&(from, on, to))
}
