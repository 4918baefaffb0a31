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
            Self::First => "for the first time",
            Self::Unanswered => "again: no answer came in time",
            Self::NoListener => "again: nobody listened",
            Self::Repeated => "again: the peer has sent its message again",
            Self::Response => "an answer without a connection",
            Self::GivenUp => "its answer is not waited for any more",
            Self::Stale => "does the peer still have this connection?",
        })
    }
}
