//! Choice of an id's device: open, or opened here.

use std::{
    io,
    net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, UdpSocket},
    sync::OnceLock,
};

use roce_transport::addr::{Gid, Mtu};

use super::error::{CmError, open_errno};
use crate::{
    Context, Device, OpenError, OpenOptions, bind::BindError, calls::ProcessMutex,
    device::open_contexts, devices,
};

/// Prevents opening a device twice.
static OPENING: ProcessMutex<()> = ProcessMutex::new(());

/// Source of devices for ids, for programs with a device table; by default [`devices`].
pub trait DeviceSource: Send + Sync {
    /// Devices for ids.
    fn devices(&self) -> Vec<Device>;

    /// Opens a listed device, or a device of one address.
    ///
    /// # Errors
    /// See [`OpenError`].
    fn open(&self, device: &Device) -> Result<Context, OpenError>;
}

static SOURCE: OnceLock<&'static dyn DeviceSource> = OnceLock::new();

/// Sets the process's source; false after the first call.
pub fn set_device_source(source: &'static dyn DeviceSource) -> bool {
    SOURCE.set(source).is_ok()
}

fn listed() -> Vec<Device> {
    SOURCE.get().map_or_else(devices, |source| source.devices())
}

fn open(device: &Device) -> Result<Context, OpenError> {
    match SOURCE.get() {
        Some(source) => source.open(device),
        None => device.open(OpenOptions::default()),
    }
}

/// Device of the source with such an address.
fn of_source(is: impl Fn(IpAddr) -> bool) -> Option<Device> {
    SOURCE.get()?.devices().into_iter().find(|device| has_address(device, &is))
}

fn has_address(device: &Device, is: impl Fn(IpAddr) -> bool) -> bool {
    device.addresses().iter().any(|own| is(own.ip))
}

fn is_ipv4_loopback(ip: IpAddr) -> bool {
    ip.is_ipv4() && ip.is_loopback()
}

#[derive(Clone)]
pub(super) struct DeviceAddr {
    pub(super) context: Context,
    pub(super) ip: IpAddr,
    /// Opened for this id.
    pub(super) opened: bool,
}

impl DeviceAddr {
    pub(super) fn sgid_index(&self) -> Option<u16> {
        index_of(&self.context, self.ip)
    }
}

fn index_of(context: &Context, ip: IpAddr) -> Option<u16> {
    context.find_gid(|own| own == Gid::from(ip))
}

/// Opened if necessary.
pub(super) fn at(ip: IpAddr) -> Result<DeviceAddr, OpenError> {
    let _one_at_a_time = OPENING.lock();
    if let Some(context) =
        open_contexts().into_iter().find(|context| index_of(context, ip).is_some())
    {
        return Ok(DeviceAddr { context, ip, opened: false });
    }
    let device = of_source(|own| own == ip).map_or_else(|| Device::at(ip), Ok)?;
    let mut context = open(&device.preferring(ip))?;
    if index_of(&context, ip).is_none() {
        // open with another address
        context = open(&Device::at(ip)?)?;
    }
    Ok(DeviceAddr { context, ip, opened: true })
}

/// `ip`, or an address of `peer`'s family and scope.
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

/// The error is an errno.
pub(super) fn by_route(peer: SocketAddr) -> Result<DeviceAddr, i32> {
    let local = route(peer).map_err(|error| error.raw_os_error().unwrap_or(libc::EHOSTUNREACH))?;
    let device = if is_ipv4_loopback(local) { loopback(peer.ip()) } else { from(local, peer.ip()) };
    device.map_err(|error| open_errno(&error))
}

pub(super) fn from(local: IpAddr, peer: IpAddr) -> Result<DeviceAddr, OpenError> {
    let is_open = || open_contexts().iter().any(|context| index_of(context, local).is_some());
    // another program has the peer's local address: loopback is shorter than a shared address
    if local.is_ipv4() && local == peer && !is_open() {
        return loopback(peer);
    }
    match at(local) {
        Err(OpenError::Bind(
            BindError::Taken(_)
            | BindError::OtherUser { .. }
            | BindError::Stopped { .. }
            | BindError::Full(_),
        )) if peer.is_ipv4() && (peer.is_loopback() || interface_mtu(peer).is_some()) => {
            loopback(peer)
        }
        other => other,
    }
}

/// Loopback device, avoiding the peer's address if new.
fn loopback(peer: IpAddr) -> Result<DeviceAddr, OpenError> {
    let _one_at_a_time = OPENING.lock();
    let own = |context: &Context| {
        context.gids().into_iter().map(Gid::to_ip).find(|&ip| is_ipv4_loopback(ip))
    };
    if let Some((context, ip)) =
        open_contexts().into_iter().find_map(|context| own(&context).map(|ip| (context, ip)))
    {
        return Ok(DeviceAddr { context, ip, opened: false });
    }
    let localhost = IpAddr::from(Ipv4Addr::LOCALHOST);
    let device = of_source(is_ipv4_loopback).map_or_else(|| Device::for_local(localhost), Ok)?;
    let context = open(&device.avoiding(peer))?;
    let ip = own(&context).unwrap_or(localhost);
    Ok(DeviceAddr { context, ip, opened: true })
}

/// All devices, open or opened here (true). Skips failures; returns the last error if none is left.
pub(super) fn all() -> Result<Vec<(Context, bool)>, CmError> {
    let mut found: Vec<(Context, bool)> = Vec::new();
    let mut last = None;
    for device in listed() {
        let _one_at_a_time = OPENING.lock();
        let leases = device.leases_address(); // the address is known once open
        let is_lo = !leases && device.addresses().iter().all(|address| address.ip.is_loopback());
        let has = |context: &Context| {
            if leases {
                return context.name() == device.name();
            }
            context.gids().into_iter().map(Gid::to_ip).any(|ip| match is_lo {
                true => is_ipv4_loopback(ip),
                false => has_address(&device, |own| own == ip),
            })
        };
        let same: Vec<Context> = open_contexts().into_iter().filter(has).collect();
        if !same.is_empty() {
            // an interface may have several open devices
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

/// Source address for `peer`, without sending.
fn route(mut peer: SocketAddr) -> io::Result<IpAddr> {
    let any: IpAddr = match peer {
        SocketAddr::V4(_) => Ipv4Addr::UNSPECIFIED.into(),
        SocketAddr::V6(_) => Ipv6Addr::UNSPECIFIED.into(),
    };
    let socket = UdpSocket::bind((any, 0))?;
    peer.set_port(peer.port().max(1));
    socket.connect(peer)?;
    Ok(socket.local_addr()?.ip())
}

fn interface_mtu(ip: IpAddr) -> Option<u32> {
    let mut devices = devices().into_iter();
    devices.find(|device| has_address(device, |own| own == ip)).map(|device| device.link_mtu())
}

/// Path MTU: the port's MTU or, as in the kernel, the interface MTU less 96 header bytes. A local
/// peer's interface may be smaller.
pub(super) fn path_mtu(own: &DeviceAddr, peer: IpAddr) -> Mtu {
    let port = own.context.active_mtu();
    if own.ip.is_loopback() && peer.is_loopback() {
        return port;
    }
    let fits = |ip| interface_mtu(ip).and_then(|mtu| Mtu::fitting(mtu.saturating_sub(16)));
    [Some(port), fits(own.ip), fits(peer)].into_iter().flatten().min().unwrap_or(port)
}
