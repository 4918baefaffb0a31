//! Devices: what can be opened on this host, and opening it.

use std::{
    io,
    net::{IpAddr, Ipv4Addr},
    path::PathBuf,
    sync::{Arc, Weak, atomic::AtomicUsize},
};

use pnet_datalink::NetworkInterface;
use rand_chacha::ChaCha12Rng;
use rand_core::{RngCore, SeedableRng};
use roce_transport::{
    adapter::{Adapter, AdapterConfig, Limits, PKeyTable},
    addr::{Gid, Mtu},
    cm::CmConfig,
};
use thiserror::Error;

use crate::{
    bind::BindError,
    engine::{CounterSink, Engine, Parts, Progress, Sinks},
    environment,
    fabric::FaultPlan,
    link::{CaptureFile, FaultyLink, Link, Locality, NullLink, Observer, UdpLink},
    port::{Follows, InterfaceState, PortAttr, Watch},
    publish::Publisher,
    sync::Mutex,
    verbs::{AsyncQueue, Context, ContextInner, DeviceAttr, Guid, ObjectEvents},
};

/// A device that can be opened.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Device {
    name: String,
    addresses: Vec<DeviceAddress>,
    kind: Kind,
    interface: Option<String>,
    index: u32,
    sys_image_guid: Guid,
    state: InterfaceState,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Kind {
    /// Takes the first free address of 127.0.0.0/24 when it is opened, or this one.
    Loopback(Option<IpAddr>),
    /// Uses one address.
    Address,
    /// Uses every address of its interface, as they come and go.
    Interface,
}

/// An address of a device.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct DeviceAddress {
    /// The address.
    pub ip: IpAddr,
    /// Index of its interface.
    pub interface: u32,
}

/// How a device is opened.
#[derive(Debug, Default)]
pub struct OpenOptions {
    /// Who moves packets. By default the program's calls, and a background thread when there are
    /// none.
    pub progress: Progress,
    /// Captures every datagram into this pcapng file. Without it the variable `ROCE_PCAP` of the
    /// environment names the file.
    ///
    /// In the name, `%d` is the device's name, `%p` the number of the process, `%%` a percent sign.
    /// The file is made with the first packet. A file that this process has written before, or that
    /// another that still runs is writing, is not touched: then it is `name.2.pcapng` instead of
    /// `name.pcapng`, and so on. One of a process that has ended is overwritten.
    pub pcap: Option<PathBuf>,
    /// Every packet takes the network stack, where tcpdump, packet filters and `tc` meet it.
    /// Without it, packets between devices of the same user on this host go through memory that the
    /// two processes share. The variable `ROCE_SOCKETS_ONLY` of the environment, if it is anything
    /// but empty or 0, says the same for all devices. The device then has its addresses for itself,
    /// while others share them with whatever other process of the same user opens them.
    pub sockets_only: bool,
    /// Sees every datagram.
    pub observer: Option<Box<dyn Observer>>,
    /// What is to go wrong on the way to and from the link. By default nothing. With faults,
    /// packets leave one by one.
    pub faults: FaultPlan,
    /// Where the faults' chance comes from; the same seed gives the same faults to the same
    /// datagrams.
    pub fault_seed: u64,
    /// The P_Key table: the partitions that the adapter is a member of. By default full membership
    /// of the default partition, 0xFFFF.
    pub pkeys: PKeyTable,
    /// Sizes; the defaults are generous.
    pub limits: Limits,
    /// How connection management works: how long and how often a peer is asked.
    pub cm: CmConfig,
    /// Where all random numbers come from. By default 32 bytes from the operating system; a given
    /// seed makes every key and number predictable, which is for tests only.
    pub seed: Option<[u8; 32]>,
}

/// Why a device cannot be opened.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum OpenError {
    /// No device has this name.
    #[error(
        "there is no device {0}; `roce devinfo` lists the devices, and udp:ADDRESS names one by its address"
    )]
    NoSuchDevice(String),
    /// What follows `udp:` is no IP address.
    #[error("{0} is no IP address; a device is named like udp:192.0.2.1 or udp:2001:db8::1")]
    NoAddress(String),
    /// An address cannot be used.
    #[error(transparent)]
    Bind(#[from] BindError),
    /// The interface's MTU is too small for the smallest path MTU.
    #[error(
        "the MTU {link_mtu} of {device} is too small: 336 bytes are needed for packets of 256 bytes"
    )]
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

