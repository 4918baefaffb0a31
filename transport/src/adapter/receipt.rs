use crate::{
    event::Disposition,
    wire::{Datagram, IcrcMatch, NetHeader, verify_icrc},
};

/// Result of [`handle_datagram`](super::Adapter::handle_datagram).
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
#[non_exhaustive]
pub struct Receipt {
    /// Outcome.
    pub disposition: Disposition,
    /// ICRC check.
    pub icrc: IcrcCheck,
}

/// Result of an ICRC check.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum IcrcCheck {
    /// Not checked: dropped before.
    Skipped,
    /// Not checked: the datagram never left this host.
    Trusted,
    /// Right.
    Right(IcrcMatch),
    /// Wrong.
    Wrong,
}

impl Receipt {
    /// Network header with the identification that matches the ICRC, [skipped](IcrcCheck::Skipped)
    /// or not.
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
