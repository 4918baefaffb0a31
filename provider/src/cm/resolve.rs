//! Addresses: binding to an own one, finding the way to a peer's.

use std::{
    net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr},
    time::Duration,
};

use roce_transport::addr::AddressVector;

use super::{
    CmError, CmId, EventKind, Status,
    devices::{self, DeviceAddr, Unroutable},
    error::open_errno,
    event::Param,
    id::{IdState, Parts},
    ports::PortLease,
};

impl CmId {
    /// Binds it to an own address and port (`rdma_bind_addr`), and to the device that has the
    /// address: one that the program has open, or else one that this opens. Port 0 takes a free one
    /// of 32768 to 60999. The address 0.0.0.0, or ::, stands for all.
    ///
    /// # Errors
    /// [`CmError::State`]; [`CmError::PortInUse`]; [`CmError::NoPort`]; [`CmError::NotOfDevice`];
    /// [`CmError::Open`], also for an address that is not this host's; [`CmError::Address`] for a
    /// multicast address.
    pub fn bind_addr(&self, address: SocketAddr) -> Result<(), CmError> {
        let mut parts = self.parts();
        self.check(&[IdState::Idle])?;
        self.bind_to(&mut parts, address)
    }

    fn bind_to(&self, parts: &mut Parts, address: SocketAddr) -> Result<(), CmError> {
        if address.ip().is_multicast() {
            return Err(CmError::Address(address.ip()));
        }
        let place = match &parts.context {
            _ if address.ip().is_unspecified() => None,
            Some(context) => Some(devices::of(context, Some(address.ip()), address.ip())?),
            None => Some(devices::at(address.ip())?),
        };
        self.bind(parts, address, place)
    }

    fn bind(
        &self,
        parts: &mut Parts,
        address: SocketAddr,
        place: Option<DeviceAddr>,
    ) -> Result<(), CmError> {
        let space = self.port_space();
        let take =
            || PortLease::take(space, address.ip(), address.port(), parts.options.reuse_addr);
        let mut lease = take()?;
        if let Some(place) = place.as_ref().filter(|_| address.port() == 0) {
            let is_claimed = |port| {
                place.context.inner.engine.command_shard(|shard, _| {
                    shard.adapter_and_link().1.is_claimed(space.service(port), address.ip())
                })
            };
            while is_claimed(lease.port()) {
                lease = take()?;
            }
        }
        let mut local = address;
        local.set_port(lease.port());
        parts.local = Some(local);
        parts.lease = Some(lease);
        if let Some(place) = place {
            parts.attach(self.shared(), place);
        }
        self.shared().state().state = IdState::Bound;
        Ok(())
    }

    /// Binds to all addresses of `peer`'s family, if it is not bound to any.
    pub(super) fn bind_any(&self, parts: &mut Parts, family_of: IpAddr) -> Result<(), CmError> {
        if parts.lease.is_some() {
            return Ok(());
        }
        let any: IpAddr = if family_of.is_ipv4() {
            Ipv4Addr::UNSPECIFIED.into()
        } else {
            Ipv6Addr::UNSPECIFIED.into()
        };
        self.bind(parts, SocketAddr::new(any, 0), None)
    }

