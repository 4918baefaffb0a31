//! RoCE packets over UDP to the device under test.

use std::{
    collections::VecDeque,
    net::{IpAddr, UdpSocket},
    os::fd::BorrowedFd,
    thread::sleep,
    time::Duration,
};

use roce::{
    BindError, Device, OpenOptions,
    link::{self, Link, Locality, SocketOptions, UdpLink},
    transport::{adapter::Transmit, addr::ROCE_UDP_PORT, time::Instant, wire::NetHeader},
};
use roce_conformance::{
    case::PauseFrames,
    subject::{Arrival, Listener, Program, Result, Route, Subject, SubjectError},
};
use rustix::event::{PollFd, PollFlags};

use super::pauses::{self, LongPause};
use crate::{common::wait, failure::Failure};

/// Delay on a busy host.
const TOLERANCE: Duration = Duration::from_millis(200);

/// If the interface reports no speed.
const MBPS: u32 = 10_000;

/// Packets in a burst after a silence.
const TOGETHER: u32 = 64;

/// A device whose program is not ours.
pub(super) struct Network {
    link: Box<dyn Link>,
    is_raw: bool,
    own: IpAddr,
    device: IpAddr,
    pub(super) listener: Option<Listener>,
    arrivals: VecDeque<Arrival>,
    pause: Duration,
    due: Instant,
    mbps: u32,
    held_up: Option<LongPause>,
    /// A late renewal of the pause: the device's packets prove nothing.
    has_lapsed: bool,
}

impl Network {
    pub(super) fn open(
        device: IpAddr,
        from: Option<&str>,
        listener: Option<Listener>,
        pause: Duration,
    ) -> Result<Self, Failure> {
        let is_raw = from.is_some_and(|from| from.starts_with("raw:") || from.starts_with("xdp:"));
        let mut mbps = None;
        let link = match from {
            Some(raw) if is_raw => {
                let raw = Device::named(raw)?;
                mbps = raw.port().speed;
                raw.open_link(&OpenOptions::default())?
            }
            Some(own) => {
                let wrong = |_| {
                    format!(
                        "--from {own}: not an address; expected a local address or \
                         raw:INTERFACE,ip=ADDRESS/LENGTH"
                    )
                };
                udp_link(device, Some(own.parse().map_err(wrong)?))?
            }
            None => udp_link(device, None)?,
        };
        let own = link.addresses().into_iter().find(|own| own.is_ipv4() == device.is_ipv4());
        let own =
            own.ok_or_else(|| format!("no local address reaches {device}; name one with --from"))?;
        Ok(Self {
            link,
            is_raw,
            own,
            device,
            listener,
            arrivals: VecDeque::new(),
            pause,
            due: link::now(),
            mbps: mbps.unwrap_or(MBPS),
            held_up: None,
            has_lapsed: false,
        })
    }

    /// Waits for `other`; a raw device answers address resolution meanwhile.
    pub(super) fn attend(&mut self, other: BorrowedFd<'_>, until: Instant) -> Result<()> {
        loop {
            self.read_link()?;
            if self.wait(Some(other), until)? || self.now() >= until {
                return Ok(());
            }
        }
    }

    fn wait(&self, other: Option<BorrowedFd<'_>>, until: Instant) -> Result<bool> {
        let now = self.now();
        let frame = self.held_up.as_ref().map(LongPause::poll_timeout);
        let due = self.link.deadline().into_iter().chain(frame).fold(until, Instant::min);
        let descriptors = self.link.descriptors();
        let all = descriptors.iter().chain(&other);
        let mut ready: Vec<_> =
            all.map(|fd| PollFd::from_borrowed_fd(*fd, PollFlags::IN)).collect();
        wait(&mut ready, Some(due.max(now).since(now))).map_err(SubjectError::Broken)?;
        let is_other = ready.get(descriptors.len());
        Ok(is_other.is_some_and(|other| !other.revents().is_empty()))
    }

    fn keep_up_pause(&mut self) -> Result<()> {
        let now = self.now();
        let Some(pause) = &mut self.held_up else { return Ok(()) };
        let priorities = pause.priorities;
        let Ok(quanta) = pause.poll_quanta(now) else {
            (self.held_up, self.has_lapsed) = (None, true);
            return Ok(());
        };
        let Some(quanta) = quanta else { return Ok(()) };
        if quanta == 0 {
            self.held_up = None;
        }
        self.send_pause(priorities, quanta)
    }

