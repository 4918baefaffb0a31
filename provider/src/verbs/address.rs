//! Address handles.

use std::{fmt, sync::Arc};

use roce_transport::{
    adapter::ObjectError,
    addr::{AddressVector, QKey, Qpn},
    wire::{GRH_LEN, Grh},
    work::{AhId, UdDestination, Wc},
};
use thiserror::Error;

use super::{Context, ProtectionDomain, domain::DomainInner};

/// The way to a peer for datagrams (`ibv_ah`): checked when it is made, used with queue pairs of
/// its protection domain. Destroyed with its last handle (`ibv_destroy_ah`); requests that were
/// posted with it are carried out all the same.
#[derive(Clone)]
pub struct AddressHandle {
    inner: Arc<AhInner>,
}

struct AhInner {
    domain: Arc<DomainInner>,
    id: AhId,
    av: AddressVector,
}

impl Drop for AhInner {
    fn drop(&mut self) {
        let _ = self.domain.context.inner.engine.lock().adapter().destroy_ah(self.id);
    }
}

/// Why no address handle can be made from a completion.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Error)]
pub enum AhFromWcError {
    /// Not of a datagram, or a failure.
    #[error("only the completion of a received datagram tells where it came from")]
    NotDatagram,
    /// The area is neither an IPv6 nor an IPv4 header.
    #[error("the 40 bytes in front of the datagram are no network header")]
    NoHeader,
    /// It was sent to an address that the device does not have (any more).
    #[error("the datagram was sent to an address that the device does not have")]
    NoAddress,
    /// The handle itself cannot be made.
    #[error(transparent)]
    Object(#[from] ObjectError),
}

impl AddressHandle {
    pub(super) fn new(pd: &ProtectionDomain, av: AddressVector) -> Result<Self, ObjectError> {
        let domain = pd.inner.clone();
        let id = domain.context.inner.engine.lock().adapter().create_ah(domain.id, &av)?;
        Ok(Self { inner: Arc::new(AhInner { domain, id, av }) })
    }

    /// What it was made from.
    #[must_use]
    pub fn address_vector(&self) -> AddressVector {
        self.inner.av
    }

    /// A queue pair of that peer, for [`SendWr::send_to`](roce_transport::work::SendWr::send_to).
    /// Posting it to a queue pair of another protection domain is refused.
    #[must_use]
    pub fn to(&self, qpn: Qpn, qkey: QKey) -> UdDestination {
        UdDestination { av: self.inner.av, qpn, qkey, pd: Some(self.inner.domain.id) }
    }
}

impl fmt::Debug for AddressHandle {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("AddressHandle")
            .field("id", &self.inner.id)
            .field("address_vector", &self.inner.av)
            .finish_non_exhaustive()
    }
}

/// The way back to the sender of a datagram.
pub(super) fn reply_path(
    context: &Context,
    wc: &Wc,
    area: &[u8; GRH_LEN],
) -> Result<AddressVector, AhFromWcError> {
    if !wc.result.is_ok_and(|ok| ok.grh.is_some()) {
        return Err(AhFromWcError::NotDatagram);
    }
    init_ah_from_wc(context, area)
}

pub(super) fn init_ah_from_wc(
    context: &Context,
    area: &[u8; GRH_LEN],
) -> Result<AddressVector, AhFromWcError> {
    let grh = Grh::parse(area).ok_or(AhFromWcError::NoHeader)?;
    context.inner.engine.lock().adapter().gids().reply_path(&grh).ok_or(AhFromWcError::NoAddress)
}