    /// Finds the way to `dst`, and the device that leads there (`rdma_resolve_addr`):
    /// [`EventKind::AddrResolved`] or [`EventKind::AddrError`] tells. `src`, if given, is bound to
    /// first. Nothing is sent, so that the answer is there when the call returns, whatever
    /// `timeout` says.
    ///
    /// The device is the one of `src`, or else of the address that the system would send from. For
    /// a loopback address that is the loopback device, with whichever address it has. Where another
    /// program of this host has that address, and `dst` is on this host, too, it is the loopback
    /// device as well, and the id's own address is that device's.
    ///
    /// # Errors
    /// [`CmError::State`], [`CmError::Family`]; [`CmError::Address`] when `dst` stands for all
    /// addresses; those of [`bind_addr`](Self::bind_addr); without a channel, [`CmError::Failed`].
    pub fn resolve_addr(
        &self,
        src: Option<SocketAddr>,
        dst: SocketAddr,
        timeout: Duration,
    ) -> Result<(), CmError> {
        let _ = timeout;
        let mut parts = self.parts();
        let state = self.check(&[IdState::Idle, IdState::Bound])?;
        if dst.ip().is_unspecified() {
            return Err(CmError::Address(dst.ip()));
        }
        if let Some(src) = src.filter(|_| state == IdState::Idle) {
            if src.is_ipv4() != dst.is_ipv4() {
                return Err(CmError::Family(dst.ip()));
            }
            if parts.context.is_some() || src.ip().is_unspecified() || src.ip().is_multicast() {
                self.bind_to(&mut parts, src)?;
            } else {
                let place = devices::from(src.ip(), dst.ip())?;
                self.bind(&mut parts, SocketAddr::new(place.ip, src.port()), Some(place))?;
            }
        }
        self.bind_any(&mut parts, dst.ip())?;
        if parts.local.is_some_and(|local| local.is_ipv4() != dst.is_ipv4()) {
            return Err(CmError::Family(dst.ip()));
        }
        let (kind, status) = match self.find_way(&mut parts, dst)? {
            Ok(()) => (EventKind::AddrResolved, Status::Success),
            Err(errno) => (EventKind::AddrError, Status::Errno(errno)),
        };
        drop(parts);
        self.shared().emit(kind, status, Param::None);
        self.finish(&[EventKind::AddrResolved])
    }

    /// Gives the id its place, unless it has one; the inner error is the errno of a failure that an
    /// event tells of.
    fn find_way(&self, parts: &mut Parts, dst: SocketAddr) -> Result<Result<(), i32>, CmError> {
        if parts.place.is_none() {
            let place = match &parts.context {
                Some(context) => devices::of(context, None, dst.ip())?,
                None => match devices::towards(dst) {
                    Ok(place) => place,
                    Err(Unroutable::NoRoute(error)) => {
                        return Ok(Err(error.raw_os_error().unwrap_or(libc::EHOSTUNREACH)));
                    }
                    Err(Unroutable::NoDevice(error)) => return Ok(Err(open_errno(&error))),
                },
            };
            if let Some(lease) = &parts.lease {
                lease.set_address(place.ip);
            }
            if let Some(local) = &mut parts.local {
                local.set_ip(place.ip);
            }
            parts.attach(self.shared(), place);
        }
        parts.peer = Some(dst);
        self.shared().state().state = IdState::AddrResolved;
        Ok(Ok(()))
    }

    /// Finds out how much a packet may carry on the way (`rdma_resolve_route`):
    /// [`EventKind::RouteResolved`] tells, or [`EventKind::RouteError`] when the device has lost
    /// the id's own address meanwhile. Nothing is sent.
    ///
    /// # Errors
    /// [`CmError::State`]; without a channel, [`CmError::Failed`].
    pub fn resolve_route(&self, timeout: Duration) -> Result<(), CmError> {
        let _ = timeout;
        let mut parts = self.parts();
        self.check(&[IdState::AddrResolved])?;
        let place = parts.place()?.clone();
        let peer = parts.peer.ok_or(CmError::NoDevice)?.ip();
        let (kind, status) = match place.sgid_index() {
            Some(_) => {
                parts.path_mtu = devices::path_mtu(&place, peer);
                self.shared().state().state = IdState::RouteResolved;
                (EventKind::RouteResolved, Status::Success)
            }
            None => (EventKind::RouteError, Status::Errno(libc::EADDRNOTAVAIL)),
        };
        drop(parts);
        self.shared().emit(kind, status, Param::None);
        self.finish(&[EventKind::RouteResolved])
    }
}

impl Parts {
    /// The way to the peer, as the kernel fills it in.
    pub(super) fn address_vector(&self) -> Result<AddressVector, CmError> {
        let place = self.place()?;
        let sgid_index = place.sgid_index().ok_or(CmError::NotOfDevice(place.ip))?;
        let (Some(local), Some(peer)) = (self.local, self.peer) else {
            return Err(CmError::NoDevice);
        };
        let flow_label = (u32::from(local.port()) * 31 + u32::from(peer.port())) & 0xF_FFFF;
        let traffic_class = self.options.tos;
        Ok(AddressVector {
            flow_label,
            traffic_class,
            ..AddressVector::new(peer.ip().into(), sgid_index)
        })
    }
}
