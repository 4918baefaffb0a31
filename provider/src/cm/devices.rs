//! Choice of an id's device. The library opens devices by itself, and finds those that the program
//! has open by their addresses.

use std::{
    io,
    net::{IpAddr, Ipv4Addr, SocketAddr, UdpSocket},
    sync::OnceLock,
};

use roce_transport::addr::{Gid, Mtu};

use super::error::CmError;
use crate::{
    Context, Device, OpenError, OpenOptions,
    bind::BindError,
    calls::{ProcessGuard, ProcessMutex},
    device::open_contexts,
    devices,
};

/// Lock of the thread that looks for a device and opens it, so that two threads do not open the
/// same.
static OPENING: ProcessMutex<()> = ProcessMutex::new(());

fn opening() -> ProcessGuard<'static, ()> {
    OPENING.lock()
}

/// Source of devices for ids.
///
/// By default ids choose among [`devices`] and open them by themselves. A program that keeps its
/// own table of open devices implements this trait instead; see [`set_device_source`].
pub trait DeviceSource: Send + Sync {
    /// The devices that ids may use.
    fn devices(&self) -> Vec<Device>;

    /// Opens one of these, or one with just one address that none of these has.
    ///
    /// # Errors
    /// See [`OpenError`].
    fn open(&self, device: &Device) -> Result<Context, OpenError>;
}

static SOURCE: OnceLock<&'static dyn DeviceSource> = OnceLock::new();

/// Has all ids of the process find devices in `source`. The first call counts; `false` for any
/// other.
pub fn set_device_source(source: &'static dyn DeviceSource) -> bool {
    SOURCE.set(source).is_ok()
}

/// The devices to choose from.
fn listed() -> Vec<Device> {
    SOURCE.get().map_or_else(devices, |source| source.devices())
}

fn open(device: &Device) -> Result<Context, OpenError> {
    match SOURCE.get() {
        Some(source) => source.open(device),
        None => device.open(OpenOptions::default()),
    }
}

/// The device to open for an address: with a source, the one of its devices that has it, whose
/// other addresses come along.
fn with_address(ip: IpAddr) -> Result<Device, OpenError> {
    let of_source = SOURCE.get().and_then(|source| {
        source
            .devices()
            .into_iter()
            .find(|device| device.addresses().iter().any(|own| own.ip == ip))
    });
    of_source.map_or_else(|| Device::at(ip), Ok)
}

/// An id's device and own address.
#[derive(Clone)]
pub(super) struct DeviceAddr {
    pub(super) context: Context,
    pub(super) ip: IpAddr,
    /// Was opened for this.
    pub(super) opened: bool,
}

impl DeviceAddr {
    /// The address's index in the device's GID table.
    pub(super) fn sgid_index(&self) -> Option<u16> {
        index_of(&self.context, self.ip)
    }
}

fn index_of(context: &Context, ip: IpAddr) -> Option<u16> {
    context.find_gid(|own| own == Gid::from(ip))
}

/// The device that has this address: one that is open, or else one that is opened.
pub(super) fn at(ip: IpAddr) -> Result<DeviceAddr, OpenError> {
    let _one_at_a_time = opening();
    if let Some(context) =
        open_contexts().into_iter().find(|context| index_of(context, ip).is_some())
    {
        return Ok(DeviceAddr { context, ip, opened: false });
    }
    let mut context = open(&with_address(ip)?.preferring(ip))?;
    if index_of(&context, ip).is_none() {
        // it is open with another address
        context = open(&Device::at(ip)?)?;
    }
    Ok(DeviceAddr { context, ip, opened: true })
}

/// An address of `context`: `ip`, or one of the same family and scope as `peer`.
pub(super) fn of(
    context: &Context,
    ip: Option<IpAddr>,
    peer: IpAddr,
) -> Result<DeviceAddr, CmError> {
    let with = |ip| DeviceAddr { context: context.clone(), ip, opened: false };
    if let Some(ip) = ip {
        return index_of(context, ip).map(|_| with(ip)).ok_or(CmError::NotOfDevice(ip));
    }
    let own = context.gids().into_iter().filter(|gid| !gid.is_zero()).map(Gid::to_ip);
    let fit = own
        .filter(|own| own.is_ipv4() == peer.is_ipv4())
        .max_by_key(|own| is_link_local(*own) == is_link_local(peer));
    fit.map(with).ok_or(CmError::Family(peer))
}

fn is_link_local(ip: IpAddr) -> bool {
    matches!(ip, IpAddr::V6(v6) if v6.is_unicast_link_local())
}

/// The device and address from which this host reaches `peer`.
pub(super) fn towards(peer: SocketAddr) -> Result<DeviceAddr, Unroutable> {
    let local = route(peer).map_err(Unroutable::NoRoute)?;
    if local.is_loopback() && local.is_ipv4() {
        return loopback(peer.ip()).map_err(Unroutable::NoDevice);
    }
    from(local, peer.ip()).map_err(Unroutable::NoDevice)
}

