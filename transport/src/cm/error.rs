use super::{message::PrivateData, state::CmState};
use crate::named::{errors, named};

errors! {
    /// Command error; nothing changed.
    #[non_exhaustive]
    ConnError {
        Unknown "no such connection";
        State(CmState) "not possible in state {0:?}";
        InUse "the service already has a listener on this address";
        PrivateData(usize) "more than {0} bytes of private data";
        TooMany(usize) "too many connections; at most {0}";
        OwnId "the communication ID is one of this adapter's";
        NoRoute "no route from the GID index to the peer's GID";
        Range(ConnAttribute) "{0} is out of range";
    }
}

named! {
    /// Limited value of a REQ or REP.
    #[non_exhaustive]
    ConnAttribute {
        /// READs and atomics served at once.
        ResponderResources "responder_resources";
        /// READs and atomics outstanding.
        InitiatorDepth "initiator_depth";
        /// Retry counter.
        RetryCount "retry_count";
        /// RNR retry counter.
        RnrRetry "rnr_retry";
        /// RNR NAK timer, code.
        MinRnrTimer "min_rnr_timer";
        /// Acknowledge timeout, code.
        AckTimeout "ack_timeout";
    }
}

pub(super) fn private_data<const N: usize>(bytes: &[u8]) -> Result<PrivateData<N>, ConnError> {
    PrivateData::new(bytes).ok_or(ConnError::PrivateData(N))
}

pub(super) fn check_limits(values: &[(ConnAttribute, u8, u8)]) -> Result<(), ConnError> {
    match values.iter().find(|(_, value, limit)| value > limit) {
        Some(&(attribute, ..)) => Err(ConnError::Range(attribute)),
        None => Ok(()),
    }
}
