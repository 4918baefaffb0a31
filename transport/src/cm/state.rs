//! The states of a connection, and of a service ID resolution, and the edges between them (12.9.5
//! to 12.9.7, 12.11).

/// State of a connection (12.9.5 to 12.9.7), or of a service ID resolution (12.11).
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum CmState {
    /// Active: the request is sent.
    ReqSent,
    /// Active: the peer has the request and needs more time.
    MraReqRcvd,
    /// Active: the reply is here; the program is to use it or not.
    RepRcvd,
    /// Passive: a request is here; the program is to accept it or not.
    ReqRcvd,
    /// Passive: the reply is sent.
    RepSent,
    /// Passive: the peer has the reply and needs more time.
    MraRepRcvd,
    /// Both sides may use the connection.
    Established,
    /// The end is announced.
    DreqSent,
    /// The peer has announced the end.
    DreqRcvd,
    /// Over; the communication ID and the queue pair must not be used again while packets of the
    /// connection may be under way.
    TimeWait,
    /// A service ID resolution request is sent.
    SidrReqSent,
    /// A service ID resolution request is here; the program is to answer it.
    SidrReqRcvd,
}

impl CmState {
    /// Every state.
    pub const ALL: [Self; 12] = [
        Self::ReqSent,
        Self::MraReqRcvd,
        Self::RepRcvd,
        Self::ReqRcvd,
        Self::RepSent,
        Self::MraRepRcvd,
        Self::Established,
        Self::DreqSent,
        Self::DreqRcvd,
        Self::TimeWait,
        Self::SidrReqSent,
        Self::SidrReqRcvd,
    ];

    /// True if a command or a message means something in this state.
    pub(super) fn expects(self, trigger: Trigger) -> bool {
        EDGES.iter().any(|&(from, on, _)| from == Some(self) && on == trigger)
    }
}

/// Cause of a step from one state to another: a command of the program, a message of the peer, or
/// time.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Trigger {
    /// Command: request a connection (`rdma_connect`).
    Connect,
    /// Command: accept a request (`rdma_accept`).
    Accept,
    /// Command: this side's queue pair is ready (`rdma_establish`).
    Establish,
    /// Command: a packet of the peer's queue pair came (`rdma_notify`). The adapter notices as
    /// well, when it would repeat the reply.
    Notify,
    /// Command: refuse a request or a reply (`rdma_reject`).
    Reject,
    /// Command: end the connection, or confirm its end (`rdma_disconnect`).
    Disconnect,
    /// Command: resolve a service ID (`rdma_connect` with a datagram id).
    SidrRequest,
    /// Command: answer such a request (`rdma_accept`, `rdma_reject`).
    SidrRespond,
    /// Command: end a connection that an adapter had which is gone.
    EndForAnother,
    /// Command: no more interest (`rdma_destroy_id`). Rejects or disconnects where that is due.
    Destroy,
    /// Message: request for communication.
    Req,
    /// Message: receipt of the REQ acknowledged.
    MraOfReq,
    /// Message: receipt of the REP acknowledged.
    MraOfRep,
    /// Message: reply.
    Rep,
    /// Message: ready to use.
    Rtu,
    /// Message: reject.
    Rej,
    /// Message: request for release.
    Dreq,
    /// Message: reply to a request for release.
    Drep,
    /// Message: the same, to the question whether the peer still has the connection: it does not.
    Disowned,
    /// Message: load alternate path.
    Lap,
    /// Message: service ID resolution request.
    SidrReq,
    /// Message: service ID resolution response.
    SidrRep,
    /// The deadline has come.
    Timeout,
}

/// A step from a state to a state; `None` stands for a communication ID that is not in use.
pub type Edge = (Option<CmState>, Trigger, Option<CmState>);

const NONE: Option<CmState> = None;
const REQ_SENT: Option<CmState> = Some(CmState::ReqSent);
const MRA_REQ_RCVD: Option<CmState> = Some(CmState::MraReqRcvd);
const REP_RCVD: Option<CmState> = Some(CmState::RepRcvd);
const REQ_RCVD: Option<CmState> = Some(CmState::ReqRcvd);
const REP_SENT: Option<CmState> = Some(CmState::RepSent);
const MRA_REP_RCVD: Option<CmState> = Some(CmState::MraRepRcvd);
const ESTABLISHED: Option<CmState> = Some(CmState::Established);
const DREQ_SENT: Option<CmState> = Some(CmState::DreqSent);
const DREQ_RCVD: Option<CmState> = Some(CmState::DreqRcvd);
const TIME_WAIT: Option<CmState> = Some(CmState::TimeWait);
const SIDR_REQ_SENT: Option<CmState> = Some(CmState::SidrReqSent);
const SIDR_REQ_RCVD: Option<CmState> = Some(CmState::SidrReqRcvd);

