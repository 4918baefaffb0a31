//! Reasons for which a message of connection management is sent.

use core::fmt;

/// Reason for which a message of connection management is sent.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum MadReason {
    /// A command of the program, or what follows from the peer's message.
    First,
    /// No answer came in time.
    Unanswered,
    /// Nobody listened at the peer when it was sent before.
    NoListener,
    /// The peer has sent its message again, so that the answer may have been lost.
    Repeated,
    /// The peer's message is about no connection of this side, or cannot be taken.
    Answer,
    /// The peer's answer is not waited for any more.
    GivenUp,
    /// Asks if the peer still has a connection that another seems to have replaced.
    Stale,
}

impl fmt::Display for MadReason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::First => "for the first time",
            Self::Unanswered => "again: no answer came in time",
            Self::NoListener => "again: nobody listened",
            Self::Repeated => "again: the peer has sent its message again",
            Self::Answer => "an answer without a connection",
            Self::GivenUp => "its answer is not waited for any more",
            Self::Stale => "does the peer still have this connection?",
        })
    }
}
