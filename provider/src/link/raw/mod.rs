//! The `raw` and `xdp` links: Ethernet frames by packet socket (packet(7), CAP_NET_RAW) or AF_XDP.

mod filter;
mod packets;
mod socket;
mod xdp;

use std::{
    collections::{BTreeMap, VecDeque},
    io,
    net::{IpAddr, SocketAddr},
    os::fd::BorrowedFd,
    thread,
    time::Duration,
};

use roce_transport::{
    adapter::{SourcePort, Transmit, TransmitLimits},
    time::Instant,
    wire::NetHeader,
};
use socket2::{Domain, InterfaceIndexOrAddress, Protocol, Socket, Type};
use tracing::{info, warn};

use super::{
    Datagram, DatagramMeta, DatagramRun, FrameLink, Link, MAX_RUN, Membership, MulticastLink,
    Preparation, Prepared, RunSink, SocketOptions, no_address_of_family, udp,
};
use crate::{bind::BindError, clock, readiness::wait};
use packets::RawPackets;
use roce_ethernet::{
    Assignment, FrameCounters, Hop, Lease, MacAddr, Station, StationConfig, StationEvent,
};
use socket::{Arrived, PacketSocket};
use xdp::XdpSocket;
pub(crate) use xdp::{XdpMode, XdpOptions};

const MESSAGES: usize = 64;
/// Most queued datagrams from this device to itself.
const LOOPBACK_QUEUE: usize = 4096;
/// Longest wait for a lease: four requests and the address's probes.
const LEASING: Duration = Duration::from_secs(10);
/// Longest wait for a port: the kernel closes a killed process's packet socket, slowly, before the
/// process's guards.
const GUARDING: Duration = Duration::from_secs(1);

/// With its own addresses, the link is a separate host on the interface's network. Otherwise the
/// link borrows the interface's addresses, which the kernel keeps using.
pub(crate) struct RawLink {
    interface: String,
    index: u32,
    /// The interface's.
    mtu: u32,
    /// Carries RoCE packets; `socket` carries all else.
    xdp: Option<XdpSocket>,
    socket: PacketSocket,
    packets: RawPackets,
    station: Station,
    /// Datagrams to this device itself.
    loopback: VecDeque<(NetHeader, Vec<u8>)>,
    leased: Option<IpAddr>,
    /// The queue of paused frames is full.
    is_paused_queue_full: bool,
    /// The queue of paused raw packets is full.
    is_packet_queue_full: bool,
    /// Sockets that make the interface accept groups' frames.
    groups: BTreeMap<IpAddr, Socket>,
    /// Sockets on port 4791 of borrowed addresses, against "port unreachable" and other programs.
    _guards: Vec<Socket>,
    /// A forked copy releases nothing.
    process: u32,
}

impl RawLink {
    /// Waits 1 s to probe its own addresses, up to 10 s for a lease, up to 1 s for a borrowed
    /// address's taken port. `mtu`: the interface's.
    ///
    /// # Errors
    /// [`BindError::NoNetRaw`], [`BindError::Duplicate`], [`BindError::NoLease`],
    /// [`BindError::Interface`], [`BindError::Xdp`], or [`BindError::Taken`] if another program has
    /// a borrowed address's port.
    pub(crate) fn open(
        interface: &str,
        index: u32,
        mut config: StationConfig,
        options: &SocketOptions,
        xdp: Option<XdpOptions>,
        mtu: u32,
    ) -> Result<Self, BindError> {
        let wrong = |source: io::Error| match source.raw_os_error() {
            Some(libc::EPERM | libc::EACCES) => BindError::NoNetRaw(interface.into()),
            _ => BindError::Interface { interface: interface.into(), source },
        };
        let guards = if config.replies { Vec::new() } else { guards(&mut config, index)? };
        let socket = PacketSocket::open(index, &config, options).map_err(wrong)?;
        let open = |xdp| XdpSocket::open((interface, index), mtu, &config, options, xdp);
        let refused = |why| BindError::Xdp { interface: interface.into(), why };
        let xdp = xdp.map(open).transpose().map_err(refused)?;
        let packets = RawPackets::open(index, config.mac, options).map_err(wrong)?;
        let mut link = Self {
            packets,
            interface: interface.into(),
            index,
            mtu,
            groups: BTreeMap::new(),
            xdp,
            socket,
            station: Station::new(config, clock::now()),
            loopback: VecDeque::new(),
            leased: None,
            is_paused_queue_full: false,
            is_packet_queue_full: false,
            _guards: guards,
            process: std::process::id(),
        };
        link.await_assignment().map_err(wrong)?;
        link.poll_addresses(); // the first addresses are no change
        match (link.station.assignment(), link.station.lease_error()) {
            (Assignment::Taken { address, mac }, _) => Err(BindError::Duplicate { address, mac }),
            (Assignment::Probing, Some(error)) => {
                let (interface, seconds) = (interface.into(), LEASING.as_secs());
                Err(BindError::NoLease { interface, seconds, error })
            }
            (Assignment::Probing | Assignment::Assigned, _) => Ok(link),
        }
    }