/// The devices of this host (`ibv_get_device_list`): one for loopback, then one per interface that
/// has an address.
#[must_use]
pub fn devices() -> Vec<Device> {
    let interfaces = pnet_datalink::interfaces();
    let loopback = interfaces.iter().find(|interface| interface.is_loopback());
    let others =
        interfaces.iter().filter(|interface| !interface.is_loopback() && !interface.ips.is_empty());
    std::iter::once(Device::loopback(loopback)).chain(others.map(Device::of_interface)).collect()
}

impl Device {
    fn on(
        interface: Option<&NetworkInterface>,
        name: String,
        kind: Kind,
        addresses: &[IpAddr],
    ) -> Self {
        let index = interface.map_or(0, |interface| interface.index);
        let mac = interface
            .and_then(|interface| interface.mac)
            .map(|mac| mac.octets())
            .filter(|mac| *mac != [0; 6]);
        let mac = mac.unwrap_or([0, 0, 0, 0, 0, 1]); // the loopback interface: programs take zeros for no device
        // a host without any loopback interface that is listed
        let state = interface.map_or_else(InterfaceState::loopback, InterfaceState::of);
        Self {
            name,
            addresses: addresses.iter().map(|&ip| DeviceAddress { ip, interface: index }).collect(),
            kind,
            interface: interface.map(|interface| interface.name.clone()),
            index,
            sys_image_guid: Guid::of_mac(mac),
            state,
        }
    }

    fn loopback(interface: Option<&NetworkInterface>) -> Self {
        Self::on(interface, "roce_lo".into(), Kind::Loopback(None), &[Ipv4Addr::LOCALHOST.into()])
    }

    fn of_interface(interface: &NetworkInterface) -> Self {
        let mut device =
            Self::on(Some(interface), format!("roce_{}", interface.name), Kind::Interface, &[]);
        let addresses = device.state.addresses.iter();
        device.addresses =
            addresses.map(|&ip| DeviceAddress { ip, interface: interface.index }).collect();
        device
    }

    /// The device that `spec` names: one of [`devices`], by its own name or by that of its network
    /// interface, or `udp:ADDRESS` for one with just that address.
    ///
    /// # Errors
    /// [`OpenError::NoSuchDevice`], [`OpenError::NoAddress`]; [`OpenError::Bind`] for an address
    /// that is not this host's.
    pub fn named(spec: &str) -> Result<Self, OpenError> {
        if let Some(address) = spec.strip_prefix("udp:") {
            let address = address.trim_matches(['[', ']']);
            return Self::at(address.parse().map_err(|_| OpenError::NoAddress(address.into()))?);
        }
        let found = devices()
            .into_iter()
            .find(|device| device.name == spec || device.interface() == Some(spec));
        found.ok_or_else(|| OpenError::NoSuchDevice(spec.into()))
    }

    /// A device with just this address.
    ///
    /// # Errors
    /// [`OpenError::Bind`] when the address is not this host's.
    pub fn at(ip: IpAddr) -> Result<Self, OpenError> {
        let interfaces = pnet_datalink::interfaces();
        let has = |interface: &&NetworkInterface| {
            interface.ips.iter().any(|own| own.ip() == ip)
                || ip.is_loopback() && interface.is_loopback()
        };
        let interface = interfaces.iter().find(has).ok_or(BindError::NotLocal(ip))?;
        Ok(Self::on(Some(interface), format!("udp:{ip}"), Kind::Address, &[ip]))
    }

    /// The device to use for a connection that this host has as `local`: the loopback device for a
    /// loopback address, else the one with that address alone.
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

    /// The same device, which will have this address if it has a choice.
    pub(crate) fn preferring(self, ip: IpAddr) -> Self {
        match self.kind {
            Kind::Loopback(_) if ip.is_ipv4() && ip.is_loopback() => {
                let addresses = vec![DeviceAddress { ip, interface: self.index }];
                Self { kind: Kind::Loopback(Some(ip)), addresses, ..self }
            }
            _ => self,
        }
    }

    /// Its name.
    #[must_use]
    pub fn name(&self) -> &str {
        &self.name
    }

