//! DHCP client. States and names are those of RFC 2131, section 4.4; comments explain deviations.

mod message;
#[cfg(test)]
mod tests;

use std::{
    collections::VecDeque,
    mem,
    net::{IpAddr, Ipv4Addr},
    time::Duration,
};

use pnet_datalink::MacAddr;
use rand_chacha::ChaCha12Rng;
use rand_core::{RngCore, SeedableRng};
use roce_transport::time::Instant;
use smoltcp::wire::DhcpMessageType;
use thiserror::Error;

pub use self::message::Route;
use self::message::{Grant, Reply, Request, Response};
use super::{
    address::{PROBE_INTERVAL, PROBES, Prefix},
    counters::FrameCounters,
};

/// First and longest retransmission delay, plus or minus a random quarter. RFC 2131 starts at 4 s,
/// but the opening of a device waits here.
const RETRANSMIT: [Duration; 2] = [Duration::from_secs(1), Duration::from_secs(64)];
const REQUESTS: u32 = 4;
/// Least time between DHCPDECLINE and a new discovery (section 3.1, point 5).
const DECLINED: Duration = Duration::from_secs(10);
/// Least time between two renewal requests (section 4.4.5), but at most an eighth of the lease.
const RENEWALS: Duration = Duration::from_secs(60);

/// A leased address.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Lease {
    /// Address and prefix length.
    pub address: Prefix,
    /// Server.
    pub server: Ipv4Addr,
    /// Routes from the server.
    pub routes: Vec<Route>,
    /// End unless renewed.
    pub until: Instant,
}

impl Lease {
    /// Longest-prefix route, and next hop.
    pub(super) fn route(&self, to: IpAddr) -> Option<(Prefix, IpAddr)> {
        let routes = self.routes.iter().filter(|route| route.to.contains(to));
        let route = routes.max_by_key(|route| route.to.length)?;
        Some((route.to, route.gateway.map_or(to, IpAddr::from)))
    }
}

/// Reason why no address is leased yet.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Error)]
pub enum LeaseError {
    /// No server responds.
    #[default]
    #[error("no DHCP server responds")]
    Unanswered,
    /// A server's response is unusable.
    #[error("a DHCP server's response is unusable")]
    Unusable,
    /// A server did not confirm the address that it had offered.
    #[error("a DHCP server offered {0} and did not confirm it")]
    Unconfirmed(Ipv4Addr),
    /// A server refused the address that it had offered.
    #[error("a DHCP server offered {0} and then refused it")]
    Refused(Ipv4Addr),
    /// Another host has the granted address.
    #[error("a DHCP server granted {0}, which the host with the MAC address {1} has")]
    InUse(Ipv4Addr, MacAddr),
}

/// `Send` is unicast from the leased address, or broadcast from none.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) enum Output {
    Send { to: Option<Ipv4Addr>, from: Ipv4Addr, bytes: Vec<u8> },
    Probe(Ipv4Addr),
    Lease(Option<Lease>),
}

#[derive(Clone, PartialEq, Eq, Debug)]
struct Granted {
    grant: Grant,
    renew: Instant,
    rebind: Instant,
    until: Instant,
}

impl Granted {
    /// The lease counts from the request, as the server knows only its arrival.
    fn new(grant: Grant, asked: Instant) -> Self {
        let [until, renew, rebind] =
            grant.seconds.map(|seconds| asked.plus(Duration::from_secs(seconds.into())));
        Self { grant, renew, rebind, until }
    }

    fn lease(&self) -> Lease {
        let Grant { address, prefix_length, server, ref routes, .. } = self.grant;
        let address = Prefix { address: address.into(), length: prefix_length };
        Lease { address, server, routes: routes.clone(), until: self.until }
    }

    /// End of renewing or rebinding.
    const fn end(&self, rebinds: bool) -> Instant {
        if rebinds { self.until } else { self.rebind }
    }

    /// Next request: halfway to the end.
    fn again(&self, now: Instant, rebinds: bool) -> Instant {
        let least = RENEWALS.min(Duration::from_secs(self.grant.seconds[0].into()) / 8);
        now.plus((self.end(rebinds).since(now) / 2).max(least))
    }
}

/// `Renewing` with `rebinds` is REBINDING.
#[derive(Debug)]
enum State {
    Init { at: Instant },
    Selecting { sent: u32, due: Instant },
    Requesting { offer: Grant, asked: Instant, sent: u32, due: Instant },
    Checking { granted: Granted, probes: u8, due: Instant },
    Bound { granted: Granted },
    Renewing { granted: Granted, asked: Instant, rebinds: bool, due: Instant },
}

