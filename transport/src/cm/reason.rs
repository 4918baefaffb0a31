use crate::named::named;

named! {
    /// Reason for sending a CM message.
    MadReason {
        /// First transmission.
        First "first transmission";
        /// No response in time.
        Unanswered "retransmitted: no response in time";
        /// No listener at the last transmission.
        NoListener "retransmitted: nobody listened";
        /// The peer retransmitted: the response may be lost.
        Repeated "retransmitted: the peer retransmitted, too";
        /// Response to an unacceptable message.
        Response "a response without a connection";
        /// Response no longer awaited.
        GivenUp "its response is no longer awaited";
        /// Probe of a stale connection.
        Stale "asks whether the peer still has this connection";
    }
}
