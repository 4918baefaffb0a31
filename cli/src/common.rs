//! Options and waiting of the librdmacm-style tools.

use std::{
    net::{IpAddr, Ipv6Addr, SocketAddr},
    path::{Path, PathBuf},
    time::Duration,
};

use clap::ValueEnum;
use roce::{
    CompletionChannel, CompletionQueue, Context, Device, NotifyKind, OpenError, OpenOptions,
    ProtectionDomain, QpCaps, QueuePair, Wc,
    cm::{
        AddrInfoHints, CmEvent, CmId, CmQpAttr, DeviceSource, EventChannel, EventKind, PortSpace,
        RejectReason, Status, getaddrinfo, set_device_source,
    },
    devices,
    transport::cm::without_padding,
};
use rustix::{
    event::{PollFd, PollFlags, Timespec, poll},
    io::Errno,
};

use crate::failure::Failure;

const TIMEOUT: Duration = Duration::from_secs(2);

/// The device, and the capture and faults of its packets.
#[derive(clap::Args)]
pub(crate) struct LinkArgs {
    /// Name from `roce devinfo`, or udp:ADDRESS
    ///
    /// Also raw:INTERFACE[,ip=ADDRESS/LENGTH…] or xdp:…. By default the device that fits the
    /// addresses.
    #[arg(long, value_name = "DEV")]
    device: Option<String>,
    /// Capture every packet into this pcapng file
    #[arg(long, value_name = "FILE", requires = "device")]
    pcap: Option<PathBuf>,
    /// Damage packets: "drop 3%"
    ///
    /// The device's packets, in both directions; "drop qp 1 nth 2" for the second packet of
    /// connection management. See docs/guide/faults.md.
    #[arg(long, value_name = "FAULTS", requires = "device")]
    fault: Vec<String>,
}

/// Events of a tool's ids, and the device that they use if one is named.
pub(crate) struct Events {
    pub(crate) channel: EventChannel,
    device: Option<Context>,
}

impl LinkArgs {
    /// Opens the named device; ids then find it by address.
    pub(crate) fn open(&self) -> Result<Events, Failure> {
        let options = options(self.pcap.as_deref(), &self.fault)?;
        set_device_source(&ByEnvironment);
        let device = match &self.device {
            Some(spec) => Some(Device::named(spec)?.open(options)?),
            None => None,
        };
        Ok(Events { channel: EventChannel::new()?, device })
    }
}

impl Events {
    pub(crate) fn use_device(&self, id: &CmId) -> Result<(), Failure> {
        Ok(self.device.as_ref().map_or(Ok(()), |device| id.set_context(device))?)
    }

    /// No other id may have events meanwhile.
    pub(crate) fn resolve(
        &self,
        id: &CmId,
        src: Option<SocketAddr>,
        dst: SocketAddr,
    ) -> Result<(), Failure> {
        id.resolve_addr(src, dst, TIMEOUT)?;
        self.expect(EventKind::AddrResolved, dst)?;
        id.resolve_route(TIMEOUT)?;
        self.expect(EventKind::RouteResolved, dst)?;
        Ok(())
    }

    /// Another event ends the tool.
    pub(crate) fn expect(&self, kind: EventKind, peer: SocketAddr) -> Result<CmEvent, Failure> {
        let event = self.channel.wait(None)?;
        if event.kind() == kind && event.status() == Status::Success {
            Ok(event)
        } else {
            Err(unexpected(&event, Some(peer)))
        }
    }

    /// The next connection request.
    pub(crate) fn next_request(&self) -> Result<CmEvent, Failure> {
        loop {
            let event = self.channel.wait(None)?;
            match event.kind() {
                EventKind::ConnectRequest => return Ok(event),
                EventKind::AddrChange => {}
                _ => return Err(unexpected(&event, None)),
            }
        }
    }
}

struct ByEnvironment;

impl DeviceSource for ByEnvironment {
    fn devices(&self) -> Vec<Device> {
        devices()
    }

    fn open(&self, device: &Device) -> Result<Context, OpenError> {
        // `LinkArgs::open` has refused invalid options.
        device.open(OpenOptions::from_environment().unwrap_or_default())
    }
}

pub(crate) fn options(pcap: Option<&Path>, faults: &[String]) -> Result<OpenOptions, Failure> {
    let mut options = OpenOptions::from_environment()?;
    options.pcap = pcap.map(Path::to_owned).or(options.pcap);
    if !faults.is_empty() {
        options.faults = faults.join(", ").parse()?;
    }
    Ok(options)
}

