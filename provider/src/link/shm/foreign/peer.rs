//! What the owner of an address knows of a foreign peer.

use roce_transport::time::Instant;

use super::super::record::OwnRecords;

/// What the owner knows of it besides what it knows of every peer.
pub(in super::super) struct ForeignPeer {
    pub(super) user: u32,
    /// Where the records of its connections are.
    pub(super) records: OwnRecords,
    /// Time at which it has come.
    pub(super) since: Instant,
}

impl ForeignPeer {
    pub(super) fn new(user: u32, since: Instant) -> Self {
        Self { user, records: OwnRecords::default(), since }
    }
}