    fn send_pause(&mut self, priorities: u8, quanta: u16) -> Result<()> {
        let own = self.link.frame_address();
        let (Some(own), Some(frames)) = (own, self.link.frames()) else {
            let text = "sockets cannot send pause frames; use --from raw:INTERFACE";
            return Err(SubjectError::Unsupported(text.into()));
        };
        let frame = pauses::frame(own.octets(), priorities, quanta);
        // The next frame follows a dropped one.
        let sent = frames.send_frame(link::now(), &frame);
        sent.map(drop).map_err(|error| SubjectError::Broken(format!("cannot send: {error}")))
    }

    fn read_link(&mut self) -> Result<()> {
        self.keep_up_pause()?;
        let (device, arrivals) = (self.device, &mut self.arrivals);
        let broken =
            |error: std::io::Error| SubjectError::Broken(format!("cannot receive: {error}"));
        let mut sink = |datagram: &link::Datagram<'_>| {
            if datagram.net.src == device {
                // After reading: an earlier time would be too early.
                let at = link::now();
                let (net, bytes) = (*datagram.net, datagram.bytes.to_vec());
                arrivals.push_back(Arrival { at, net, bytes });
            }
        };
        while self.link.receive(link::now(), &mut sink).map_err(broken)? > 0 {}
        Ok(())
    }
}

impl Subject for Network {
    fn program(&mut self) -> Result<&mut dyn Program> {
        Err(SubjectError::Unsupported("only an agent can do that".into()))
    }

    fn listener(&self) -> Option<&Listener> {
        self.listener.as_ref()
    }

    fn clear(&mut self) -> Result<()> {
        self.has_lapsed = false;
        if let Some(pause) = self.held_up.take() {
            self.send_pause(pause.priorities, 0)?;
        }
        self.read_link()?;
        self.arrivals.clear();
        Ok(())
    }

    fn route(&self) -> Route {
        Route { own: self.own, device: self.device, src_port: ROCE_UDP_PORT, id: 0 }
    }

    fn now(&self) -> Instant {
        link::now()
    }

    fn tolerance(&self) -> Duration {
        TOLERANCE
    }

    fn send(&mut self, net: &NetHeader, bytes: &[u8]) -> Result<()> {
        if net.src_port != ROCE_UDP_PORT && !self.is_raw {
            let text = "sockets cannot send from any UDP port; use --from raw:INTERFACE";
            return Err(SubjectError::Unsupported(text.into()));
        }
        let now = self.now();
        let due = self.due.max(now);
        sleep(due.since(now).saturating_sub(self.pause * TOGETHER));
        self.due = due.plus(self.pause);
        let run = Transmit {
            src: net.src,
            dst: net.dst,
            src_port: net.src_port,
            traffic_class: net.traffic_class,
            hop_limit: net.hop_limit,
            segment: bytes.len(),
            range: 0..bytes.len(),
            frame: net.frame,
        };
        let sent = self.link.send(self.now(), bytes, &[run]);
        match sent.map_err(|error| SubjectError::Broken(format!("cannot send: {error}")))? {
            0 => Err(SubjectError::Broken("cannot send: the socket is full".into())),
            _ => Ok(()),
        }
    }

    fn pause(&mut self, pause: PauseFrames) -> Result<()> {
        let PauseFrames { priorities, time } = pause;
        let now = self.now();
        self.send_pause(priorities, u16::MAX)?;
        self.held_up = time.map(|time| LongPause::new(now, priorities, time, self.mbps));
        Ok(())
    }

    fn receive(&mut self, until: Instant) -> Result<Option<Arrival>> {
        loop {
            self.read_link()?;
            if self.has_lapsed {
                let text = "this host is too busy to send pause frames in time; repeat the case when it \
                     is idle";
                return Err(SubjectError::Broken(text.into()));
            }
            if let Some(arrival) = self.arrivals.pop_front() {
                return Ok(Some(arrival));
            }
            let now = self.now();
            if now >= until {
                return Ok(None);
            }
            self.wait(None, until)?;
        }
    }
}

fn udp_link(device: IpAddr, from: Option<IpAddr>) -> Result<Box<dyn Link>, Failure> {
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
                    format!("no route to {device}: {error}; name a local address with --from")
                })?,
            };
            UdpLink::bind(&[(own, 0)], Locality::Network, options)
        }
    };
    match link {
        Ok(link) => Ok(Box::new(link)),
        Err(BindError::Taken(own)) => Err(Failure::from(format!(
            "UDP port 4791 of {own} is taken; end the program that uses it, or choose another \
             address with --from"
        ))),
        Err(other) => Err(other.into()),
    }
}

fn route(to: IpAddr) -> std::io::Result<IpAddr> {
    let any: IpAddr = if to.is_ipv4() { [0; 4].into() } else { [0_u16; 8].into() };
    let socket = UdpSocket::bind((any, 0))?;
    socket.connect((to, ROCE_UDP_PORT))?;
    Ok(socket.local_addr()?.ip())
}
