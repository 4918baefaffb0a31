//! States of an id.

/// State of an id.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum IdState {
    /// New.
    Idle,
    /// Bound to an own address and port.
    Bound,
    /// The peer's address is resolved to a device.
    AddrResolved,
    /// The path MTU is known.
    RouteResolved,
    /// Listening for requests.
    Listening,
    /// The request is sent.
    Connecting,
    /// A request that waits for an answer.
    RequestReceived,
    /// The peer has accepted; the program is to move its queue pair.
    ResponseReceived,
    /// Accepted; the peer has not confirmed yet.
    Accepted,
    /// Connected; or, for datagrams, the peer's queue pair is known, or told.
    Established,
    /// The connection is over.
    Disconnected,
    /// Final: nothing more happens to the id.
    Closed,
}
