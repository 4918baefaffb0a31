//! A UDP socket holds the port. The first datagram to a peer goes through it with the sender's
//! queue pair number; the peer responds with its own. Later datagrams go between the queue pairs.

use std::{
    collections::VecDeque,
    io,
    net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr},
    os::fd::OwnedFd,
    sync::Arc,
};

use roce_transport::{cm::PortSpace, mem::MemoryFault};
use rustix::{
    event::epoll::{self, EventData, EventFlags},
    io::Errno,
};

use super::{
    endpoint::{Endpoint, Message},
    errors::{of_cm, of_system},
    headers::{DatagramHeader, LONGEST, Purpose, Sender},
    peers::{Path, Peer, Peers, is_same},
    resolve::resolve,
    settings::Settings,
    stream::{Sink, Source},
    udp::Udp,
};
use roce_provider::{cm::EventChannel, link::now};

/// Most data bytes of a datagram.
const MOST: usize = 4096;
const BATCH: usize = 64;

pub(super) struct Datagrams {
    pub(super) udp: Udp,
    local: Option<SocketAddr>,
    descriptor: Arc<OwnedFd>,
    channel: EventChannel,
    endpoints: Vec<Endpoint>,
    peers: Peers,
    /// Sole sender and default destination.
    pub(super) connected: Option<SocketAddr>,
    arrived: VecDeque<Arrived>,
    /// Queued bytes that came through UDP.
    copied: usize,
    pub(super) tos: u8,
    pub(super) read_shut: bool,
    pub(super) write_shut: bool,
    pub(super) event_count: u64,
}

enum Arrived {
    InSlot(usize, Message),
    Copied(SocketAddr, Vec<u8>),
}

impl Datagrams {
    pub(super) fn new(
        v6: bool,
        descriptor: Arc<OwnedFd>,
        channel: EventChannel,
    ) -> io::Result<Self> {
        let udp = Udp::new(v6)?;
        epoll::add(&descriptor, &udp, EventData::new_u64(0), EventFlags::IN)?;
        Ok(Self {
            udp,
            local: None,
            descriptor,
            channel,
            endpoints: Vec::new(),
            peers: Peers::default(),
            connected: None,
            arrived: VecDeque::new(),
            copied: 0,
            tos: 0,
            read_shut: false,
            write_shut: false,
            event_count: 0,
        })
    }

    pub(super) fn bind(&mut self, address: SocketAddr) -> Result<(), Errno> {
        self.udp.bind(address).map_err(|error| of_system(&error))?;
        self.local = self.udp.local_addr();
        Ok(())
    }

    fn bind_anywhere(&mut self) -> Result<SocketAddr, Errno> {
        if self.local.is_none() {
            self.bind(SocketAddr::new(Ipv4Addr::UNSPECIFIED.into(), 0))?;
        }
        self.local.ok_or(Errno::ADDRNOTAVAIL)
    }

    pub(super) fn local_addr(&mut self) -> Option<SocketAddr> {
        let local = self.local?;
        let own = self.connected.and_then(|peer| self.peers.get(peer)?.own);
        Some(own.map_or(local, |own| SocketAddr::new(own, local.port())))
    }

    pub(super) fn connect(&mut self, peer: SocketAddr, settings: Settings) -> Result<(), Errno> {
        self.bind_anywhere()?;
        self.peer_for(peer, None, settings)?;
        self.connected = Some(peer);
        Ok(())
    }

    fn bound_ip(&self) -> Option<IpAddr> {
        let any = |ip: &IpAddr| *ip == Ipv4Addr::UNSPECIFIED || *ip == Ipv6Addr::UNSPECIFIED;
        self.local.map(|local| local.ip()).filter(|ip| !any(ip))
    }

    /// `addressed`: local address by which the peer knows this side.
    fn peer_for(
        &mut self,
        peer: SocketAddr,
        addressed: Option<IpAddr>,
        settings: Settings,
    ) -> Result<&mut Peer, Errno> {
        let failed = |path: &Path| self.endpoints[path.endpoint].failed;
        let known =
            self.peers.get(peer).is_some_and(|peer| !peer.path.as_ref().is_some_and(failed));
        if !known {
            let bound = self.bound_ip();
            let (path, own) = match self.path(peer, bound.or(addressed), settings) {
                Ok((path, own)) if bound.or(addressed).is_none_or(|known| known == own) => {
                    (Some(path), Some(own))
                }
                // Another process has the device of that address.
                Ok(_) => (None, bound.or(addressed)),
                Err(_) if addressed.is_some() => (None, bound),
                Err(error) => return Err(error),
            };
            self.peers.add(Peer::new(peer, path, own));
        }
        self.peers.get(peer).ok_or(Errno::HOSTUNREACH)
    }