#[derive(Debug)]
pub(super) struct Client {
    mac: MacAddr,
    chance: ChaCha12Rng,
    xid: u32,
    begun: Instant,
    state: State,
    failures: u32,
    error: LeaseError,
    outputs: VecDeque<Output>,
}

impl Client {
    pub(super) fn new(mac: MacAddr, seed: [u8; 32], now: Instant) -> Self {
        Self {
            mac,
            chance: ChaCha12Rng::from_seed(seed),
            xid: 0,
            begun: now,
            state: State::Init { at: now },
            failures: 0,
            error: LeaseError::default(),
            outputs: VecDeque::new(),
        }
    }

    pub(super) const fn error(&self) -> LeaseError {
        self.error
    }

    pub(super) const fn checking(&self) -> Option<Ipv4Addr> {
        match &self.state {
            State::Checking { granted, .. } => Some(granted.grant.address),
            _ => None,
        }
    }

    /// Drain the outputs after each other call.
    pub(super) fn poll(&mut self) -> Option<Output> {
        self.outputs.pop_front()
    }

    pub(super) fn poll_timeout(&self) -> Instant {
        match &self.state {
            State::Init { at: due }
            | State::Selecting { due, .. }
            | State::Requesting { due, .. }
            | State::Checking { due, .. } => *due,
            State::Bound { granted } => granted.renew,
            State::Renewing { granted, rebinds, due, .. } => granted.end(*rebinds).min(*due),
        }
    }

    pub(super) fn handle_timeout(&mut self, now: Instant, counters: &mut FrameCounters) {
        // A late event may be followed by another.
        while self.poll_timeout() <= now {
            self.step(now, counters);
        }
    }

    fn step(&mut self, now: Instant, counters: &mut FrameCounters) {
        let state = mem::replace(&mut self.state, State::Init { at: now });
        self.state = match state {
            State::Init { .. } => {
                self.begin(now);
                self.discover(now, 0)
            }
            State::Selecting { sent, .. } => self.discover(now, sent),
            State::Requesting { offer, sent: REQUESTS, .. } => {
                self.error = LeaseError::Unconfirmed(offer.address);
                self.back_off(now, Duration::ZERO)
            }
            State::Requesting { offer, asked, sent, .. } => self.request(now, offer, asked, sent),
            State::Checking { granted, probes: PROBES, .. } => self.bind(granted, counters),
            State::Checking { granted, probes, .. } => {
                self.outputs.push_back(Output::Probe(granted.grant.address));
                State::Checking { granted, probes: probes + 1, due: now.plus(PROBE_INTERVAL) }
            }
            // A stopped process may find its lease expired.
            State::Bound { granted } | State::Renewing { granted, .. } if granted.until <= now => {
                self.lose(now, counters)
            }
            State::Renewing { granted, asked, rebinds, .. }
                if rebinds == (granted.rebind <= now) =>
            {
                self.renew(now, granted, asked)
            }
            State::Bound { granted } | State::Renewing { granted, .. } => {
                self.begin(now);
                self.renew(now, granted, now)
            }
        };
    }

    pub(super) fn handle_message(
        &mut self,
        now: Instant,
        bytes: &[u8],
        counters: &mut FrameCounters,
    ) {
        let Ok(Reply { xid, mac, response }) = message::parse(bytes) else {
            counters.dhcp_bad += 1;
            return;
        };
        if mac != self.mac || xid != self.xid {
            counters.not_for_us += 1; // many are broadcast
            return;
        }
        let Ok(response) = response else {
            counters.dhcp_bad += 1;
            if matches!(self.state, State::Selecting { .. } | State::Requesting { .. }) {
                self.error = LeaseError::Unusable;
            }
            return;
        };
        let state = mem::replace(&mut self.state, State::Init { at: now });
        self.state = match (state, response) {
            (State::Selecting { .. }, Response::Offer(offer)) => self.request(now, offer, now, 0),
            (State::Requesting { offer, asked, .. }, Response::Ack(grant))
                if grant.server == offer.server && grant.address == offer.address =>
            {
                let granted = Granted::new(grant, asked);
                State::Checking { granted, probes: 0, due: now }
            }
            (State::Requesting { offer, .. }, Response::Nak { server })
                if server == offer.server =>
            {
                counters.dhcp_refused += 1;
                self.error = LeaseError::Refused(offer.address);
                self.back_off(now, Duration::ZERO)
            }
            (State::Renewing { granted, asked, rebinds, .. }, Response::Ack(grant))
                if (rebinds || grant.server == granted.grant.server)
                    && grant.address == granted.grant.address =>
            {
                self.bind(Granted::new(grant, asked), counters)
            }
            (State::Renewing { granted, rebinds, .. }, Response::Nak { server })
                if rebinds || server == granted.grant.server =>
            {
                counters.dhcp_refused += 1;
                self.lose(now, counters)
            }
            (state, _) => {
                counters.dhcp_unused += 1;
                state
            }
        };
        self.handle_timeout(now, counters); // the first probe is due
    }

