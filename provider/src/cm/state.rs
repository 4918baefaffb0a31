//! States of an id.

/// State of an id.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum IdState {
    /// New.
    Idle,
    /// Bound to a local address and port.
    Bound,
    /// The peer's address is resolved to a device.
    AddrResolved,
    /// The path MTU is known.
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