    /// Also returns the local address.
    fn path(
        &mut self,
        peer: SocketAddr,
        own: Option<IpAddr>,
        settings: Settings,
    ) -> Result<(Path, IpAddr), Errno> {
        let id = self.channel.create_id(PortSpace::Udp);
        id.set_tos(self.tos);
        resolve(&id, &self.channel, own.map(|own| SocketAddr::new(own, 0)), peer)?;
        let own = id.local_addr().ok_or(Errno::HOSTUNREACH)?.ip();
        let vector = id.address_vector().ok_or(Errno::HOSTUNREACH)?;
        let most = (id.path_mtu().bytes() as usize).min(MOST) - Sender::len(own);
        let there = self.endpoints.iter().position(|one| one.ip == own && !one.failed);
        let endpoint = match there {
            Some(endpoint) => endpoint,
            None => {
                let made = Endpoint::new(id, settings).map_err(|error| of_cm(&error))?;
                epoll::add(&self.descriptor, &made.queues, EventData::new_u64(0), EventFlags::IN)?;
                self.endpoints.push(made);
                self.endpoints.len() - 1
            }
        };
        let domain = &self.endpoints[endpoint].queues.domain;
        let handle = domain.create_ah(vector).map_err(|_| Errno::NOMEM)?;
        Ok((Path { endpoint, handle, most }, own))
    }

    /// # Errors
    /// `EAGAIN`; `EDESTADDRREQ`; `EMSGSIZE`; `EINVAL`; `EPIPE` after a shutdown; `EFAULT`; those of
    /// address resolution.
    pub(super) fn send(
        &mut self,
        length: usize,
        to: Option<SocketAddr>,
        settings: Settings,
        source: Source<'_>,
    ) -> Result<(), Errno> {
        if self.write_shut {
            return Err(Errno::PIPE);
        }
        let to = to.or(self.connected).ok_or(Errno::DESTADDRREQ)?;
        if to.port() == 0 {
            return Err(Errno::INVAL);
        }
        let port = self.bind_anywhere()?.port();
        self.peer_for(to, None, settings)?;
        let now = now();
        let Self { peers, endpoints, udp, .. } = self;
        let peer = peers.get(to).ok_or(Errno::HOSTUNREACH)?;
        if length > peer.path.as_ref().map_or(MOST - Sender::len(to.ip()), |path| path.most) {
            return Err(Errno::MSGSIZE);
        }
        if let Some((path, qpn)) = peer.direct(now) {
            let endpoint = &mut endpoints[path.endpoint];
            let from = Sender(SocketAddr::new(endpoint.ip, port));
            return endpoint.send(from, length, source, (&path.handle, qpn));
        }
        let qpn = peer.path.as_ref().map(|path| endpoints[path.endpoint].qpn());
        let mut message = DatagramHeader { purpose: Purpose::Data, qpn, to: to.ip() }.encode();
        let header = message.len();
        message.resize(header + length, 0);
        source(&mut message[header..]).map_err(|_| Errno::FAULT)?;
        udp.send(&message, peer.address, peer.own).map_err(|error| of_system(&error))?;
        peer.heard = now;
        Ok(())
    }

    pub(super) fn process(&mut self, settings: Settings) -> bool {
        let (mut changed, before) = (false, self.arrived.len());
        let mut room = [0; MOST + LONGEST + 1];
        for _ in 0..BATCH {
            match self.udp.receive(&mut room) {
                Ok((length, from)) => {
                    changed = true;
                    // A message that fills the room was longer.
                    if let Some((header, data)) = room
                        .get(..length)
                        .filter(|_| length < room.len())
                        .and_then(DatagramHeader::parse)
                    {
                        self.handle_datagram(from, header, data, settings);
                    }
                }
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => break,
                // The network's error about a sent message.
                Err(_) => changed = true,
            }
        }
        let Self { endpoints, peers, arrived, connected, read_shut, .. } = self;
        for (index, endpoint) in endpoints.iter_mut().enumerate() {
            let had_room = endpoint.has_room();
            changed |= endpoint.process(|message| {
                if let Some(peer) = peers.get(message.from.0) {
                    peer.heard = now();
                }
                let is_taken =
                    !*read_shut && connected.is_none_or(|one| is_same(one, message.from.0));
                if is_taken {
                    arrived.push_back(Arrived::InSlot(index, message));
                }
                is_taken
            });
            self.event_count += u64::from(!had_room && endpoint.has_room());
        }
        self.event_count += u64::from(self.arrived.len() > before);
        changed
    }

