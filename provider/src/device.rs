//! Devices: what can be opened on this host, and opening it.

use std::{
    fs, io,
    net::{IpAddr, Ipv4Addr},
    path::PathBuf,
    sync::Arc,
};

use pnet_datalink::NetworkInterface;
use roce_transport::{
    adapter::{Adapter, AdapterConfig, Limits, PKeyTable},
    addr::{Gid, Mtu},
};
use thiserror::Error;

use crate::{
    engine::{Engine, Progress, Wakers},
    fabric::FaultPlan,
    link::{BindError, Capture, FaultyLink, Link, Observer, UdpLink, is_loopback},
    verbs::{AsyncQueue, Context, ContextInner},
};

/// A device that can be opened.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Device {
    name: String,
    addresses: Vec<DeviceAddress>,
    kind: Kind,
    interface: Option<String>,
    link_mtu: u32,
    up: bool,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Kind {
    /// Takes the first free address of 127.0.0.0/24 when it is opened.
    Loopback,
    /// Uses exactly these addresses.
    Addresses,
}

/// An address of a device.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct DeviceAddress {
    /// The address.
    pub ip: IpAddr,
    /// Index of its interface.
    pub interface: u32,
}

/// A device's port (`ibv_port_attr`); every device has one, number 1.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct PortAttr {
    /// Whether its interface is up (`IBV_PORT_ACTIVE`).
    pub active: bool,
    /// The most payload per packet that its interface carries.
    pub active_mtu: Mtu,
    /// The most that any port carries: 4,096.
    pub max_mtu: Mtu,
    /// The longest message in bytes.
    pub max_message: u32,
}

impl PortAttr {
    pub(crate) const fn new(active: bool, active_mtu: Mtu) -> Self {
        Self { active, active_mtu, max_mtu: Mtu::B4096, max_message: roce_transport::qp::MAX_MESSAGE }
    }
}

/// How a device is opened.
#[derive(Default)]
pub struct OpenOptions {
    /// Who moves packets. By default the program's calls, and a background thread when there are none.
    pub progress: Progress,
    /// Captures every datagram into this pcapng file. Without it the variable `ROCE_PCAP` of the environment names the file.
    pub pcap: Option<PathBuf>,
    /// Sees every datagram.
    pub observer: Option<Box<dyn Observer>>,
    /// What is to go wrong on the way to and from the link. By default nothing. With faults, packets leave one by one.
    pub faults: FaultPlan,
    /// Where the faults' chance comes from; the same seed gives the same faults to the same datagrams.
    pub fault_seed: u64,
    /// The P_Key table: the partitions that the adapter is a member of. By default full membership of the default partition,
    /// 0xFFFF.
    pub pkeys: PKeyTable,
    /// Sizes; the defaults are generous.
    pub limits: Limits,
    /// Where all random numbers come from. By default 32 bytes from the operating system; a given seed makes every key and
    /// number predictable, which is for tests only.
    pub seed: Option<[u8; 32]>,
}

