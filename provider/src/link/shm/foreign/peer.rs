//! What the owner of an address knows of a foreign peer.

use std::collections::BTreeSet;

use roce_transport::cm::ServiceId;

use super::super::record::OwnRecords;

/// What the owner knows of it besides what it knows of every peer.
pub(in super::super) struct ForeignPeer {
    pub(super) user: u32,
    /// Where the records of its connections are.
    pub(super) records: OwnRecords,
    /// What it has been told that others listen for.
    pub(super) told: BTreeSet<ServiceId>,
}

impl ForeignPeer {
    pub(super) fn new(user: u32) -> Self {
        Self { user, records: OwnRecords::default(), told: BTreeSet::new() }
    }
}