    fn handle_datagram(
        &mut self,
        from: SocketAddr,
        header: DatagramHeader,
        data: &[u8],
        settings: Settings,
    ) {
        let peer = match header.purpose {
            // Believe only known peers.
            Purpose::Control => self.peers.get(from),
            Purpose::Data => self.peer_for(from, Some(header.to), settings).ok(),
        };
        let Some(peer) = peer else { return };
        (peer.address, peer.qpn, peer.heard) = (from, header.qpn, now());
        if header.purpose == Purpose::Control {
            return;
        }
        let own = peer.own;
        if let Some(endpoint) = peer.path.as_ref().map(|path| path.endpoint) {
            let qpn = Some(self.endpoints[endpoint].qpn());
            let response = DatagramHeader { purpose: Purpose::Control, qpn, to: from.ip() };
            // The next message asks again.
            let _ = self.udp.send(&response.encode(), from, own);
        }
        let has_room = self.copied + data.len() <= settings.receive_buffer() as usize
            && self.arrived.len() < settings.receive_queue() as usize * (1 + self.endpoints.len());
        if has_room && !self.read_shut && self.connected.is_none_or(|one| is_same(one, from)) {
            self.copied += data.len();
            self.arrived.push_back(Arrived::Copied(from, data.to_vec()));
        }
    }

    /// Reads up to `length` bytes of the first datagram.
    ///
    /// # Errors
    /// `EAGAIN`; `EFAULT`: the datagram stays.
    pub(super) fn receive(
        &mut self,
        length: usize,
        peek: bool,
        sink: Sink<'_>,
    ) -> Result<(usize, Option<SocketAddr>), Errno> {
        let (whole, from, given) = match self.arrived.front() {
            None if self.read_shut => return Ok((0, None)),
            None => return Err(Errno::AGAIN),
            Some(Arrived::Copied(from, data)) => {
                (data.len(), *from, sink(&data[..length.min(data.len())]))
            }
            Some(Arrived::InSlot(endpoint, message)) => {
                let given = self.endpoints[*endpoint].read(message, length, sink);
                (message.length, message.from.0, given)
            }
        };
        given.map_err(|MemoryFault| Errno::FAULT)?;
        if !peek {
            match self.arrived.pop_front() {
                Some(Arrived::Copied(..)) => self.copied -= whole,
                Some(Arrived::InSlot(endpoint, message)) => {
                    self.endpoints[endpoint].release(message.slot);
                }
                None => {}
            }
        }
        Ok((whole, Some(from)))
    }

    pub(super) fn is_readable(&self) -> bool {
        !self.arrived.is_empty() || self.read_shut
    }

    pub(super) fn is_writable(&self) -> bool {
        self.write_shut || self.endpoints.iter().all(|one| one.failed || one.has_room())
    }

    pub(super) fn is_sent(&self) -> bool {
        self.endpoints.iter().all(Endpoint::is_idle)
    }

    pub(super) fn arm(&self) {
        self.endpoints.iter().for_each(|one| one.queues.arm());
    }
}

#[cfg(test)]
mod tests {
    use std::{net::UdpSocket, thread, time::Duration};

    use super::*;
    use roce_provider::{Context, Device, OpenOptions};

    use crate::peers::SILENCE;

    fn own_address() -> (Context, IpAddr) {
        let opened = (100..250).find_map(|last| {
            let ip = Ipv4Addr::new(127, 0, 0, last).into();
            Some((Device::at(ip).ok()?.open(OpenOptions::default()).ok()?, ip))
        });
        opened.expect("one is free")
    }

    fn bound(address: SocketAddr) -> (Datagrams, SocketAddr) {
        let descriptor = Arc::new(epoll::create(epoll::CreateFlags::CLOEXEC).unwrap());
        let mut made = Datagrams::new(false, descriptor, EventChannel::new().unwrap()).unwrap();
        made.bind(address).unwrap();
        let address = made.local_addr().unwrap();
        (made, address)
    }

    fn send(from: &mut Datagrams, to: SocketAddr, text: &str) -> Result<(), Errno> {
        from.send(text.len(), Some(to), Settings::of_host(), &mut |bytes| {
            bytes.copy_from_slice(text.as_bytes());
            Ok(())
        })
    }

    fn receive(at: &mut Datagrams, peek: bool) -> Result<(String, SocketAddr), Errno> {
        let mut got = Vec::new();
        let (length, from) = at.receive(100, peek, &mut |bytes| {
            got.extend(bytes);
            Ok(())
        })?;
        assert_eq!(length, got.len());
        Ok((String::from_utf8(got).unwrap(), from.unwrap()))
    }