/// Addresses of a tool with a server and a client, and the service of its packets.
#[derive(clap::Args)]
pub(crate) struct EndArgs {
    /// The server; without it, this is the server
    #[arg(short, value_name = "SERVER")]
    server: Option<String>,
    /// This side's address; default: every IPv4 address
    ///
    /// `-b ::0` for every IPv6 address.
    #[arg(short, value_name = "ADDRESS")]
    bind: Option<String>,
    /// Format of the addresses
    #[arg(short, value_enum, default_value_t = Format::Name)]
    format: Format,
    /// Type of service of the packets
    #[arg(short = 't', value_name = "TOS")]
    tos: Option<u8>,
}

impl EndArgs {
    pub(crate) fn id(&self, events: &Events, space: PortSpace) -> Result<CmId, Failure> {
        let id = events.channel.create_id(space);
        events.use_device(&id)?;
        if let Some(tos) = self.tos {
            id.set_tos(tos);
        }
        Ok(id)
    }

    pub(crate) fn server(&self, port: u16) -> Result<Option<SocketAddr>, Failure> {
        self.server.as_deref().map(|server| self.format.address(server, port)).transpose()
    }

    pub(crate) fn own(&self) -> Result<Option<SocketAddr>, Failure> {
        self.bind.as_deref().map(|own| self.format.address(own, 0)).transpose()
    }

    pub(crate) fn listen(&self, listener: &CmId, port: u16) -> Result<(), Failure> {
        listener
            .bind_addr(self.format.address(self.bind.as_deref().unwrap_or("0.0.0.0"), port)?)?;
        Ok(listener.listen(0)?)
    }
}

/// Number and size of the messages.
#[derive(clap::Args)]
pub(crate) struct MessageArgs {
    /// Messages for each queue pair
    #[arg(short = 'C', value_name = "MESSAGES", default_value_t = 10)]
    #[arg(value_parser = clap::value_parser!(u32).range(..=16_384))]
    pub(crate) message_count: u32,
    /// Bytes per message
    #[arg(short = 'S', value_name = "SIZE", default_value_t = 100)]
    pub(crate) message_size: u32,
}

/// Format of an address on the command line.
#[derive(Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
enum Format {
    /// A name, or an address of either family
    Name,
    /// An IPv4 address
    Ip,
    /// An IPv6 address
    Ipv6,
    /// A GID: an IPv6 address, or ::ffff: and an IPv4 one
    Gid,
}

impl Format {
    fn address(self, host: &str, port: u16) -> Result<SocketAddr, Failure> {
        let ip = match self {
            Self::Name => return address(host, port),
            Self::Ip => host.parse().ok().map(IpAddr::V4),
            Self::Ipv6 => host.parse().ok().map(IpAddr::V6),
            Self::Gid => host.parse().ok().map(|gid: Ipv6Addr| gid.to_canonical()),
        };
        let kind = self.to_possible_value();
        let kind = kind.as_ref().map_or("", |value| value.get_name());
        let ip = ip.ok_or_else(|| format!("{host} is not an address of the format {kind}; see -f"));
        Ok(SocketAddr::new(ip?, port))
    }
}

/// Port space of datagrams; the stock tools take its number.
#[derive(Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
pub(crate) enum DatagramSpace {
    #[value(name = "0x111", alias = "0x0111", alias = "udp")]
    Udp,
    #[value(name = "0x2", alias = "0x0002", alias = "ipoib")]
    Ipoib,
}

impl From<DatagramSpace> for PortSpace {
    fn from(space: DatagramSpace) -> Self {
        match space {
            DatagramSpace::Udp => Self::Udp,
            DatagramSpace::Ipoib => Self::Ipoib,
        }
    }
}

pub(crate) fn address(host: &str, port: u16) -> Result<SocketAddr, Failure> {
    let found = getaddrinfo(Some(host), Some(&port.to_string()), &AddrInfoHints::default());
    let found =
        found.map_err(|error| format!("{host} is not a host name or IP address: {error}"))?;
    let dst = found.iter().find_map(|info| info.dst);
    Ok(dst.ok_or_else(|| format!("{host} resolves to no address"))?)
}

/// Capacities for requests of one SGE, without inline data.
pub(crate) const fn caps(max_send_wr: u32, max_recv_wr: u32) -> QpCaps {
    QpCaps { max_send_wr, max_recv_wr, max_send_sge: 1, max_recv_sge: 1, max_inline_data: 0 }
}

/// The id's queue pair, with one completion queue.
pub(crate) fn create_qp(
    id: &CmId,
    pd: Option<&ProtectionDomain>,
    cq: &CompletionQueue,
    caps: QpCaps,
) -> Result<QueuePair, Failure> {
    let (send_cq, recv_cq) = (Some(cq.clone()), Some(cq.clone()));
    id.create_qp(pd, &CmQpAttr { send_cq, recv_cq, caps, ..CmQpAttr::default() })?;
    Ok(id.qp().ok_or("the id has no queue pair")?)
}

