//! Address binding and resolution.

use std::{
    net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr},
    time::Duration,
};

use roce_transport::addr::AddressVector;

use super::{
    CmError, CmId, EventKind, IdState, Status,
    devices::{self, DeviceAddr},
    id::IdInner,
    param::Param,
    ports::{self, Binding, PortLease},
    route::is_refused,
};

impl CmId {
    /// Binds to a local address and port (`rdma_bind_addr`); opens the device if necessary.
    ///
    /// Port 0 takes a free port of 32768 to 60999. 0.0.0.0 or :: binds to all addresses.
    ///
    /// # Errors
    /// [`CmError::State`]; [`CmError::PortInUse`]; [`CmError::PortOverlap`];
    /// [`CmError::PortPrivileged`]; [`CmError::NoPort`]; [`CmError::NotOfDevice`];
    /// [`CmError::Open`], also if the address is not local; [`CmError::Address`] for multicast.
    pub fn bind_addr(&self, address: SocketAddr) -> Result<(), CmError> {
        let mut inner = self.inner();
        self.check(&[IdState::Idle])?;
        self.bind_to(&mut inner, address, None)
    }

    fn bind_to(
        &self,
        inner: &mut IdInner,
        address: SocketAddr,
        peer: Option<SocketAddr>,
    ) -> Result<(), CmError> {
        if address.ip().is_multicast() {
            return Err(CmError::Address(address.ip()));
        }
        let device_addr = match &inner.context {
            _ if address.ip().is_unspecified() => None,
            Some(context) => Some(devices::of(context, Some(address.ip()), address.ip())?),
            None => Some(devices::at(address.ip())?),
        };
        self.bind(inner, address, device_addr, peer)
    }

    fn bind(
        &self,
        inner: &mut IdInner,
        address: SocketAddr,
        device_addr: Option<DeviceAddr>,
        peer: Option<SocketAddr>,
    ) -> Result<(), CmError> {
        let space = self.port_space();
        let ip = address.ip();
        let afonly = inner.options.afonly.unwrap_or_else(|| ip.is_ipv4() || ports::bindv6only());
        let binding = Binding { address: ip, afonly, reuse: inner.options.reuse_addr, peer };
        ports::check_right(address.port())?;
        let take = || PortLease::take(space, address.port(), binding);
        let mut lease = take()?;
        if let Some(device_addr) = &device_addr {
            let is_claimed = |port| {
                let service = space.service(port);
                let engine = &device_addr.context.inner.engine;
                let (is_claimed, query) = engine.command_shard(|shard, _| {
                    let (_, link) = shard.adapter_and_link();
                    let Some(sharing) = link.sharing() else { return (false, None) };
                    (sharing.is_claimed(service, ip), sharing.prepare_claim(service, ip, false))
                });
                is_claimed || query.is_some_and(is_refused)
            };
            while is_claimed(lease.port()) {
                if address.port() != 0 {
                    return Err(CmError::PortInUse(address.port()));
                }
                lease = take()?;
            }
        }
        inner.options.afonly = Some(afonly);
        let mut local = address;
        local.set_port(lease.port());
        inner.local = Some(local);
        inner.lease = Some(lease);
        if let Some(device_addr) = device_addr {
            inner.attach(self.shared(), device_addr);
        }
        self.shared().state().state = IdState::Bound;
        Ok(())
    }

    /// Binds an unbound id to all addresses of the peer's family, by default IPv4.
    pub(super) fn bind_any(
        &self,
        inner: &mut IdInner,
        peer: Option<SocketAddr>,
    ) -> Result<(), CmError> {
        if inner.lease.is_some() {
            return Ok(());
        }
        let any: IpAddr = match peer {
            Some(SocketAddr::V6(_)) => Ipv6Addr::UNSPECIFIED.into(),
            _ => Ipv4Addr::UNSPECIFIED.into(),
        };
        self.bind(inner, SocketAddr::new(any, 0), None, peer)
    }

