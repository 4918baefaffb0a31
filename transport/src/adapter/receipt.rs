//! The answer of an adapter to the link about a datagram.

use crate::{
    event::Disposition,
    wire::{Datagram, IcrcMatch, NetHeader, verify_icrc},
};

/// The result of [`handle_datagram`](super::Adapter::handle_datagram): for counters, captures and
/// people. The caller does not have to act on it.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
#[non_exhaustive]
pub struct Receipt {
    /// Result of handling the datagram.
    pub disposition: Disposition,
    /// The check of its ICRC.
    pub icrc: IcrcCheck,
}

/// The check of a packet's ICRC.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum IcrcCheck {
    /// Not checked: the packet was refused for another reason before.
    Skipped,
    /// Not checked: the datagram has never left the memory of this host.
    Trusted,
    /// Right.
    Right(IcrcMatch),
    /// Wrong.
    Wrong,
}

impl Receipt {
    /// The network header of the datagram that this receipt is for, with the identification that
    /// makes its ICRC right, if there is one. The ICRC is computed here only if it was
    /// [skipped](IcrcCheck::Skipped).
    #[must_use]
    pub fn identify(&self, datagram: &Datagram<'_>) -> NetHeader {
        let found = match self.icrc {
            IcrcCheck::Skipped => verify_icrc(datagram.net, datagram.bytes),
            IcrcCheck::Right(found) => Some(found),
            IcrcCheck::Trusted | IcrcCheck::Wrong => None,
        };
        found.map_or(*datagram.net, |found| found.identify(datagram.net))
    }
}
