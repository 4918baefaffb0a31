use thiserror::Error;

use super::{message::PrivateData, state::CmState};
use crate::named::named;

/// Command error; nothing changed.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Error)]
#[non_exhaustive]
pub enum ConnError {
    /// No such connection.
    #[error("no such connection")]
    Unknown,
    /// Not allowed in this state.
    #[error("not possible in state {0:?}")]
    State(CmState),
    /// The address has a listener.
    #[error("the service already has a listener on this address")]
    InUse,
    /// Too much private data.
    #[error("more than {0} bytes of private data")]
    PrivateData(usize),
    /// Limit reached.
    #[error("too many connections; at most {0}")]
    TooMany(usize),
    /// Communication ID of this adapter.
    #[error("the communication ID is one of this adapter's")]
    OwnId,
    /// Missing GID index, or another address family.
    #[error("no route from the GID index to the peer's GID")]
    NoRoute,
    /// Value out of range.
    #[error("{0} is out of range")]
    Range(ConnAttribute),
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
