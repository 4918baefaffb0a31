//! States of an id.

/// State of an id.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum IdState {
    /// New.
    Idle,
    /// After [`bind_addr`](super::CmId::bind_addr).
    Bound,
    /// After [`resolve_addr`](super::CmId::resolve_addr).
    AddrResolved,
    /// After [`resolve_route`](super::CmId::resolve_route).
    RouteResolved,
    /// Listening for requests.
    Listening,
    /// The request is sent.
    Connecting,
    /// Request received, response pending.
    RequestReceived,
    /// The peer accepted; the program moves its queue pair.
    ResponseReceived,
    /// Accepted; the peer's confirmation is pending.
    Accepted,
    /// Connected; for datagrams, the peer's queue pair is known.
    Established,
    /// Disconnected.
    Disconnected,
    /// Final state.
    Closed,
}
