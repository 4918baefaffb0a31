use core::net::IpAddr;

use rand_chacha::ChaCha12Rng;

use crate::{
    addr::{Mtu, PKey},
    event::DropReason,
    gids::Path,
    pkeys::PKeyTable,
    time::Instant,
};

pub(crate) struct Arrival<'a> {
    pub(crate) now: Instant,
    /// Path of the response.
    pub(crate) path: CmPath,
    pub(crate) sgid_index: u16,
    pub(crate) port_mtu: Mtu,
    pub(crate) pkeys: &'a PKeyTable,
    pub(crate) transaction: u64,
    pub(crate) rng: &'a mut ChaCha12Rng,
}

impl Arrival<'_> {
    pub(super) fn check_peer(&self, path: &CmPath) -> Result<(), DropReason> {
        if (path.peer(), path.own()) == (self.path.peer(), self.path.own()) {
            Ok(())
        } else {
            Err(DropReason::CmWrongPeer)
        }
    }
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct CmPath {
    pub(crate) path: Path,
    pub(crate) pkey: PKey,
}

impl CmPath {
    pub(crate) const fn peer(&self) -> IpAddr {
        self.path.net.dst
    }

    pub(crate) const fn own(&self) -> IpAddr {
        self.path.net.src
    }
}