    fn await_assignment(&mut self) -> io::Result<()> {
        let end = clock::now().plus(LEASING);
        loop {
            let now = clock::now();
            self.look();
            self.receive(now, &mut |_| {})?;
            if self.station.assignment() != Assignment::Probing || end <= now {
                return Ok(());
            }
            let due = self.station.poll_timeout().map_or(end, |due| due.clamp(now, end));
            wait(&self.descriptors(), Some(due.since(now)))?;
        }
    }

    /// `false`: the socket or the queue of paused frames is full.
    fn send_run(
        &mut self,
        now: Instant,
        mac: MacAddr,
        run: &Transmit,
        bytes: &[u8],
    ) -> io::Result<bool> {
        if self.station.holds(now, run) {
            let held = self.station.hold(mac, run, bytes);
            self.is_paused_queue_full = !held;
            return Ok(held);
        }
        let payload = run.payload(bytes);
        let mut headers = self.station.headers(mac, run, payload.len());
        match &mut self.xdp {
            Some(xdp) => xdp.send(&self.socket, &headers, payload),
            None => self.socket.send_run(run, &mut headers, payload),
        }
    }

    /// Loops a run back; `false`: full.
    fn loop_back(&mut self, run: &Transmit, bytes: &[u8]) -> bool {
        if !self.has_loopback_room(run) {
            return false;
        }
        let datagrams = run.datagrams(bytes);
        self.loopback.extend(datagrams.map(|(net, payload)| (net, payload.to_vec())));
        true
    }

    /// Also loops the run back: the wire returns no copy.
    fn send_to_own_group(
        &mut self,
        now: Instant,
        mac: MacAddr,
        run: &Transmit,
        bytes: &[u8],
    ) -> io::Result<bool> {
        let sent = self.has_loopback_room(run) && self.send_run(now, mac, run, bytes)?;
        Ok(sent && self.loop_back(run, bytes))
    }

    fn has_loopback_room(&self, run: &Transmit) -> bool {
        self.loopback.len() + run.count() <= LOOPBACK_QUEUE
    }

    /// Sends frames whose pause has ended, while room is left.
    fn release(&mut self, now: Instant) {
        let Self { station, xdp, socket, .. } = self;
        while let Some(frame) = station.released(now) {
            if matches!(send_frame(xdp, socket, frame), Ok(false)) {
                break;
            }
            // An unsendable frame is lost, as on a wire.
            station.pop_released(now);
        }
    }

    fn flush(&mut self) {
        while let Some(frame) = self.station.poll_frame() {
            let _ = send_frame(&mut self.xdp, &self.socket, &frame);
        }
        self.xdp.iter_mut().for_each(XdpSocket::submit);
        while let Some(event) = self.station.poll_event() {
            let interface = &self.interface;
            match event {
                StationEvent::Conflict { address, mac } => {
                    warn!(interface, %address, %mac, "another host claims the device's address");
                }
                StationEvent::PathMtu { to, mtu } => {
                    warn!(interface, %to, mtu, "packets are too long for the path; choose a smaller path MTU");
                }
                StationEvent::Leased { address, server } => {
                    info!(interface, %address, %server, "a DHCP server has leased an address");
                }
                StationEvent::LeaseLost { address } => {
                    warn!(interface, %address, "the lease of the device's address ended");
                }
            }
        }
    }
}

/// Returns `false` if full; on an error, the frame is lost.
fn send_frame(
    xdp: &mut Option<XdpSocket>,
    socket: &PacketSocket,
    frame: &[u8],
) -> io::Result<bool> {
    match xdp {
        Some(xdp) => xdp.send(socket, frame, &[]),
        None => socket.send(frame, &[]),
    }
}