    /// Resolves `dst` to a device (`rdma_resolve_addr`), after binding to `src` if given.
    ///
    /// [`EventKind::AddrResolved`] or [`EventKind::AddrError`] follows at once: nothing is sent,
    /// and `timeout` is ignored.
    ///
    /// The device has `src`, or the system's source address. The loopback device serves loopback
    /// addresses, and a local `dst` if another program has the source address.
    ///
    /// # Errors
    /// [`CmError::State`], [`CmError::Family`]; [`CmError::Address`] for a wildcard `dst`; those of
    /// [`bind_addr`](Self::bind_addr); without a channel, [`CmError::Failed`].
    pub fn resolve_addr(
        &self,
        src: Option<SocketAddr>,
        dst: SocketAddr,
        timeout: Duration,
    ) -> Result<(), CmError> {
        let _ = timeout;
        let mut inner = self.inner();
        let state = self.check(&[IdState::Idle, IdState::Bound])?;
        if dst.ip().is_unspecified() {
            return Err(CmError::Address(dst.ip()));
        }
        if let Some(src) = src.filter(|_| state == IdState::Idle) {
            if src.is_ipv4() != dst.is_ipv4() {
                return Err(CmError::Family(dst.ip()));
            }
            if inner.context.is_some() || src.ip().is_unspecified() || src.ip().is_multicast() {
                self.bind_to(&mut inner, src, Some(dst))?;
            } else {
                let device_addr = devices::from(src.ip(), dst.ip())?;
                let address = SocketAddr::new(device_addr.ip, src.port());
                self.bind(&mut inner, address, Some(device_addr), Some(dst))?;
            }
        }
        self.bind_any(&mut inner, Some(dst))?;
        if inner.local.is_some_and(|local| local.is_ipv4() != dst.is_ipv4()) {
            return Err(CmError::Family(dst.ip()));
        }
        let (kind, status) = match self.find_route(&mut inner, dst)? {
            Ok(()) => (EventKind::AddrResolved, Status::Success),
            Err(errno) => (EventKind::AddrError, Status::Errno(errno)),
        };
        drop(inner);
        self.shared().emit(kind, status, Param::None);
        self.finish(&[EventKind::AddrResolved])
    }

    /// The inner errno is for an event.
    fn find_route(&self, inner: &mut IdInner, dst: SocketAddr) -> Result<Result<(), i32>, CmError> {
        if inner.device_addr.is_none() {
            let device_addr = match &inner.context {
                Some(context) => devices::of(context, None, dst.ip())?,
                None => match devices::by_route(dst) {
                    Ok(device_addr) => device_addr,
                    Err(errno) => return Ok(Err(errno)),
                },
            };
            if let Some(local) = &mut inner.local {
                local.set_ip(device_addr.ip);
            }
            inner.attach(self.shared(), device_addr);
        }
        inner.peer = Some(dst);
        if let (Some(lease), Some(local)) = (&inner.lease, inner.local) {
            lease.change(|binding| (binding.address, binding.peer) = (local.ip(), Some(dst)));
        }
        self.shared().state().state = IdState::AddrResolved;
        Ok(Ok(()))
    }

    /// Determines the path MTU (`rdma_resolve_route`), without sending.
    ///
    /// [`EventKind::RouteResolved`] follows, or [`EventKind::RouteError`] if the device lost the
    /// local address.
    ///
    /// # Errors
    /// [`CmError::State`]; without a channel, [`CmError::Failed`].
    pub fn resolve_route(&self, timeout: Duration) -> Result<(), CmError> {
        let _ = timeout;
        let mut inner = self.inner();
        self.check(&[IdState::AddrResolved])?;
        let device_addr = inner.device_addr()?.clone();
        let peer = inner.peer.ok_or(CmError::NoDevice)?.ip();
        let (kind, status) = match device_addr.sgid_index() {
            Some(_) => {
                inner.path_mtu = devices::path_mtu(&device_addr, peer);
                self.shared().state().state = IdState::RouteResolved;
                (EventKind::RouteResolved, Status::Success)
            }
            None => (EventKind::RouteError, Status::Errno(libc::EADDRNOTAVAIL)),
        };
        drop(inner);
        self.shared().emit(kind, status, Param::None);
        self.finish(&[EventKind::RouteResolved])
    }
}

impl IdInner {
    /// Path to the peer, as in the kernel.
    pub(super) fn address_vector(&self) -> Result<AddressVector, CmError> {
        let device_addr = self.device_addr()?;
        let sgid_index = device_addr.sgid_index().ok_or(CmError::NotOfDevice(device_addr.ip))?;
        let (Some(local), Some(peer)) = (self.local, self.peer) else {
            return Err(CmError::NoDevice);
        };
        let mut av = AddressVector::new(peer.ip().into(), sgid_index);
        av.flow_label = (u32::from(local.port()) * 31 + u32::from(peer.port())) & 0xF_FFFF;
        av.traffic_class = self.options.tos;
        Ok(av)
    }
}