/// Every edge. A command or message without an edge from a state is refused in that state. An edge
/// that leads back to where it comes from answers, sends something again, or does nothing.
pub const EDGES: &[Edge] = &[
    // Active side.
    (NONE, Trigger::Connect, REQ_SENT),
    (REQ_SENT, Trigger::MraOfReq, MRA_REQ_RCVD),
    (REQ_SENT, Trigger::Rep, REP_RCVD),
    (REQ_SENT, Trigger::Rep, NONE), // the peer's queue pair is connected already
    (REQ_SENT, Trigger::Rej, NONE),
    (REQ_SENT, Trigger::Rej, REQ_SENT), // no program listens yet; see `listen_grace`
    (REQ_SENT, Trigger::Timeout, REQ_SENT), // sends again
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
    (REP_RCVD, Trigger::Rep, REP_RCVD), // acknowledges its receipt
    (REP_RCVD, Trigger::Rej, TIME_WAIT),
    (REP_RCVD, Trigger::Destroy, TIME_WAIT),
    // Passive side.
    (NONE, Trigger::Req, REQ_RCVD),
    (REQ_RCVD, Trigger::Accept, REP_SENT),
    (REQ_RCVD, Trigger::Reject, NONE),
    (REQ_RCVD, Trigger::Req, REQ_RCVD), // acknowledges its receipt
    (REQ_RCVD, Trigger::Rej, NONE),
    (REQ_RCVD, Trigger::Destroy, NONE),
    (REP_SENT, Trigger::Notify, ESTABLISHED),
    (REP_SENT, Trigger::Disconnect, DREQ_SENT),
    (REP_SENT, Trigger::Req, REP_SENT), // the reply again
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
    (ESTABLISHED, Trigger::Rep, ESTABLISHED), // the RTU again
    (ESTABLISHED, Trigger::Rej, TIME_WAIT),
    (ESTABLISHED, Trigger::Lap, ESTABLISHED), // refused
    (ESTABLISHED, Trigger::Dreq, DREQ_RCVD),
    (ESTABLISHED, Trigger::Disowned, TIME_WAIT),
    (ESTABLISHED, Trigger::Destroy, DREQ_SENT),
    (DREQ_SENT, Trigger::Disconnect, DREQ_SENT),
    (DREQ_SENT, Trigger::Rej, TIME_WAIT),
    (DREQ_SENT, Trigger::Dreq, TIME_WAIT), // both announce the end at once
    (DREQ_SENT, Trigger::Drep, TIME_WAIT),
    (DREQ_SENT, Trigger::Timeout, DREQ_SENT),
    (DREQ_SENT, Trigger::Timeout, TIME_WAIT),
    (DREQ_SENT, Trigger::Destroy, DREQ_SENT),
    (DREQ_RCVD, Trigger::Disconnect, TIME_WAIT),
    (DREQ_RCVD, Trigger::Destroy, TIME_WAIT),
    (TIME_WAIT, Trigger::Disconnect, TIME_WAIT),
    (TIME_WAIT, Trigger::Req, TIME_WAIT), // refused: the connection is stale
    (TIME_WAIT, Trigger::Dreq, TIME_WAIT), // the DREP again
    (TIME_WAIT, Trigger::Timeout, NONE),
    (TIME_WAIT, Trigger::Destroy, TIME_WAIT),
    // Service ID resolution.
    (NONE, Trigger::SidrRequest, SIDR_REQ_SENT),
    (SIDR_REQ_SENT, Trigger::SidrRep, NONE),
    (SIDR_REQ_SENT, Trigger::SidrRep, SIDR_REQ_SENT), // no program listens yet
    (SIDR_REQ_SENT, Trigger::Timeout, SIDR_REQ_SENT),
    (SIDR_REQ_SENT, Trigger::Timeout, NONE),
    (SIDR_REQ_SENT, Trigger::Destroy, NONE),
    (NONE, Trigger::SidrReq, SIDR_REQ_RCVD),
    (SIDR_REQ_RCVD, Trigger::SidrRespond, NONE),
    (SIDR_REQ_RCVD, Trigger::Destroy, NONE),
];

/// True if the table has this edge.
pub(super) fn is_edge(from: Option<CmState>, on: Trigger, to: Option<CmState>) -> bool {
    EDGES.contains(&(from, on, to))
}
