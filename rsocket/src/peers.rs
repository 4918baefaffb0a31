use std::{
    collections::BTreeMap,
    net::{IpAddr, SocketAddr},
    time::Duration,
};

use roce_transport::{addr::Qpn, time::Instant};

use roce_provider::AddressHandle;

/// Most known peers. Others are resolved again, without loss.
const MOST: usize = 4096;
/// After this silence, datagrams go through UDP again, to learn a restarted peer's queue pair
/// number.
pub(super) const SILENCE: Duration = Duration::from_secs(1);

#[derive(Debug)]
pub(super) struct Peer {
    /// With a link-local scope.
    pub(super) address: SocketAddr,
    /// `None` if another process has the local address's device.
    pub(super) path: Option<Path>,
    /// The local address that it knows; `None`: the UDP socket's.
    pub(super) own: Option<IpAddr>,
    pub(super) qpn: Option<Qpn>,
    /// Last message, or last request for a message.
    pub(super) heard: Instant,
    used: u64,
}

#[derive(Debug)]
pub(super) struct Path {
    pub(super) endpoint: usize,
    pub(super) handle: AddressHandle,
    /// Most data bytes.
    pub(super) most: usize,
}

impl Peer {
    pub(super) const fn new(address: SocketAddr, path: Option<Path>, own: Option<IpAddr>) -> Self {
        Self { address, path, own, qpn: None, heard: Instant::ZERO, used: 0 }
    }

    /// `None` if unknown, or silent for [`SILENCE`].
    pub(super) fn direct(&self, now: Instant) -> Option<(&Path, Qpn)> {
        let is_known = now.since(self.heard) < SILENCE;
        self.path.as_ref().zip(self.qpn).filter(|_| is_known)
    }
}

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
