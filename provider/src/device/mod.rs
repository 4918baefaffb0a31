//! Devices of this host, and opening them.

mod about_peer;
mod contexts;
mod error;
mod fabric;
mod open;
mod options;
mod raw;
mod readers;
mod reasons;
mod shown;
mod totals;

use std::{
    io,
    net::{IpAddr, Ipv4Addr},
};

use pnet_datalink::{MacAddr, NetworkInterface};
use roce_transport::{
    adapter::Limits,
    addr::{Gid, Mtu},
    explain::Explain,
    share::IdPartition,
};
use tracing::warn;

use crate::{
    bind::BindError,
    diagnosis,
    engine::Progress,
    fabric::FaultPlan,
    faults::live,
    link::{Link, Locality, NullLink, RawLink, UdpLink, XdpOptions},
    notice::{OptionalFeature, is_refusal},
    port::{Follows, InterfaceState, PortAttr, Watch},
    publish::Publisher,
    sysfs::CounterFiles,
    verbs::{Context, DeviceAttr, Guid},
};
pub use contexts::attend_rules;
pub(crate) use contexts::open_contexts;
pub use error::OpenError;
use open::{Opening, ShardParts, open_link};
pub use options::OpenOptions;
use options::{MAX_SHARDS, random_seed};
use raw::RawSpec;
pub(crate) use raw::continues;
use roce_ethernet::{Prefix, StationConfig};

/// Device that can be opened.
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

#[derive(Clone, PartialEq, Eq, Debug)]
enum Kind {
    /// Takes a free address of 127.0.0.0/24 at opening, except this: another program will take it.
    Loopback(Option<IpAddr>),
    Address,
    /// Follows the addresses of its interface.
    Interface,
    /// Builds Ethernet frames itself.
    Raw(StationConfig, Option<XdpOptions>),
}

type Watched = (Box<dyn Link>, Option<Watch>);

static NO_IPV6: OptionalFeature =
    OptionalFeature::new("IPv6 sockets", "devices have only IPv4 addresses");
static NO_NETLINK: OptionalFeature =
    OptionalFeature::new("sockets of netlink", "ports do not follow their interfaces");

/// Address of a device.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct DeviceAddress {
    /// Address.
    pub ip: IpAddr,
    /// Index of the interface.
    pub interface: u32,
}

/// Devices of this host (`ibv_get_device_list`): loopback, then interfaces with addresses.
#[must_use]
pub fn devices() -> Vec<Device> {
    let interfaces = pnet_datalink::interfaces();
    let loopback = interfaces.iter().find(|interface| interface.is_loopback());
    let others =
        interfaces.iter().filter(|interface| !interface.is_loopback() && !interface.ips.is_empty());
    std::iter::once(Device::loopback(loopback)).chain(others.map(Device::of_interface)).collect()
}

