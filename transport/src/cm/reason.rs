use core::fmt;

/// Reason for sending a CM message.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum MadReason {
    /// A command, or the reaction to a message.
    First,
    /// No response in time.
    Unanswered,
    /// No listener at the last transmission.
    NoListener,
    /// The peer retransmitted: the response may be lost.
    Repeated,
    /// Response to an unacceptable message.
    Response,
    /// This side stopped waiting for the response.
    GivenUp,
    /// Probe of a connection that seems stale.
    Stale,
}

impl fmt::Display for MadReason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::First => "first transmission",
            Self::Unanswered => "retransmitted: no response in time",
            Self::NoListener => "retransmitted: nobody listened",
            Self::Repeated => "retransmitted: the peer retransmitted, too",
            Self::Response => "a response without a connection",
            Self::GivenUp => "its response is no longer awaited",
            Self::Stale => "asks whether the peer still has this connection",
        })
    }
}
