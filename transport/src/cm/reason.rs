use core::fmt;

/// Reason for sending a CM message.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum MadReason {
    /// First transmission.
    First,
    /// No response in time.
    Unanswered,
    /// No listener at the last transmission.
    NoListener,
    /// The peer retransmitted: the response may be lost.
    Repeated,
    /// Response to an unacceptable message.
    Response,
    /// Response no longer awaited.
    GivenUp,
    /// Probe of a stale connection.
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