/// Holds the port of each borrowed address. Omits addresses that the interface lacks or still
/// probes.
fn guards(config: &mut StationConfig, interface: u32) -> Result<Vec<Socket>, BindError> {
    let (mut guards, mut missing) = (Vec::new(), None);
    let end = clock::now().plus(GUARDING);
    for own in std::mem::take(&mut config.addresses) {
        let guard = loop {
            match udp::guard(own.address, interface) {
                Err(BindError::Taken(_)) if clock::now() < end => {
                    thread::sleep(Duration::from_millis(10));
                }
                outcome => break outcome,
            }
        };
        match guard {
            Ok(guard) => {
                guards.push(guard);
                config.addresses.push(own);
            }
            Err(error @ BindError::NotLocal(_)) => missing = Some(error),
            Err(error) => return Err(error),
        }
    }
    match missing {
        Some(error) if guards.is_empty() => Err(error),
        _ => Ok(guards),
    }
}

impl Link for RawLink {
    fn addresses(&self) -> Vec<IpAddr> {
        self.station.config().addresses.iter().map(|own| own.address).collect()
    }

    fn poll_addresses(&mut self) -> bool {
        let leased = self.station.lease().map(|lease| lease.address.address);
        std::mem::replace(&mut self.leased, leased) != leased
    }

    fn lease(&self) -> Option<Lease> {
        self.station.lease().cloned()
    }

    fn limits(&self) -> TransmitLimits {
        let segments = if self.xdp.is_some() { 1 } else { self.socket.segments };
        TransmitLimits { segments, bytes: MAX_RUN }
    }

    fn source_port(&self) -> SourcePort {
        SourcePort::PerFlow
    }

    fn send(&mut self, now: Instant, bytes: &[u8], runs: &[Transmit]) -> io::Result<usize> {
        let mut taken = 0;
        self.is_paused_queue_full = false;
        self.release(now);
        for run in runs {
            let sent = match self.station.route(now, run.dst) {
                _ if !self.station.is_own(run.src) => Err(io::Error::new(
                    io::ErrorKind::AddrNotAvailable,
                    format!("the lease of {} has ended", run.src),
                )),
                Hop::Known(mac) if self.station.is_member(run.dst) => {
                    self.send_to_own_group(now, mac, run, bytes)
                }
                Hop::Known(mac) => self.send_run(now, mac, run, bytes),
                Hop::Resolving(hop) => {
                    self.station.wait(hop, run, bytes);
                    Ok(true)
                }
                Hop::Own => Ok(self.loop_back(run, bytes)),
                Hop::None => Err(io::Error::new(
                    io::ErrorKind::HostUnreachable,
                    format!(
                        "{} has no route to {}: no gateway (gw=ADDRESS), or too many hosts do not \
                         respond",
                        self.interface, run.dst
                    ),
                )),
            };
            match sent {
                Ok(true) => taken += 1,
                Ok(false) => break,
                Err(error) if taken == 0 => {
                    self.flush();
                    return Err(error);
                }
                Err(_) => break, // the next call reports it
            }
        }
        self.flush();
        Ok(taken)
    }

    fn blocked(&self) -> Option<BorrowedFd<'_>> {
        // an AF_XDP socket is writable although all chunks are in flight
        let tells = self.xdp.is_none() && self.loopback.is_empty() && !self.is_paused_queue_full;
        tells.then(|| self.socket.descriptor())
    }

    fn has_waiting(&self) -> bool {
        self.station.has_waiting()
    }

    fn receive(&mut self, now: Instant, sink: &mut dyn FnMut(&Datagram<'_>)) -> io::Result<usize> {
        self.receive_runs(now, &mut |run| run.for_each(&mut *sink))
    }

    fn receive_runs(&mut self, now: Instant, sink: &mut RunSink<'_>) -> io::Result<usize> {
        self.station.handle_timeout(now);
        self.release(now);
        let mut count = 0;
        for (net, bytes) in std::mem::take(&mut self.loopback) {
            sink(&Datagram::new(&net, &bytes).into());
            count += 1;
        }
        let Self { xdp, socket, station, .. } = self;
        for _ in 0..MESSAGES {
            let arrived = match xdp {
                Some(xdp) => xdp.receive(now, socket, station.counters_mut())?,
                None => socket.receive(station.counters_mut())?,
            };
            let Some(Arrived { frame, segment, untagged }) = arrived else { break };
            count += 1;
            let Some(received) = station.handle_frame(now, frame, untagged) else { continue };
            let segment = segment.unwrap_or(received.bytes.len());
            let meta = DatagramMeta::default();
            sink(&DatagramRun { net: &received.net, bytes: received.bytes, segment, meta });
        }
        self.flush();
        Ok(count)
    }

    fn receive_buffer(&self) -> Option<usize> {
        self.xdp.as_ref().map_or_else(|| self.socket.receive_buffer(), XdpSocket::receive_buffer)
    }

    fn socket_drops(&self) -> u64 {
        let lost = self.xdp.as_ref().map_or(0, XdpSocket::drops);
        lost + self.socket.drops() + self.packets.drops()
    }

    fn frame_counters(&self) -> FrameCounters {
        let mut counters = *self.station.counters();
        self.xdp.iter().for_each(|xdp| xdp.count(&mut counters));
        counters
    }

    fn descriptors(&self) -> Vec<BorrowedFd<'_>> {
        let xdp = self.xdp.iter().map(XdpSocket::descriptor);
        xdp.chain([self.socket.descriptor(), self.packets.descriptor()]).collect()
    }

    fn deadline(&self) -> Option<Instant> {
        let has_unsent = self.xdp.as_ref().is_some_and(XdpSocket::has_unsent);
        let at_once = has_unsent || !self.loopback.is_empty();
        Instant::earliest([at_once.then_some(Instant::ZERO), self.station.poll_timeout()])
    }

    fn look(&mut self) {
        self.xdp.iter_mut().for_each(XdpSocket::wake);
    }

    fn multicast(&mut self) -> Option<&mut dyn MulticastLink> {
        Some(self)
    }

    fn frames(&mut self) -> Option<&mut dyn FrameLink> {
        Some(self)
    }

    fn frame_address(&self) -> Option<MacAddr> {
        Some(self.station.config().mac)
    }
}

