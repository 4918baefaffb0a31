//! The circumstances of a message's arrival.

use core::net::IpAddr;

use rand_chacha::ChaCha12Rng;

use super::path::CmPath;
use crate::{addr::Mtu, event::DropReason, pkeys::PKeyTable, time::Instant};

/// The circumstances of a message's arrival.
pub(crate) struct Arrival<'a> {
    pub(crate) now: Instant,
    /// Path of the answer.
    pub(crate) path: CmPath,
    /// Index of the local address in the GID table.
    pub(crate) sgid_index: u16,
    /// Largest payload that the link carries in a packet.
    pub(crate) port_mtu: Mtu,
    /// The adapter's partitions.
    pub(crate) pkeys: &'a PKeyTable,
    /// Transaction ID of the message.
    pub(crate) transaction: u64,
    pub(crate) rng: &'a mut ChaCha12Rng,
}

impl Arrival<'_> {
    pub(super) const fn peer(&self) -> IpAddr {
        self.path.peer()
    }

    pub(super) const fn own(&self) -> IpAddr {
        self.path.own()
    }

    /// Only messages of the peer may concern a connection.
    pub(super) fn check_peer(&self, path: &CmPath) -> Result<(), DropReason> {
        if (path.peer(), path.own()) == (self.peer(), self.own()) {
            Ok(())
        } else {
            Err(DropReason::CmWrongPeer)
        }
    }
}
