use std::sync::Arc;

use roce_transport::{
    adapter::ObjectError,
    addr::{AddressVector, QKey, Qpn},
    wire::{GRH_LEN, Grh},
    work::{AhId, UdDestination, Wc},
};
use thiserror::Error;

use super::{
    context::Context,
    domain::{DomainInner, ProtectionDomain},
};

/// Address handle (`ibv_ah`): a checked path for datagrams of its protection domain.
///
/// The last handle destroys it (`ibv_destroy_ah`); posted requests still execute.
///
/// ```
/// # use roce_provider::transport::{addr::{AddressVector, QKey, Qpn}, work::{Data, SendWr}};
/// # let context = roce_provider::Device::named("roce_lo")?.open(Default::default())?;
/// # let pd = context.alloc_pd()?;
/// # let (peer_gid, peer_qpn) = (context.gids()[0], Qpn::new(0x1234));
/// let ah = pd.create_ah(AddressVector::new(peer_gid, 0))?;
/// let datagram = SendWr::send_to(1, ah.to(peer_qpn, QKey(0x1234)), Data::inline(b"hello"));
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
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
        let _ = self.domain.context.inner.engine.alter(|adapter| adapter.destroy_ah(self.id));
    }
}

/// Error of an address handle from a completion.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Error)]
#[non_exhaustive]
pub enum AhFromWcError {
    /// No received datagram.
    #[error("the completion is not of a received datagram, and has no source address")]
    NotDatagram,
    /// No GRH.
    #[error("the first 40 bytes of the buffer are no GRH; pass the buffer of the datagram")]
    NoHeader,
    /// Destination no longer on the device.
    #[error("the GRH's destination is no address of this device; pass the buffer of the datagram")]
    NoAddress,
    /// Error of creation.
    #[error(transparent)]
    Object(#[from] ObjectError),
}

impl Context {
    /// Path to a datagram's sender (`ibv_init_ah_from_wc`); `area` is the first 40 bytes of its
    /// buffer.
    ///
    /// # Errors
    /// [`AhFromWcError::NoHeader`], [`AhFromWcError::NoAddress`] (both `EINVAL`).
    pub fn init_ah_from_wc(&self, area: &[u8; GRH_LEN]) -> Result<AddressVector, AhFromWcError> {
        let find = |grh: Grh| {
            let path = self.inner.engine.lock().adapter().gids().reply_path(&grh);
            path.ok_or(AhFromWcError::NoAddress)
        };
        let path = Grh::parse(area).ok_or(AhFromWcError::NoHeader).and_then(find);
        self.explained("ibv_init_ah_from_wc", path)
    }
}

impl ProtectionDomain {
    /// Creates an address handle (`ibv_create_ah`).
    ///
    /// # Errors
    /// [`ObjectError::GidIndex`] (`EINVAL`) if the source is not a GID of the device or differs in
    /// address family; [`ObjectError::TooMany`] (`ENOMEM`).
    pub fn create_ah(&self, av: AddressVector) -> Result<AddressHandle, ObjectError> {
        let domain = self.inner.clone();
        let made = domain.context.inner.engine.alter(|adapter| adapter.create_ah(domain.id, &av));
        let id = domain.context.explained("ibv_create_ah", made)?;
        Ok(AddressHandle { inner: Arc::new(AhInner { domain, id, av }) })
    }

    /// Creates a handle to a datagram's sender (`ibv_create_ah_from_wc`); `area` as for
    /// [`Context::init_ah_from_wc`].
    ///
    /// # Errors
    /// See [`AhFromWcError`] (`EINVAL`, `ENOMEM`).
    pub fn create_ah_from_wc(
        &self,
        wc: &Wc,
        area: &[u8; GRH_LEN],
    ) -> Result<AddressHandle, AhFromWcError> {
        if !wc.result.is_ok_and(|ok| ok.grh.is_some()) {
            let refused = Err(AhFromWcError::NotDatagram);
            return self.context().explained("ibv_create_ah_from_wc", refused);
        }
        Ok(self.create_ah(self.context().init_ah_from_wc(area)?)?)
    }
}

impl AddressHandle {
    /// Address vector.
    #[must_use]
    pub fn address_vector(&self) -> AddressVector {
        self.inner.av
    }

    /// Destination for [`SendWr::send_to`](roce_transport::work::SendWr::send_to); other protection
    /// domains refuse it.
    #[must_use]
    pub fn to(&self, qpn: Qpn, qkey: QKey) -> UdDestination {
        UdDestination { av: self.inner.av, qpn, qkey, pd: Some(self.inner.domain.id) }
    }
}

opaque_debug!(AddressHandle, |this| id: this.inner.id, address_vector: this.inner.av);