    /// Another host has the address being [probed](Self::checking).
    pub(super) fn decline(&mut self, now: Instant, by: MacAddr, counters: &mut FrameCounters) {
        let state = mem::replace(&mut self.state, State::Init { at: now });
        let State::Checking { granted, .. } = state else {
            self.state = state;
            return;
        };
        counters.dhcp_declined += 1;
        let Grant { address, server, .. } = granted.grant;
        self.error = LeaseError::InUse(address, by);
        let (requested, server) = (Some(address), Some(server));
        let decline = self.message(now, DhcpMessageType::Decline);
        self.send(Request { requested, server, ..decline }, None);
        self.state = self.back_off(now, DECLINED);
    }

    /// A client that is kept starts over.
    pub(super) fn release(&mut self, now: Instant, counters: &mut FrameCounters) {
        let state = mem::replace(&mut self.state, State::Init { at: now });
        if let State::Bound { granted } | State::Renewing { granted, .. } = state {
            let Grant { address, server, .. } = granted.grant;
            self.begin(now);
            let release = self.message(now, DhcpMessageType::Release);
            let release = Request { client: address, server: Some(server), ..release };
            self.send(release, Some(server));
            self.state = self.lose(now, counters);
        }
    }

    /// Responses to earlier requests become void.
    fn begin(&mut self, now: Instant) {
        (self.xid, self.begun) = (self.chance.next_u32(), now);
    }

    fn discover(&mut self, now: Instant, sent: u32) -> State {
        self.send(self.message(now, DhcpMessageType::Discover), None);
        State::Selecting { sent: sent + 1, due: now.plus(self.pause(sent)) }
    }

    fn request(&mut self, now: Instant, offer: Grant, asked: Instant, sent: u32) -> State {
        let (requested, server) = (Some(offer.address), Some(offer.server));
        let request = self.message(now, DhcpMessageType::Request);
        self.send(Request { requested, server, ..request }, None);
        State::Requesting { offer, asked, sent: sent + 1, due: now.plus(self.pause(sent)) }
    }

    /// Asks the lease's server, and from `rebind` on any server.
    fn renew(&mut self, now: Instant, granted: Granted, asked: Instant) -> State {
        let Grant { address, server, .. } = granted.grant;
        let rebinds = granted.rebind <= now;
        let request = self.message(now, DhcpMessageType::Request);
        self.send(Request { client: address, ..request }, (!rebinds).then_some(server));
        let due = granted.again(now, rebinds);
        State::Renewing { granted, asked, rebinds, due }
    }

    fn bind(&mut self, granted: Granted, counters: &mut FrameCounters) -> State {
        self.failures = 0;
        counters.dhcp_leases += 1;
        self.outputs.push_back(Output::Lease(Some(granted.lease())));
        State::Bound { granted }
    }

    fn lose(&mut self, now: Instant, counters: &mut FrameCounters) -> State {
        counters.dhcp_lost += 1;
        self.error = LeaseError::Unanswered;
        self.outputs.push_back(Output::Lease(None));
        self.back_off(now, Duration::ZERO)
    }

    /// A backoff: no server makes the client send without end.
    fn back_off(&mut self, now: Instant, least: Duration) -> State {
        let pause = self.pause(self.failures).max(least);
        self.failures += 1;
        State::Init { at: now.plus(pause) }
    }

    fn pause(&mut self, count: u32) -> Duration {
        let [first, most] = RETRANSMIT;
        let pause = (first * 2_u32.saturating_pow(count.min(16))).min(most);
        // three to five quarters
        let milliseconds = u64::try_from(pause.as_millis()).unwrap_or(u64::MAX);
        let chance = self.chance.next_u64() % (milliseconds / 2 + 1);
        Duration::from_millis(milliseconds * 3 / 4 + chance)
    }

    fn message(&self, now: Instant, kind: DhcpMessageType) -> Request {
        let secs = u16::try_from(now.since(self.begun).as_secs()).unwrap_or(u16::MAX);
        let client = Ipv4Addr::UNSPECIFIED;
        Request { kind, xid: self.xid, secs, mac: self.mac, client, requested: None, server: None }
    }

    /// `to`: unicast, `None`: broadcast.
    fn send(&mut self, request: Request, to: Option<Ipv4Addr>) {
        self.outputs.push_back(Output::Send { to, from: request.client, bytes: request.bytes() });
    }
}
