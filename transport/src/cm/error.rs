//! Errors of the commands of connection management.

use core::fmt;

use thiserror::Error;

use super::{message::PrivateData, state::CmState};

/// Reason for which a command of connection management is refused. Nothing has changed.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Error)]
#[non_exhaustive]
pub enum ConnError {
    /// No such connection, or it is gone.
    #[error("no such connection")]
    Unknown,
    /// Not in this state.
    #[error("not possible in state {0:?}")]
    State(CmState),
    /// The service has a listener on this address.
    #[error("the service has a listener on this address already")]
    InUse,
    /// More bytes than the message has room for.
    #[error("more than {0} bytes of private data")]
    PrivateData(usize),
    /// As many connections exist as may.
    #[error("no more than {0} connections")]
    TooMany(usize),
    /// The communication ID of another adapter's connection is one of this adapter's own.
    #[error("the communication ID is this adapter's own")]
    OwnId,
    /// The address vector names a GID index that does not exist, or one of another address family.
    #[error("no route from the GID index to the peer's GID")]
    NoRoute,
    /// A number too large.
    #[error("{0} is out of range")]
    Range(ConnAttribute),
}

/// A value of a request or of a reply that has a limit.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
#[non_exhaustive]
pub enum ConnAttribute {
    /// READs and atomics answered at once.
    ResponderResources,
    /// READs and atomics outstanding at once.
    InitiatorDepth,
    /// Retry counter.
    RetryCount,
    /// RNR retry counter.
    RnrRetry,
    /// RNR NAK timer's code.
    MinRnrTimer,
    /// Acknowledge timeout's code.
    AckTimeout,
}

impl fmt::Display for ConnAttribute {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::ResponderResources => "responder_resources",
            Self::InitiatorDepth => "initiator_depth",
            Self::RetryCount => "retry_count",
            Self::RnrRetry => "rnr_retry",
            Self::MinRnrTimer => "min_rnr_timer",
            Self::AckTimeout => "ack_timeout",
        })
    }
}

/// Private data for a message that has room for `N` bytes.
pub(super) fn private_data<const N: usize>(bytes: &[u8]) -> Result<PrivateData<N>, ConnError> {
    PrivateData::new(bytes).ok_or(ConnError::PrivateData(N))
}

/// Refuses values that are larger than their limits.
pub(super) fn check_limits(values: &[(ConnAttribute, u8, u8)]) -> Result<(), ConnError> {
    match values.iter().find(|(_, value, limit)| value > limit) {
        Some(&(attribute, ..)) => Err(ConnError::Range(attribute)),
        None => Ok(()),
    }
}