    /// The MTU of its interface.
    pub(crate) const fn link_mtu(&self) -> u32 {
        self.state.link_mtu
    }

    /// The interface that it uses.
    #[must_use]
    pub fn interface(&self) -> Option<&str> {
        self.interface.as_deref()
    }

    /// The addresses that it will have, which are its GIDs. The loopback device takes the first
    /// free one of 127.0.0.0/24 when it is opened.
    #[must_use]
    pub fn addresses(&self) -> &[DeviceAddress] {
        &self.addresses
    }

    /// Its port as it was when the device was listed (`ibv_query_port`); [`Context::query_port`]
    /// tells how it is now.
    #[must_use]
    pub fn port(&self) -> PortAttr {
        PortAttr::of(&self.state)
    }

    /// What it will tell of itself with these limits (`ibv_query_device_ex`). Its node GUID is
    /// zero: each opening gets its own.
    #[must_use]
    pub fn attributes(&self, limits: Limits) -> DeviceAttr {
        DeviceAttr::new(limits, Guid::default(), self.sys_image_guid)
    }

    /// Opens it (`ibv_open_device`) on the `udp` link, which needs no privilege.
    ///
    /// The port follows its network interface from then on: its state, its MTU, and, for a device
    /// of a whole interface, the addresses that come and go. The device's counters are published
    /// for [`published_counters`](crate::published_counters), where there is a place for them.
    ///
    /// Up to 62 processes of one user can have the same address, unless one of them wants only
    /// sockets ([`OpenOptions::sockets_only`]) or is moved by hand ([`Progress::Manual`]). The
    /// first receives for all. To ask it takes this call a moment, at most a second. The device for
    /// loopback does not share, it takes an address that nobody has.
    ///
    /// # Errors
    /// See [`OpenError`].
    pub fn open(&self, options: OpenOptions) -> Result<Context, OpenError> {
        if Mtu::fitting(self.state.link_mtu).is_none() {
            return Err(OpenError::MtuTooSmall {
                device: self.name.clone(),
                link_mtu: self.state.link_mtu,
            });
        }
        let first = self.addresses.first().map(|address| address.ip);
        let locality = match options.progress {
            _ if options.sockets_only || environment::sockets_only() => Locality::Network,
            // a program that does nothing for a while would keep others from what is theirs
            Progress::Manual => Locality::SharedMemory,
            // as unpredictable as all other numbers
            Progress::Automatic => {
                Locality::SharedAddress { partition: options.seed.map_or_else(random_seed, Ok)?[0] }
            }
        };
        let (mut link, follows) = match self.kind {
            Kind::Loopback(None) => (UdpLink::bind_loopback(locality)?, Follows::State),
            Kind::Loopback(Some(ip)) => (UdpLink::bind(&[(ip, 0)], locality)?, Follows::State),
            Kind::Address | Kind::Interface => {
                let addresses: Vec<_> =
                    self.addresses.iter().map(|address| (address.ip, address.interface)).collect();
                let follows = match first.filter(|_| self.kind == Kind::Address) {
                    None => Follows::All,
                    Some(ip) if ip.is_loopback() => Follows::State,
                    Some(ip) => Follows::Only(ip),
                };
                (UdpLink::bind(&addresses, locality)?, follows)
            }
        };
        if options.faults == FaultPlan::default() {
            link.vouch();
        }
        let watch = if self.index == 0 { None } else { Some(Watch::new(self.index, follows)?) };
        let gids = link.addresses().into_iter().map(|ip| Gid::from(ip).to_string()).collect();
        let publisher = Publisher::new(&self.name, gids).map(|publisher| Box::new(publisher) as _);
        let surroundings = Surroundings { watch, publisher, sys_image_guid: self.sys_image_guid };
        open_link(self.name.clone(), self.port(), Box::new(link), surroundings, options)
    }

    /// Opens it as one that has no network: its port is down and stays so, and it has no GIDs. For
    /// those who only want to look at it while another program has its addresses.
    ///
    /// # Errors
    /// [`OpenError::System`].
    pub fn open_down(&self, options: OpenOptions) -> Result<Context, OpenError> {
        let port = PortAttr { active: false, ..self.port() };
        let surroundings =
            Surroundings { sys_image_guid: self.sys_image_guid, ..Surroundings::default() };
        open_link(self.name.clone(), port, Box::new(NullLink), surroundings, options)
    }
}