fn find_interface(is: impl Fn(&NetworkInterface) -> bool) -> Option<NetworkInterface> {
    pnet_datalink::interfaces().into_iter().find(is)
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
        let mac = mac.unwrap_or([0, 0, 0, 0, 0, 1]); // loopback: zeros mean no device
        // unlisted loopback
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
        let localhost = IpAddr::from(Ipv4Addr::LOCALHOST);
        Self::on(interface, "roce_lo".into(), Kind::Loopback(None), &[localhost])
    }

    fn of_interface(interface: &NetworkInterface) -> Self {
        let addresses = InterfaceState::of(interface).addresses;
        Self::on(Some(interface), format!("roce_{}", interface.name), Kind::Interface, &addresses)
    }

    /// Finds a device by its name or its interface's name.
    ///
    /// `udp:ADDRESS` has that address alone. `raw:INTERFACE` builds Ethernet frames with the
    /// interface's addresses (CAP_NET_RAW). `raw:INTERFACE,ip=ADDRESS/LENGTH` has its own
    /// addresses; `raw:INTERFACE,ip=dhcp,mac=MAC` leases one. Both take further `ip=`, `mac=MAC`,
    /// `vlan=ID`, `prio=PRIORITY` and `gw=ADDRESS`. `xdp:` uses AF_XDP (also CAP_NET_ADMIN and
    /// CAP_BPF) and takes `queue=NUMBER`, `mode=MODE` and `busy=MICROSECONDS`, too.
    ///
    /// # Errors
    /// [`OpenError::NoSuchDevice`], [`OpenError::NoAddress`], [`OpenError::RawSpec`],
    /// [`OpenError::NoInterface`]; [`OpenError::Bind`] unless local.
    pub fn named(spec: &str) -> Result<Self, OpenError> {
        if raw::is_raw(spec) {
            return Self::raw(&RawSpec::parse(spec)?);
        }
        if let Some(address) = spec.strip_prefix("udp:") {
            let address = address.trim_matches(['[', ']']);
            return Self::at(address.parse().map_err(|_| OpenError::NoAddress(address.into()))?);
        }
        let found = devices()
            .into_iter()
            .find(|device| device.name == spec || device.interface() == Some(spec));
        found.ok_or_else(|| OpenError::NoSuchDevice(spec.into()))
    }

    fn raw(spec: &RawSpec) -> Result<Self, OpenError> {
        let found = find_interface(|interface| interface.name == spec.interface);
        let no = |why| OpenError::NoInterface { interface: spec.interface.clone(), why };
        let interface =
            found.ok_or_else(|| no("does not exist; `ip link` lists the interfaces"))?;
        let mac = interface.mac.unwrap_or_default();
        if interface.is_loopback() || mac == MacAddr::zero() {
            return Err(no("is not an Ethernet interface; `ip link` shows those as link/ether"));
        }
        let prefixes = interface.ips.iter();
        let prefixes =
            prefixes.map(|network| Prefix { address: network.ip(), length: network.prefix() });
        let station = spec.station(mac, prefixes.collect());
        let addresses: Vec<_> = station.addresses.iter().map(|own| own.address).collect();
        if addresses.is_empty() && station.dhcp.is_none() {
            let why = "has no address to borrow; give the device its own with ip=ADDRESS/LENGTH";
            return Err(no(why));
        }
        let mac = station.mac;
        let mut device =
            Self::on(Some(&interface), spec.name(), Kind::Raw(station, spec.xdp), &addresses);
        device.sys_image_guid = Guid::of_mac(mac.octets());
        Ok(device)
    }

    /// Device with this address alone.
    ///
    /// # Errors
    /// [`OpenError::Bind`] unless local.
    pub fn at(ip: IpAddr) -> Result<Self, OpenError> {
        let has = |interface: &NetworkInterface| {
            interface.ips.iter().any(|own| own.ip() == ip)
                || ip.is_loopback() && interface.is_loopback()
        };
        let interface = find_interface(has).ok_or(BindError::NotLocal(ip))?;
        Ok(Self::on(Some(&interface), format!("udp:{ip}"), Kind::Address, &[ip]))
    }

    /// Device for connections from `local`: loopback, or one with that address.
    ///
    /// # Errors
    /// [`OpenError::Bind`] unless local.
    pub fn for_local(local: IpAddr) -> Result<Self, OpenError> {
        if local.is_loopback() && local.is_ipv4() {
            return Ok(Self::loopback(find_interface(NetworkInterface::is_loopback).as_ref()));
        }
        Self::at(local)
    }

    /// Prefers this address, if the kind has a choice.
    pub(crate) fn preferring(mut self, ip: IpAddr) -> Self {
        if self.takes_loopback_address() && ip.is_ipv4() && ip.is_loopback() {
            self.kind = Kind::Address;
            self.addresses = vec![DeviceAddress { ip, interface: self.index }];
        }
        self
    }

    /// Avoids this address, if the kind has a choice.
    pub(crate) fn avoiding(mut self, ip: IpAddr) -> Self {
        if let Kind::Loopback(but) = &mut self.kind {
            *but = Some(ip);
        }
        self
    }

    /// Name.
    #[must_use]
    pub fn name(&self) -> &str {
        &self.name
    }

    pub(crate) const fn link_mtu(&self) -> u32 {
        self.state.link_mtu
    }

    /// Interface name.
    #[must_use]
    pub fn interface(&self) -> Option<&str> {
        self.interface.as_deref()
    }

    /// Addresses; the loopback device takes one at opening.
    #[must_use]
    pub fn addresses(&self) -> &[DeviceAddress] {
        &self.addresses
    }

    /// GID table after opening (`ibv_query_gid`): link-local, IPv4, other IPv6.
    ///
    /// A first IPv4 address has the second entry, too.
    #[must_use]
    pub fn gids(&self) -> Vec<Gid> {
        self.gids_as(None)
    }

    /// True if a DHCP server leases an address at opening.
    #[must_use]
    pub const fn leases_address(&self) -> bool {
        matches!(self.kind, Kind::Raw(StationConfig { dhcp: Some(_), .. }, _))
    }

    /// True if opening takes an address of 127.0.0.0/24.
    #[must_use]
    pub const fn takes_loopback_address(&self) -> bool {
        matches!(self.kind, Kind::Loopback(_))
    }

    /// Port as listed (`ibv_query_port`); [`Context::query_port`] has the present state.
    #[must_use]
    pub fn port(&self) -> PortAttr {
        PortAttr { roce_v1: self.speaks_roce_v1(), ..PortAttr::of(&self.state) }
    }

    /// Attributes with these limits (`ibv_query_device_ex`); the node GUID is zero until opening.
    #[must_use]
    pub fn attributes(&self, limits: Limits) -> DeviceAttr {
        DeviceAttr::new(limits, Guid::default(), self.sys_image_guid)
    }

    /// Opens the device (`ibv_open_device`).
    ///
    /// The port follows the interface's state and MTU, and an interface device also the addresses.
    /// [`published_counters`](crate::published_counters) has the counters.
    ///
    /// Up to 62 processes of one user share an address, except with [`OpenOptions::sockets_only`]
    /// or [`Progress::Manual`]. The first process receives for all; this call waits up to 1 s for
    /// its response.
    ///
    /// # Errors
    /// See [`OpenError`].
    pub fn open(&self, options: OpenOptions) -> Result<Context, OpenError> {
        let explain = options.explain;
        self.open_with(options).inspect_err(|error| {
            if let Some(format) = explain {
                let call = format!("ibv_open_device {}", self.name);
                diagnosis::report_call(format, &call, error.explain());
            }
        })
    }

    fn open_with(&self, options: OpenOptions) -> Result<Context, OpenError> {
        let link_mtu = self.state.link_mtu;
        if Mtu::fitting(link_mtu).is_none() {
            return Err(OpenError::MtuTooSmall { device: self.name.clone(), link_mtu });
        }
        let shards = options.shard_count();
        let (mut link, watch) = self.open_watched(&options)?;
        let shares = link.sharing().is_some_and(|sharing| sharing.partition().is_some());
        self.can_have(shards, shares, options.progress)?;
        let bytes = link.receive_buffer().unwrap_or(usize::MAX);
        if let Some(advice) = options.sockets().advice(bytes) {
            warn!(device = self.name, bytes, "the receive buffer is {advice}");
        }
        let layout = self.gid_layout(options.profile.as_ref());
        let shown = layout.table(link.addresses()).iter().map(Gid::to_string).collect();
        let publisher = Publisher::new(&self.name, shown).map(|publisher| Box::new(publisher) as _);
        let files = CounterFiles::of(&self.name, options.profile.as_ref());
        let publishers = publisher.into_iter().chain(files.map(|files| Box::new(files) as _));
        let publishers = publishers.collect();
        let sys_image_guid = self.sys_image_guid;
        let mut opening = Opening::new(self.name.clone(), self.port(), options)?;
        let addresses = link.addresses();
        let mut first = Some((link, watch));
        for publishers in totals::parts(publishers, shards) {
            let (link, watch) =
                first.take().map_or_else(|| self.open_beside(&addresses, &opening.options), Ok)?;
            let layout = Some(layout);
            opening.start(link, ShardParts { watch, publishers, sys_image_guid, layout })?;
        }
        Ok(opening.finish())
    }

    fn can_have(&self, shards: usize, shares: bool, progress: Progress) -> Result<(), OpenError> {
        let why = match progress {
            _ if shards == 1 => return Ok(()),
            _ if shards > MAX_SHARDS => "at most 16 are possible",
            Progress::Manual => "the program drives its engine, and shards have threads",
            _ if matches!(self.kind, Kind::Raw(..)) => "it builds its own frames",
            _ if shares => return Ok(()),
            Progress::Automatic => "the system refuses to share its addresses",
        };
        Err(OpenError::Shards { device: self.name.clone(), why })
    }

    /// Opens a further shard's link and watch at the first shard's addresses.
    fn open_beside(
        &self,
        addresses: &[IpAddr],
        options: &OpenOptions,
    ) -> Result<Watched, OpenError> {
        let interface = |ip| {
            let known = self.addresses.iter().find(|address| address.ip == ip);
            known.map_or(0, |address| address.interface)
        };
        let addresses: Vec<_> = addresses.iter().map(|&ip| (ip, interface(ip))).collect();
        let locality = options.locality(random_seed()?[0]);
        let link = UdpLink::bind(&addresses, locality, options.sockets())?;
        self.watched(link, options)
    }

    /// Opens the link alone, for programs that build and parse packets.
    ///
    /// The link takes times of [`link::now`](crate::link::now).
    ///
    /// # Errors
    /// See [`OpenError`].
    pub fn open_link(&self, options: &OpenOptions) -> Result<Box<dyn Link>, OpenError> {
        self.open_watched(options).map(|(link, _)| link)
    }

    fn open_watched(&self, options: &OpenOptions) -> Result<Watched, OpenError> {
        let locality = || options.random_seed().map(|seed| options.locality(seed[0]));
        let sockets = options.sockets();
        let link = match &self.kind {
            Kind::Raw(station, xdp) => return self.open_raw(station, *xdp, options),
            Kind::Loopback(but) => UdpLink::bind_loopback(*but, locality()?, sockets)?,
            Kind::Address | Kind::Interface => UdpLink::bind(&self.places(), locality()?, sockets)?,
        };
        self.watched(link, options)
    }

    fn open_raw(
        &self,
        station: &StationConfig,
        xdp: Option<XdpOptions>,
        options: &OpenOptions,
    ) -> Result<Watched, OpenError> {
        let interface = self.interface.as_deref().unwrap_or_default();
        let watch = Watch::new(self.index, Follows::State)?;
        let mbps = self.state.speed.unwrap_or(station.mbps);
        let dhcp = station.dhcp.map(|_| options.random_seed()).transpose()?;
        let station = StationConfig { mbps, dhcp, ..station.clone() };
        let (sockets, mtu) = (options.sockets(), self.state.link_mtu);
        let link = RawLink::open(interface, self.index, station, &sockets, xdp, mtu)?;
        Ok((Box::new(link), Some(watch)))
    }

    /// Addresses with their interfaces.
    fn places(&self) -> Vec<(IpAddr, u32)> {
        self.addresses.iter().map(|address| (address.ip, address.interface)).collect()
    }

    fn follows(&self) -> Follows {
        let first = self.addresses.first().map(|address| address.ip);
        match (&self.kind, first) {
            (Kind::Loopback(_), _) => Follows::State,
            (Kind::Address, Some(ip)) if ip.is_loopback() => Follows::State,
            (Kind::Address, Some(ip)) => Follows::Only(ip),
            _ => Follows::All,
        }
    }

    fn watched(&self, mut link: UdpLink, options: &OpenOptions) -> Result<Watched, OpenError> {
        if options.faults == FaultPlan::default() && !live::is_on() {
            link.set_trusted();
        }
        let watch = if self.index == 0 { None } else { self.watch()? };
        for error in &link.left_out {
            if let BindError::NoIpv6 { source, .. } = error {
                NO_IPV6.refused(source);
                continue;
            }
            warn!(device = self.name, %error, "an address is not usable yet");
            watch.iter().for_each(|watch| watch.await_end_of(error));
        }
        Ok((Box::new(link), watch))
    }

    /// `None` if the system refuses netlink.
    fn watch(&self) -> io::Result<Option<Watch>> {
        match Watch::new(self.index, self.follows()) {
            Ok(watch) => Ok(Some(watch)),
            Err(error) if is_refusal(&error) => {
                NO_NETLINK.refused(&error);
                Ok(None)
            }
            Err(error) => Err(error),
        }
    }

    /// Opens the device unpublished and unwatched, with this partition if free.
    pub(crate) fn open_unpublished(
        &self,
        partition: Option<IdPartition>,
        options: OpenOptions,
    ) -> Result<Context, OpenError> {
        let partition = partition.map_or(0, |partition| partition.get() - 1);
        let locality = Locality::SharedAddress { partition };
        let link = UdpLink::bind(&self.places(), locality, options.sockets())?;
        let parts = ShardParts { sys_image_guid: self.sys_image_guid, ..ShardParts::default() };
        open_link(self.name.clone(), self.port(), Box::new(link), parts, options)
    }

    /// Opens a device on the program's link.
    ///
    /// The port is active with payloads up to `mtu`. The GID table has the link's addresses.
    ///
    /// ```
    /// use std::{
    ///     io,
    ///     net::IpAddr,
    ///     os::{fd::{AsFd, BorrowedFd}, unix::net::UnixDatagram},
    /// };
    ///
    /// use roce_provider::{
    ///     Device, OpenOptions,
    ///     link::{BATCH, Datagram, Link},
    ///     transport::{
    ///         adapter::{SourcePort, Transmit, TransmitLimits},
    ///         addr::{Mtu, ROCE_UDP_PORT},
    ///         time::Instant,
    ///         wire::{FrameFields, Ident, NetHeader},
    ///     },
    /// };
    ///
    /// /// A wire between two devices: one end of a pair of sockets.
    /// struct Wire {
    ///     own: IpAddr,
    ///     peer: IpAddr,
    ///     socket: UnixDatagram,
    /// }
    ///
    /// impl Link for Wire {
    ///     fn addresses(&self) -> Vec<IpAddr> {
    ///         vec![self.own]
    ///     }
    ///
    ///     fn limits(&self) -> TransmitLimits {
    ///         TransmitLimits::SINGLE // every run is one datagram
    ///     }
    ///
    ///     fn source_port(&self) -> SourcePort {
    ///         SourcePort::Fixed(ROCE_UDP_PORT)
    ///     }
    ///
    ///     fn send(&mut self, _: Instant, bytes: &[u8], runs: &[Transmit]) -> io::Result<usize> {
    ///         let to_peer = runs.iter().enumerate().filter(|(_, run)| run.dst == self.peer);
    ///         for (index, run) in to_peer {
    ///             match self.socket.send(&bytes[run.range.clone()]) {
    ///                 Ok(_) => {}
    ///                 Err(error) if error.kind() == io::ErrorKind::WouldBlock => return Ok(index),
    ///                 Err(error) if index == 0 => return Err(error),
    ///                 Err(_) => return Ok(index), // the next call returns it
    ///             }
    ///         }
    ///         Ok(runs.len())
    ///     }
    ///
    ///     fn blocked(&self) -> Option<BorrowedFd<'_>> {
    ///         Some(self.socket.as_fd())
    ///     }
    ///
    ///     fn receive(
    ///         &mut self,
    ///         _: Instant,
    ///         sink: &mut dyn FnMut(&Datagram<'_>),
    ///     ) -> io::Result<usize> {
    ///         let net = NetHeader {
    ///             src: self.peer,
    ///             dst: self.own,
    ///             src_port: ROCE_UDP_PORT,
    ///             traffic_class: 0,
    ///             hop_limit: 64,
    ///             ident: Ident::Known { id: 0, dont_fragment: true },
    ///             frame: FrameFields::default(),
    ///         };
    ///         let mut buffer = [0; 8192];
    ///         for count in 0..BATCH {
    ///             match self.socket.recv(&mut buffer) {
    ///                 Ok(length) => sink(&Datagram::new(&net, &buffer[..length])),
    ///                 Err(error) if error.kind() == io::ErrorKind::WouldBlock => return Ok(count),
    ///                 Err(error) => return Err(error),
    ///             }
    ///         }
    ///         Ok(BATCH)
    ///     }
    ///
    ///     fn descriptors(&self) -> Vec<BorrowedFd<'_>> {
    ///         vec![self.socket.as_fd()]
    ///     }
    /// }
    ///
    /// # fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// let (one, two) = UnixDatagram::pair()?;
    /// one.set_nonblocking(true)?;
    /// two.set_nonblocking(true)?;
    /// let (a, b) = ("10.0.0.1".parse()?, "10.0.0.2".parse()?);
    /// let wires = [
    ///     Wire { own: a, peer: b, socket: one },
    ///     Wire { own: b, peer: a, socket: two },
    /// ];
    /// for wire in wires {
    ///     let context = Device::with_link("wire", wire, Mtu::B4096, OpenOptions::default())?;
    ///     assert_eq!((context.name(), context.gids().len()), ("wire", 1));
    /// }
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// [`OpenError::System`], [`OpenError::Capture`]; [`OpenError::Shards`].
    pub fn with_link(
        name: &str,
        link: impl Link + 'static,
        mtu: Mtu,
        options: OpenOptions,
    ) -> Result<Context, OpenError> {
        if options.shards.is_some_and(|shards| shards > 1) {
            let why = "its link is the program's";
            return Err(OpenError::Shards { device: name.into(), why });
        }
        let port = PortAttr::new(true, mtu);
        open_link(name.into(), port, Box::new(link), ShardParts::default(), options)
    }

    /// Opens the device without a network: port down, no GIDs.
    ///
    /// For inspection while another program has its addresses.
    ///
    /// # Errors
    /// [`OpenError::System`].
    pub fn open_down(&self, options: OpenOptions) -> Result<Context, OpenError> {
        let port = PortAttr { active: false, ..self.port() };
        let parts = ShardParts { sys_image_guid: self.sys_image_guid, ..ShardParts::default() };
        open_link(self.name.clone(), port, Box::new(NullLink), parts, options)
    }
}

#[cfg(test)]
pub(crate) mod tests;
