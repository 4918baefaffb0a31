//! What a datagram rsocket knows of its peers.

use std::{
    collections::BTreeMap,
    net::{IpAddr, SocketAddr},
    time::Duration,
};

use roce_transport::{addr::Qpn, time::Instant};

use roce_provider::AddressHandle;

/// Most peers that are known at a time. Of others nothing is lost: they are looked up again.
const MOST: usize = 4096;
/// Time without a word of a peer after which a datagram takes the way through UDP again, where a
/// restarted peer can give its queue pair number.
pub(super) const SILENCE: Duration = Duration::from_secs(1);

/// A peer.
#[derive(Debug)]
pub(super) struct Peer {
    /// Its address, with the scope of a link-local one.
    pub(super) address: SocketAddr,
    /// The way from a queue pair of ours; `None` where another process has the device of the own
    /// address.
    pub(super) way: Option<Way>,
    /// The own address that it knows; `None`: the one to which the UDP socket is bound.
    pub(super) own: Option<IpAddr>,
    /// Its queue pair, once it has told.
    pub(super) qpn: Option<Qpn>,
    /// When it has spoken, or was asked to.
    pub(super) heard: Instant,
    used: u64,
}

/// A way from a queue pair of ours.
#[derive(Debug)]
pub(super) struct Way {
    /// Index of the endpoint.
    pub(super) endpoint: usize,
    pub(super) handle: AddressHandle,
    /// Most bytes of data.
    pub(super) most: usize,
}

impl Peer {
    /// One that has not spoken yet.
    pub(super) const fn new(address: SocketAddr, way: Option<Way>, own: Option<IpAddr>) -> Self {
        Self { address, way, own, qpn: None, heard: Instant::ZERO, used: 0 }
    }

    /// The way to its queue pair, if both are known and it was not silent for long.
    pub(super) fn direct(&self, now: Instant) -> Option<(&Way, Qpn)> {
        let is_known = now.since(self.heard) < SILENCE;
        self.way.as_ref().zip(self.qpn).filter(|_| is_known)
    }
}

/// Peers by address and port.
#[derive(Debug, Default)]
pub(super) struct Peers {
    all: BTreeMap<(IpAddr, u16), Peer>,
    turn: u64,
}

impl Peers {
    pub(super) fn get(&mut self, address: SocketAddr) -> Option<&mut Peer> {
        self.turn += 1;
        let peer = self.all.get_mut(&key(address))?;
        peer.used = self.turn;
        Some(peer)
    }

    /// Adds one, in the place of the one that was not needed for the longest time if there are too
    /// many.
    pub(super) fn add(&mut self, mut peer: Peer) {
        if self.all.len() >= MOST
            && let Some(oldest) = self.all.iter().min_by_key(|(_, peer)| peer.used)
        {
            let oldest = *oldest.0;
            self.all.remove(&oldest);
        }
        self.turn += 1;
        peer.used = self.turn;
        self.all.insert(key(peer.address), peer);
    }
}

/// True if both are the same port of the same address.
pub(super) fn is_same(one: SocketAddr, other: SocketAddr) -> bool {
    key(one) == key(other)
}

const fn key(address: SocketAddr) -> (IpAddr, u16) {
    (address.ip(), address.port())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_peer_that_was_not_needed_for_the_longest_time_makes_room() {
        let mut peers = Peers::default();
        let at = |port: usize| SocketAddr::from(([10, 0, 0, 1], port as u16));
        for port in 1..=MOST {
            peers.add(Peer::new(at(port), None, None));
        }
        assert!(peers.get(at(1)).is_some());
        peers.add(Peer::new(at(MOST + 1), None, None));
        assert!(peers.get(at(2)).is_none());
        assert!(peers.get(at(1)).is_some() && peers.get(at(MOST + 1)).is_some());
        assert_eq!(peers.all.len(), MOST);
    }
}