/// What an adapter has besides its link; nothing by default, as on a network inside the process.
#[derive(Default)]
pub(crate) struct Surroundings {
    pub(crate) watch: Option<Watch>,
    pub(crate) publisher: Option<Box<dyn CounterSink>>,
    pub(crate) sys_image_guid: Guid,
}

/// Opens an adapter on a link of the caller's choice.
pub(crate) fn open_link(
    name: String,
    port: PortAttr,
    link: Box<dyn Link>,
    surroundings: Surroundings,
    options: OpenOptions,
) -> Result<Context, OpenError> {
    let OpenOptions {
        progress,
        pcap,
        sockets_only: _,
        observer,
        faults,
        fault_seed,
        pkeys,
        limits,
        cm,
        seed,
    } = options;
    let Surroundings { watch, publisher, sys_image_guid } = surroundings;
    let mut link = if faults == FaultPlan::default() {
        link
    } else {
        Box::new(FaultyLink::new(link, &faults, fault_seed))
    };
    let seed = seed.map_or_else(random_seed, Ok)?;
    let observer = match pcap.or_else(environment::pcap) {
        Some(path) => {
            let capture = CaptureFile::new(&path, &name)
                .map_err(|source| OpenError::Capture { path, source })?;
            Some(Box::new(Both { capture, other: observer }) as Box<dyn Observer>)
        }
        None => observer,
    };
    let mut config = AdapterConfig {
        port_mtu: port.active_mtu,
        source_port: link.source_port(),
        pkeys,
        limits,
        cm,
        ..AdapterConfig::new(seed)
    };
    if let Some(partition) = link.sharing().and_then(|sharing| sharing.partition()) {
        (config.qpns, config.cm.ids) = (partition.qpns(), partition.ids());
    }
    let mut adapter = Adapter::new(config);
    adapter.set_port(port.active, port.active_mtu);
    adapter.set_gids(link.addresses().into_iter().map(Gid::from).collect());
    while adapter.poll_event().is_some() {} // how it starts is no news
    let attr = DeviceAttr::new(*adapter.limits(), node_guid(seed), sys_image_guid);
    let events = Arc::new(AsyncQueue::new()?);
    let mut sinks = Sinks::default();
    sinks.of::<ObjectEvents>().add_reader(&events);
    let engine =
        Engine::start(Parts { adapter, link, observer, sinks, watch, publisher }, progress)?;
    let context = Context {
        inner: Arc::new(ContextInner {
            engine,
            events,
            name,
            port,
            attr,
            device_memory: AtomicUsize::new(0),
        }),
    };
    let mut open = OPEN.lock();
    open.retain(|other| other.strong_count() > 0);
    open.push(Arc::downgrade(&context.inner));
    Ok(context)
}

fn random_seed() -> io::Result<[u8; 32]> {
    let mut seed = [0; 32];
    getrandom::fill(&mut seed).map_err(|error| io::Error::other(error.to_string()))?;
    Ok(seed)
}

/// Every open device of the process, for those who look for one by its address.
static OPEN: Mutex<Vec<Weak<ContextInner>>> = Mutex::new(Vec::new());

/// Devices that are open, the oldest first.
pub(crate) fn open_contexts() -> Vec<Context> {
    let open = OPEN.lock();
    let contexts = open.iter().filter_map(Weak::upgrade).map(|inner| Context { inner });
    contexts.filter(Context::is_of_this_process).collect()
}

/// A GUID that nobody else has, with the mark of local assignment. Drawn apart from the adapter's
/// keys and numbers, of which it tells nothing.
fn node_guid(seed: [u8; 32]) -> Guid {
    let mut rng = ChaCha12Rng::from_seed(seed);
    rng.set_stream(1);
    let mut guid = [0; 8];
    rng.fill_bytes(&mut guid);
    guid[0] = guid[0] & !1 | 2;
    Guid(guid)
}

/// A capture and the program's own observer.
struct Both {
    capture: CaptureFile,
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_guid_tells_nothing_of_the_adapters_numbers() {
        let seed = [7; 32];
        let first = Adapter::new(AdapterConfig::new(seed)).random_psn().get().to_le_bytes();
        assert_ne!(node_guid(seed).0[1..3], first[1..3]);
    }
}
