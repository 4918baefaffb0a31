//! States of an id.

/// Where an id stands.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum IdState {
    /// New.
    Idle,
    /// It has an own address and port.
    Bound,
    /// It knows the peer's address and how to get there.
    AddrResolved,
    /// It knows the path MTU.
    RouteResolved,
    /// It waits for requests.
    Listening,
    /// Its request is on its way.
    Connecting,
    /// It is a request that waits for an answer.
    RequestReceived,
    /// The peer has accepted; the program is to move its queue pair.
    ResponseReceived,
    /// It has accepted; the peer has not confirmed yet.
    Accepted,
    /// Connected; or, for datagrams, the peer's queue pair is known, or told.
    Established,
    /// The connection is over.
    Disconnected,
    /// Nothing more can come of it.
    Closed,
}
