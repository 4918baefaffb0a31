use core::net::IpAddr;

use crate::{addr::PKey, gids::Path};

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct CmPath {
    pub(crate) path: Path,
    pub(crate) pkey: PKey,
}

impl CmPath {
    pub(crate) const fn peer(&self) -> IpAddr {
        self.path.dst
    }

    pub(crate) const fn own(&self) -> IpAddr {
        self.path.src
    }
}
