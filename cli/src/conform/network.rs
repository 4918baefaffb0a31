//! The way to the device under test: RoCE packets over UDP.

use std::{
    collections::VecDeque,
    net::{IpAddr, UdpSocket},
    thread::sleep,
    time::{Duration, Instant as Clock},
};

use roce::{
    BindError,
    link::{Link, Locality, SocketOptions, UdpLink},
    transport::{adapter::Transmit, addr::ROCE_UDP_PORT, time::Instant, wire::NetHeader},
};
use roce_conformance::subject::{Arrival, Listener, Program, Route, Subject, Trouble};
use rustix::event::{PollFd, PollFlags, Timespec, poll};

use crate::failure::Failure;

/// Time that a packet, or an answer of the agent, may be late by on a host that has other things to
/// do.
const TOLERANCE: Duration = Duration::from_millis(200);

/// A device that only packets reach: what is at it is a program of its own.
pub(super) struct Network {
    start: Clock,
    link: UdpLink,
    own: IpAddr,
    device: IpAddr,
    /// A program there that listens for connections.
    pub(super) listener: Option<Listener>,
    arrivals: VecDeque<Arrival>,
    /// Shortest time between two packets.
    pause: Duration,
    last: Option<Clock>,
}

impl Network {
    /// Prepares to send to a device.
    pub(super) fn open(
        device: IpAddr,
        from: Option<IpAddr>,
        listener: Option<Listener>,
        pause: Duration,
    ) -> Result<Self, Failure> {
        let (link, own) = open_link(device, from)?;
        let (start, arrivals) = (Clock::now(), VecDeque::new());
        Ok(Self { start, link, own, device, listener, arrivals, pause, last: None })
    }

    /// Takes what the link has.
    fn read_link(&mut self) -> Result<(), Trouble> {
        let at = self.now();
        let (device, arrivals) = (self.device, &mut self.arrivals);
        let broken = |error: std::io::Error| Trouble::Broken(format!("cannot receive: {error}"));
        let mut sink = |datagram: &roce::link::Datagram<'_>| {
            if datagram.net.src == device {
                let (net, bytes) = (*datagram.net, datagram.bytes.to_vec());
                arrivals.push_back(Arrival { at, net, bytes });
            }
        };
        while self.link.receive(at, &mut sink).map_err(broken)? > 0 {}
        Ok(())
    }
}

impl Subject for Network {
    fn program(&mut self) -> Result<&mut dyn Program, Trouble> {
        Err(Trouble::Unsupported("only an agent can do that".into()))
    }

    fn listener(&self) -> Option<&Listener> {
        self.listener.as_ref()
    }

    fn clear(&mut self) -> Result<(), Trouble> {
        self.read_link()?;
        self.arrivals.clear();
        Ok(())
    }

    fn route(&self) -> Route {
        Route { own: self.own, device: self.device, src_port: ROCE_UDP_PORT, id: 0 }
    }

    fn now(&self) -> Instant {
        Instant::ZERO.plus(self.start.elapsed())
    }

    fn tolerance(&self) -> Duration {
        TOLERANCE
    }

    fn send(&mut self, net: &NetHeader, bytes: &[u8]) -> Result<(), Trouble> {
        if let Some(last) = self.last {
            sleep(self.pause.saturating_sub(last.elapsed()));
        }
        self.last = Some(Clock::now());
        let run = Transmit {
            src: net.src,
            dst: net.dst,
            src_port: net.src_port,
            traffic_class: net.traffic_class,
            hop_limit: net.hop_limit,
            segment: bytes.len(),
            range: 0..bytes.len(),
        };
        let sent = self.link.send(self.now(), bytes, &[run]);
        match sent.map_err(|error| Trouble::Broken(format!("cannot send: {error}")))? {
            0 => Err(Trouble::Broken("cannot send: the socket is full".into())),
            _ => Ok(()),
        }
    }

    fn receive(&mut self, until: Instant) -> Result<Option<Arrival>, Trouble> {
        loop {
            self.read_link()?;
            if let Some(arrival) = self.arrivals.pop_front() {
                return Ok(Some(arrival));
            }
            let now = self.now();
            if now >= until {
                return Ok(None);
            }
            let left = until.since(now);
            let timeout =
                Timespec { tv_sec: left.as_secs() as _, tv_nsec: left.subsec_nanos().into() };
            let descriptors = self.link.descriptors();
            let mut ready: Vec<_> =
                descriptors.iter().map(|fd| PollFd::from_borrowed_fd(*fd, PollFlags::IN)).collect();
            match poll(&mut ready, Some(&timeout)) {
                Ok(_) | Err(rustix::io::Errno::INTR) => {}
                Err(error) => return Err(Trouble::Broken(format!("cannot wait: {error}"))),
            }
        }
    }
}

/// The link from an own address from which the device can be reached.
fn open_link(device: IpAddr, from: Option<IpAddr>) -> Result<(UdpLink, IpAddr), Failure> {
    let options =
        SocketOptions { source_ports: Some(1), segments: Some(1), ..SocketOptions::default() };
    let link = match from {
        None if device.is_loopback() && device.is_ipv4() => {
            UdpLink::bind_loopback(Some(device), Locality::Network, options)
        }
        _ => {
            let own = match from {
                Some(own) => own,
                None => route(device).map_err(|error| {
                    format!("no way to {device}: {error}; name an own address with --from")
                })?,
            };
            UdpLink::bind(&[(own, 0)], Locality::Network, options)
        }
    };
    let link = link.map_err(|error| match error {
        BindError::Taken(own) => Failure::from(format!(
            "UDP port 4791 of {own} is taken: end what uses it, or name another address with --from"
        )),
        other => other.into(),
    })?;
    let own = link.addresses().first().copied().ok_or("the link has no address")?;
    Ok((link, own))
}

/// The own address of packets to another one.
fn route(to: IpAddr) -> std::io::Result<IpAddr> {
    let any: IpAddr = if to.is_ipv4() { [0; 4].into() } else { [0_u16; 8].into() };
    let socket = UdpSocket::bind((any, 0))?;
    socket.connect((to, ROCE_UDP_PORT))?;
    Ok(socket.local_addr()?.ip())
}