pub(crate) fn unexpected(event: &CmEvent, peer: Option<SocketAddr>) -> Failure {
    let (kind, status) = (event.kind(), event.status());
    let peer = peer
        .or(event.id().peer_addr())
        .map_or_else(|| "the peer".to_owned(), |peer| peer.to_string());
    let advice = match (kind, status) {
        (EventKind::Rejected, Status::Rejected(RejectReason::INVALID_SERVICE_ID))
        | (EventKind::Unreachable, Status::Sidr(1)) => {
            format!("nobody listens at {peer}; start the server there first")
        }
        (EventKind::Rejected, _) | (EventKind::Unreachable, Status::Sidr(_)) => {
            format!("{peer} refused the connection; see its output")
        }
        (EventKind::Unreachable, _) => {
            format!("{peer} does not respond; check that it has an RDMA device with this address")
        }
        (EventKind::AddrError | EventKind::RouteError, _) => {
            format!("there is no route to {peer}; see `ip route`")
        }
        (EventKind::Disconnected, _) => format!("{peer} closed the connection; see its output"),
        _ => "the connection is closed".to_owned(),
    };
    format!("{kind}, error {}: {status}: {advice}{}", status.code(), words(event.private_data()))
        .into()
}

fn words(private_data: &[u8]) -> String {
    let used = without_padding(private_data);
    match (used, str::from_utf8(used)) {
        ([], _) => String::new(),
        (_, Ok(text)) if !text.contains(char::is_control) => format!("; it says {text:?}"),
        (data, _) => format!("; it says {data:02x?}"),
    }
}

/// Completions and connection events.
pub(crate) struct EventLoop {
    pub(crate) cq: CompletionQueue,
    completions: CompletionChannel,
    pub(crate) events: EventChannel,
}

pub(crate) enum Ready {
    Done(Wc),
    Event(CmEvent),
}

impl EventLoop {
    pub(crate) fn new(
        context: &Context,
        size: usize,
        events: &EventChannel,
    ) -> Result<Self, Failure> {
        let completions = context.create_channel()?;
        let cq = context.create_cq(size, Some(&completions))?;
        Ok(Self { cq, completions, events: events.clone() })
    }

    /// Completions come first: a connection's last completions precede its end.
    pub(crate) fn next(&self) -> Result<Ready, Failure> {
        loop {
            if let Some(ready) = self.now() {
                return Ok(ready);
            }
            self.cq.req_notify(NotifyKind::Next);
            if let Some(ready) = self.now() {
                return Ok(ready);
            }
            let mut both = [
                PollFd::new(&self.completions, PollFlags::IN),
                PollFd::new(&self.events, PollFlags::IN),
            ];
            wait(&mut both, None)?;
            while self.completions.poll().is_some() {}
        }
    }

    fn now(&self) -> Option<Ready> {
        self.cq.poll_one().map(Ready::Done).or_else(|| self.events.poll().map(Ready::Event))
    }
}

/// Returns when a descriptor is ready, the time is over, or a signal has come.
pub(crate) fn wait(descriptors: &mut [PollFd<'_>], time: Option<Duration>) -> Result<(), String> {
    let time = time.and_then(|time| Timespec::try_from(time).ok()); // forever if too long
    match poll(descriptors, time.as_ref()) {
        Ok(_) | Err(Errno::INTR) => Ok(()),
        Err(error) => Err(format!("cannot wait: {error}")),
    }
}

/// After losses, waits for retransmissions of the peer's last requests.
pub(crate) fn linger(context: &Context) {
    let counters = context.counters();
    if counters.retransmitted_packets + counters.duplicate_requests + counters.sequence_naks_sent
        > 0
    {
        std::thread::sleep(Duration::from_millis(500));
    }
}

/// 0 if unknown.
pub(crate) fn resident_bytes() -> u64 {
    let pages = std::fs::read_to_string("/proc/self/statm")
        .ok()
        .and_then(|text| text.split(' ').nth(1)?.parse::<u64>().ok());
    pages.unwrap_or(0) * rustix::param::page_size() as u64
}

#[cfg(test)]
mod tests {
    use super::words;

    #[test]
    fn words_of_a_refusal() {
        assert_eq!(words(&[]), "");
        assert_eq!(words(&[0; 148]), "");
        assert_eq!(words(b"no room\0\0"), "; it says \"no room\"");
        assert_eq!(words(&[0, 1, 0xFF, 0]), "; it says [00, 01, ff]");
    }
}