/// Why a device cannot be opened.
#[derive(Debug, Error)]
pub enum OpenError {
    /// No device has this name.
    #[error("there is no device {0}; `roce devinfo` lists the devices, and udp:ADDRESS names one by its address")]
    NoSuchDevice(String),
    /// What follows `udp:` is no IP address.
    #[error("{0} is no IP address; a device is named like udp:192.0.2.1 or udp:2001:db8::1")]
    NoAddress(String),
    /// An address cannot be used.
    #[error(transparent)]
    Bind(#[from] BindError),
    /// The interface's MTU is too small for the smallest path MTU.
    #[error("the MTU {link_mtu} of {device} is too small: 336 bytes are needed for packets of 256 bytes")]
    MtuTooSmall {
        /// The device.
        device: String,
        /// Its interface's MTU.
        link_mtu: u32,
    },
    /// The capture file cannot be written.
    #[error("cannot write the capture {path}: {source}")]
    Capture {
        /// The file.
        path: PathBuf,
        /// What the system said.
        source: io::Error,
    },
    /// The system refuses something else: descriptors, threads, random numbers.
    #[error("cannot start the device: {0}")]
    System(#[from] io::Error),
}

/// The devices of this host (`ibv_get_device_list`): one for loopback, then one per interface that has an address.
#[must_use]
pub fn devices() -> Vec<Device> {
    let interfaces = pnet_datalink::interfaces();
    let loopback = interfaces.iter().find(|interface| interface.is_loopback());
    let others = interfaces.iter().filter(|interface| !interface.is_loopback() && !interface.ips.is_empty());
    std::iter::once(Device::loopback(loopback)).chain(others.map(Device::of_interface)).collect()
}

impl Device {
    fn loopback(interface: Option<&NetworkInterface>) -> Self {
        Self {
            name: "roce_lo".into(),
            addresses: vec![DeviceAddress { ip: Ipv4Addr::LOCALHOST.into(), interface: interface.map_or(0, |i| i.index) }],
            kind: Kind::Loopback,
            interface: interface.map(|interface| interface.name.clone()),
            link_mtu: interface.map_or(65_536, |interface| link_mtu(&interface.name)),
            up: interface.is_none_or(NetworkInterface::is_up),
        }
    }

    fn of_interface(interface: &NetworkInterface) -> Self {
        let mut addresses: Vec<IpAddr> = interface.ips.iter().map(|network| network.ip()).collect();
        // as the kernel orders a GID table: the link-local address first, then IPv4, then the rest of IPv6
        addresses.sort_by_key(|address| match address {
            IpAddr::V6(v6) if v6.is_unicast_link_local() => 0,
            IpAddr::V4(_) => 1,
            IpAddr::V6(_) => 2,
        });
        Self {
            name: format!("roce_{}", interface.name),
            addresses: addresses.into_iter().map(|ip| DeviceAddress { ip, interface: interface.index }).collect(),
            kind: Kind::Addresses,
            interface: Some(interface.name.clone()),
            link_mtu: link_mtu(&interface.name),
            up: interface.is_up(),
        }
    }

    /// The device that `spec` names: one of [`devices`], or `udp:ADDRESS` for one with just that address.
    ///
    /// # Errors
    /// [`OpenError::NoSuchDevice`], [`OpenError::NoAddress`]; [`OpenError::Bind`] for an address that is not this host's.
    pub fn named(spec: &str) -> Result<Self, OpenError> {
        if let Some(address) = spec.strip_prefix("udp:") {
            let address = address.trim_matches(['[', ']']);
            return Self::at(address.parse().map_err(|_| OpenError::NoAddress(address.into()))?);
        }
        let found = devices().into_iter().find(|device| device.name == spec);
        found.ok_or_else(|| OpenError::NoSuchDevice(spec.into()))
    }

    /// A device with just this address.
    ///
    /// # Errors
    /// [`OpenError::Bind`] when the address is not this host's.
    pub fn at(ip: IpAddr) -> Result<Self, OpenError> {
        let interfaces = pnet_datalink::interfaces();
        let has = |interface: &&NetworkInterface| {
            interface.ips.iter().any(|own| own.ip() == ip) || is_loopback(ip) && interface.is_loopback()
        };
        let interface = interfaces.iter().find(has).ok_or(BindError::NotLocal(ip))?;
        Ok(Self {
            name: format!("udp:{ip}"),
            addresses: vec![DeviceAddress { ip, interface: interface.index }],
            kind: Kind::Addresses,
            interface: Some(interface.name.clone()),
            link_mtu: link_mtu(&interface.name),
            up: interface.is_up(),
        })
    }

    /// The device to use for a connection that this host has as `local`: the loopback device for a loopback address, else the
    /// one with that address alone.
    ///
    /// # Errors
    /// [`OpenError::Bind`] when the address is not this host's.
    pub fn for_local(local: IpAddr) -> Result<Self, OpenError> {
        if local.is_loopback() && local.is_ipv4() {
            let interfaces = pnet_datalink::interfaces();
            return Ok(Self::loopback(interfaces.iter().find(|interface| interface.is_loopback())));
        }
        Self::at(local)
    }

    /// Its name.
    #[must_use]
    pub fn name(&self) -> &str {
        &self.name
    }

    /// The interface that it uses.
    #[must_use]
    pub fn interface(&self) -> Option<&str> {
        self.interface.as_deref()
    }

    /// The addresses that it will have, which are its GIDs. The loopback device takes the first free one of 127.0.0.0/24
    /// when it is opened.
    #[must_use]
    pub fn addresses(&self) -> &[DeviceAddress] {
        &self.addresses
    }

    /// Its port (`ibv_query_port`).
    #[must_use]
    pub fn port(&self) -> PortAttr {
        PortAttr::new(self.up, Mtu::fitting(self.link_mtu).unwrap_or(Mtu::B256))
    }

    /// Opens it (`ibv_open_device`) on the `udp` link, which needs no privilege.
    ///
    /// # Errors
    /// See [`OpenError`].
    pub fn open(&self, options: OpenOptions) -> Result<Context, OpenError> {
        if Mtu::fitting(self.link_mtu).is_none() {
            return Err(OpenError::MtuTooSmall { device: self.name.clone(), link_mtu: self.link_mtu });
        }
        let link = match self.kind {
            Kind::Loopback => UdpLink::bind_loopback()?,
            Kind::Addresses => {
                let addresses: Vec<_> = self.addresses.iter().map(|address| (address.ip, address.interface)).collect();
                UdpLink::bind(&addresses)?
            }
        };
        open_link(self.name.clone(), self.port(), Box::new(link), options)
    }
}

/// Opens an adapter on a link of the caller's choice.
pub(crate) fn open_link(name: String, port: PortAttr, link: Box<dyn Link>, options: OpenOptions) -> Result<Context, OpenError> {
    let OpenOptions { progress, pcap, observer, faults, fault_seed, pkeys, limits, seed } = options;
    let link = if faults == FaultPlan::default() { link } else { Box::new(FaultyLink::new(link, faults, fault_seed)) };
    let seed = match seed {
        Some(seed) => seed,
        None => {
            let mut seed = [0; 32];
            getrandom::fill(&mut seed).map_err(|error| io::Error::other(error.to_string()))?;
            seed
        }
    };
    let pcap = pcap.or_else(|| std::env::var_os("ROCE_PCAP").filter(|value| !value.is_empty()).map(PathBuf::from));
    let observer = match pcap {
        Some(path) => {
            let capture = Capture::create(&path).map_err(|source| OpenError::Capture { path, source })?;
            Some(Box::new(Both { capture, other: observer }) as Box<dyn Observer>)
        }
        None => observer,
    };
    let config =
        AdapterConfig { port_mtu: port.active_mtu, source_port: link.source_port(), pkeys, limits, ..AdapterConfig::new(seed) };
    let mut adapter = Adapter::new(config);
    adapter.set_gids(link.addresses().into_iter().map(Gid::from).collect());
    let events = Arc::new(AsyncQueue::new()?);
    let wakers = Wakers { completions: std::collections::BTreeMap::new(), events: events.clone() };
    let engine = Engine::start(adapter, link, observer, wakers, progress)?;
    Ok(Context { inner: Arc::new(ContextInner { engine, events, name, port }) })
}

/// A capture and the program's own observer.
struct Both {
    capture: Capture,
    other: Option<Box<dyn Observer>>,
}

impl Observer for Both {
    fn observe(&mut self, observed: &crate::link::Observed<'_>) {
        self.capture.observe(observed);
        if let Some(other) = &mut self.other {
            other.observe(observed);
        }
    }
}

/// The MTU of an interface; 1,500 where the system does not tell.
fn link_mtu(interface: &str) -> u32 {
    let text = fs::read_to_string(format!("/sys/class/net/{interface}/mtu")).unwrap_or_default();
    text.trim().parse().unwrap_or(1500)
}