/// The device from which to reach `peer` with the local address `local`.
pub(super) fn from(local: IpAddr, peer: IpAddr) -> Result<DeviceAddr, OpenError> {
    let is_open = || open_contexts().iter().any(|context| index_of(context, local).is_some());
    // A listener on an address of this host that is not open here is in another program. The path
    // from loopback is shorter than from an address that both would share.
    if local.is_ipv4() && local == peer && !is_open() {
        return loopback(peer);
    }
    match at(local) {
        // another program of this host has the address, and the peer is on this host, too
        Err(OpenError::Bind(
            BindError::Taken(_)
            | BindError::OtherUser { .. }
            | BindError::Stopped { .. }
            | BindError::Full(_),
        )) if peer.is_ipv4() && is_own(peer) => loopback(peer),
        other => other,
    }
}

/// Reason for which no device reaches a peer.
pub(super) enum Unroutable {
    /// The system has no route.
    NoRoute(io::Error),
    /// The device cannot be opened.
    NoDevice(OpenError),
}

/// The loopback device: one that is open, or else a new one, which leaves the peer's address to the
/// peer, who may come later.
fn loopback(peer: IpAddr) -> Result<DeviceAddr, OpenError> {
    let _one_at_a_time = opening();
    let own = |context: &Context| {
        context.gids().into_iter().map(Gid::to_ip).find(|ip| ip.is_ipv4() && ip.is_loopback())
    };
    if let Some((context, ip)) =
        open_contexts().into_iter().find_map(|context| own(&context).map(|ip| (context, ip)))
    {
        return Ok(DeviceAddr { context, ip, opened: false });
    }
    let is_lo = |device: &Device| {
        device.addresses().iter().any(|own| own.ip.is_ipv4() && own.ip.is_loopback())
    };
    let of_source = SOURCE.get().and_then(|source| source.devices().into_iter().find(is_lo));
    let device = of_source.map_or_else(|| Device::for_local(Ipv4Addr::LOCALHOST.into()), Ok)?;
    let context = open(&device.avoiding(peer))?;
    let ip = own(&context).unwrap_or(Ipv4Addr::LOCALHOST.into());
    Ok(DeviceAddr { context, ip, opened: true })
}

/// Every device of this host that is open or can be opened; true if it was opened here. Those
/// whose port is taken are left out; if none is left, the last error tells why.
pub(super) fn all() -> Result<Vec<(Context, bool)>, CmError> {
    let mut found: Vec<(Context, bool)> = Vec::new();
    let mut last = None;
    for device in listed() {
        let _one_at_a_time = opening();
        let leases = device.leases_address(); // which one, only who has it open knows
        let is_lo = !leases && device.addresses().iter().all(|address| address.ip.is_loopback());
        let has = |context: &Context| {
            if leases {
                return context.name() == device.name();
            }
            context.gids().into_iter().map(Gid::to_ip).any(|ip| {
                if is_lo {
                    ip.is_loopback() && ip.is_ipv4()
                } else {
                    device.addresses().iter().any(|own| own.ip == ip)
                }
            })
        };
        let same: Vec<Context> = open_contexts().into_iter().filter(has).collect();
        if !same.is_empty() {
            // several of the program's may share an interface, each with addresses of its own
            found.extend(same.into_iter().map(|context| (context, false)));
            continue;
        }
        match open(&device) {
            Ok(context) => found.push((context, true)),
            Err(error) => last = Some(error),
        }
    }
    if found.is_empty() {
        return Err(CmError::NoListenDevice(
            last.map_or_else(|| "there is none".into(), |error| error.to_string()),
        ));
    }
    Ok(found)
}

/// The local address that the system would send to `peer` from. Nothing is sent.
fn route(peer: SocketAddr) -> io::Result<IpAddr> {
    let any: IpAddr = if peer.is_ipv4() {
        Ipv4Addr::UNSPECIFIED.into()
    } else {
        std::net::Ipv6Addr::UNSPECIFIED.into()
    };
    let socket = UdpSocket::bind((any, 0))?;
    // port 0 is no destination
    let mut peer = peer;
    peer.set_port(peer.port().max(1));
    socket.connect(peer)?;
    Ok(socket.local_addr()?.ip())
}

/// True if this host has the address.
fn is_own(ip: IpAddr) -> bool {
    ip.is_loopback() || interface_mtu(ip).is_some()
}

/// The MTU of the interface that has this address.
fn interface_mtu(ip: IpAddr) -> Option<u32> {
    let device =
        devices().into_iter().find(|device| device.addresses().iter().any(|own| own.ip == ip))?;
    Some(device.link_mtu())
}

/// The path MTU from an address of a device: what its port carries, and, as the kernel counts, what
/// fits the interface with 96 bytes of headers. A peer on the same host may have an interface that
/// carries less.
pub(super) fn path_mtu(own: &DeviceAddr, peer: IpAddr) -> Mtu {
    let port = own.context.active_mtu();
    if own.ip.is_loopback() && peer.is_loopback() {
        return port;
    }
    let fits = |ip| interface_mtu(ip).and_then(|mtu| Mtu::fitting(mtu.saturating_sub(16)));
    [Some(port), fits(own.ip), fits(peer)].into_iter().flatten().min().unwrap_or(port)
}