    /// True if the datagram came between queue pairs.
    #[track_caller]
    fn arrives(at: &mut Datagrams, from: SocketAddr, text: &str) -> bool {
        let end = now().plus(Duration::from_secs(20));
        while !at.is_readable() {
            at.process(Settings::of_host());
            assert!(now() < end, "nothing arrives");
        }
        let direct = matches!(at.arrived.front(), Some(Arrived::InSlot(..)));
        assert_eq!(receive(at, true), Ok((text.to_owned(), from)));
        assert_eq!(receive(at, false), Ok((text.to_owned(), from)));
        assert_eq!(receive(at, false), Err(Errno::AGAIN));
        direct
    }

    fn is_answered(at: &mut Datagrams, by: SocketAddr) {
        while at.peers.get(by).unwrap().qpn.is_none() {
            at.process(Settings::of_host());
        }
    }

    #[test]
    fn the_first_goes_through_udp_and_those_behind_it_between_queue_pairs() {
        let (_context, ip) = own_address();
        let ((mut here, a), (mut there, b)) =
            (bound(SocketAddr::new(ip, 0)), bound(SocketAddr::new(ip, 0)));
        send(&mut here, b, "first").unwrap();
        assert!(!arrives(&mut there, a, "first"));
        is_answered(&mut here, b);
        send(&mut here, b, "second").unwrap();
        assert!(arrives(&mut there, a, "second"));
        // It knows our number.
        send(&mut there, a, "response").unwrap();
        assert!(arrives(&mut here, b, "response"));
        assert_eq!(send(&mut here, b, &"x".repeat(4089)), Err(Errno::MSGSIZE));
        send(&mut here, b, "").unwrap();
        assert!(arrives(&mut there, a, ""));

        // A restarted peer has another queue pair; it is asked after a while.
        drop(there);
        let (mut there, same) = bound(b);
        assert_eq!(same, b);
        send(&mut here, b, "to nobody").unwrap();
        thread::sleep(SILENCE);
        send(&mut here, b, "again").unwrap();
        assert!(!arrives(&mut there, a, "again"));
    }

    #[test]
    fn only_the_peer_that_it_is_connected_to_is_heard() {
        let (_context, ip) = own_address();
        let any = SocketAddr::new(ip, 0);
        let ((mut one, _), (mut other, a), (mut third, b)) = (bound(any), bound(any), bound(any));
        let to = one.local_addr().unwrap();
        assert_eq!(
            one.send(0, None, Settings::of_host(), &mut |_| Ok(())),
            Err(Errno::DESTADDRREQ)
        );
        one.connect(a, Settings::of_host()).unwrap();
        assert_eq!((one.connected, one.local_addr()), (Some(a), Some(to)));
        for _ in 0..2 {
            send(&mut third, to, "unheard").unwrap();
            send(&mut other, to, "heard").unwrap();
            arrives(&mut one, a, "heard");
            is_answered(&mut other, to);
            is_answered(&mut third, to);
        }
        assert_eq!(send(&mut one, SocketAddr::new(b.ip(), 0), "x"), Err(Errno::INVAL));
        (one.read_shut, one.write_shut) = (true, true);
        assert_eq!(send(&mut one, a, "x"), Err(Errno::PIPE));
        assert_eq!(one.receive(1, false, &mut |_| Ok(())), Ok((0, None)));
    }

    #[test]
    fn what_is_forged_or_too_much_is_dropped() {
        let (_context, ip) = own_address();
        let (mut one, to) = bound(SocketAddr::new(ip, 0));
        let sender = UdpSocket::bind((ip, 0)).unwrap();
        let head = |purpose| DatagramHeader { purpose, qpn: None, to: ip }.encode();
        let data = head(Purpose::Data);
        // unexpected response, no head, a cut head, too much data
        for forged in
            [head(Purpose::Control), vec![], data[..15].to_vec(), [&data[..], &[0; 5000]].concat()]
        {
            sender.send_to(&forged, to).unwrap();
        }
        let address = sender.local_addr().unwrap();
        for _ in 0..1000 {
            sender.send_to(&[&data[..], &[7; 1000]].concat(), to).unwrap();
            one.process(Settings::of_host());
        }
        while one.process(Settings::of_host()) {}
        assert!(one.copied <= Settings::of_host().receive_buffer() as usize);
        assert_eq!(one.copied, one.arrived.len() * 1000);
        assert!(one.arrived.len() > 100);
        assert!(one.peers.get(address).is_some());
    }
}