impl Drop for RawLink {
    fn drop(&mut self) {
        if self.process == std::process::id() {
            self.station.release(clock::now());
            self.flush();
        }
    }
}

impl FrameLink for RawLink {
    fn mtu(&self) -> u32 {
        self.mtu
    }

    fn send_frame(&mut self, now: Instant, frame: &[u8]) -> io::Result<bool> {
        let held = self.station.hold_frame(now, frame);
        self.is_packet_queue_full = held == Some(false);
        held.map_or_else(|| self.packets.send(frame), Ok)
    }

    fn frame_room(&self) -> Option<BorrowedFd<'_>> {
        (!self.is_packet_queue_full).then(|| self.packets.descriptor())
    }

    fn listen(&mut self, on: bool) -> io::Result<()> {
        self.packets.listen(on)
    }

    fn receive_frames(
        &mut self,
        _: Instant,
        sink: &mut dyn FnMut(&[u8], bool),
    ) -> io::Result<usize> {
        let Self { packets, station, .. } = self;
        for count in 0..MESSAGES {
            let Some(frame) = packets.receive(station.counters_mut())? else { return Ok(count) };
            let is_taken = station.takes(frame);
            sink(frame, is_taken);
        }
        Ok(MESSAGES)
    }

    fn prepare_membership(&mut self, membership: Membership) -> Preparation<io::Error> {
        let index = self.index;
        Box::new(move || Ok(Box::new(socket::membership(membership, index)?)))
    }
}

impl MulticastLink for RawLink {
    fn prepare_join(&mut self, group: IpAddr) -> Preparation<io::Error> {
        let config = self.station.config();
        let of_family = config.addresses.iter().any(|own| own.address.is_ipv4() == group.is_ipv4());
        let (index, own) = (self.index, config.replies);
        Box::new(move || {
            if !of_family {
                return Err(no_address_of_family());
            }
            // The kernel reports the membership of borrowed addresses.
            let member =
                if own { socket::member(group, index) } else { kernel_member(group, index) };
            Ok(Box::new(member?))
        })
    }

    fn join(&mut self, group: IpAddr, prepared: Prepared) -> io::Result<()> {
        let socket = prepared.downcast().map_err(|_| io::ErrorKind::InvalidInput)?;
        self.groups.insert(group, *socket);
        self.station.join(clock::now(), group);
        self.flush();
        Ok(())
    }

    fn leave(&mut self, group: IpAddr) -> Option<Prepared> {
        self.station.leave(clock::now(), group);
        self.flush();
        Some(Box::new(self.groups.remove(&group)?))
    }
}

/// Makes the kernel join a group. Without a port, the socket receives nothing.
fn kernel_member(group: IpAddr, interface: u32) -> io::Result<Socket> {
    let domain = Domain::for_address(SocketAddr::new(group, 0));
    let socket = Socket::new(domain, Type::DGRAM, Some(Protocol::UDP))?;
    match group {
        IpAddr::V4(v4) => {
            socket.join_multicast_v4_n(&v4, &InterfaceIndexOrAddress::Index(interface))?;
        }
        IpAddr::V6(v6) => socket.join_multicast_v6(&v6, interface)?,
    }
    Ok(socket)
}
