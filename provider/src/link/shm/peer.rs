//! Peer processes: others that have an address of which this process is the owner.

use std::{
    collections::BTreeSet,
    mem,
    net::{IpAddr, Ipv6Addr},
    os::fd::OwnedFd,
};

use roce_transport::{
    addr::{Gid, ROCE_UDP_PORT},
    cm::ServiceId,
    share::IdPartition,
    wire::{FrameFields, Ident, NetHeader},
};
use rustix::{io::Errno, net::RecvFlags};

use crate::{
    cancel::Uncancelled,
    link::{
        Datagram, DatagramMeta,
        rings::{LONGEST, RunHeader, Sender},
    },
};

/// Number of services that a peer can name in one message.
pub(super) const MAX_SERVICES: usize = 8192;

/// Number of peers at an address that are remembered: more than there are partitions, since one is
/// a peer before it has chosen its own.
const MAX_PEERS: usize = 2 * IdPartition::COUNT as usize;
/// Number of announcements of a peer that are read in one go.
const UPDATES: usize = 4;
/// The peers of all addresses, and what is forwarded to them.
#[derive(Default)]
pub(super) struct Peers {
    peers: Vec<Peer>,
    scratch: Vec<u8>,
    /// Number of datagrams that were for peers.
    forwarded: u64,
    /// True if something was written to a peer's ring since it was woken.
    written: bool,
    /// True if a peer's connection was closed.
    ended: bool,
    /// Number of looks at what a peer says.
    #[cfg(test)]
    pub(super) looks: usize,
}

/// Another process at one of this one's addresses.
pub(super) struct Peer {
    pub(super) address: IpAddr,
    pub(super) socket: OwnedFd,
    /// `None`: not announced yet.
    pub(super) partition: Option<IdPartition>,
    pub(super) services: BTreeSet<ServiceId>,
    sender: Sender,
}

impl Peers {
    /// Adds a peer. If there are too many, it takes the place of one that has not announced its
    /// partition; if all have, it is disconnected.
    pub(super) fn add(&mut self, peer: Peer) {
        let here = self.peers.iter().filter(|other| other.address == peer.address);
        if here.count() >= MAX_PEERS {
            let is_silent = |it: &Peer| it.address == peer.address && it.partition.is_none();
            let Some(silent) = self.peers.iter().position(is_silent) else { return };
            self.peers.remove(silent);
        }
        self.peers.push(peer);
    }

    /// Forgets peers that have ended, it seems, and disconnects them.
    pub(super) fn retain(&mut self, mut is: impl FnMut(&mut Peer) -> bool) {
        let Self { peers, ended, .. } = self;
        peers.retain_mut(|peer| {
            let stays = is(peer);
            *ended |= !stays;
            stays
        });
    }

    /// Forgets the peers at an address.
    pub(super) fn forget(&mut self, address: IpAddr) {
        self.peers.retain(|peer| peer.address != address);
    }

    pub(super) const fn forwarded(&self) -> u64 {
        self.forwarded
    }

    /// True if one has ended, it seems, since this was last called.
    pub(super) const fn take_ended(&mut self) -> bool {
        mem::replace(&mut self.ended, false)
    }

    /// True if one has not announced its partition yet.
    pub(super) fn has_unannounced(&self) -> bool {
        self.peers.iter().any(|peer| peer.partition.is_none())
    }

    /// Reads what peers announce, and forgets those that have ended. Returns true if one has
    /// announced something.
    pub(super) fn read_updates(&mut self) -> bool {
        let mut message = Vec::new();
        let mut is_news = false;
        #[cfg(test)]
        {
            self.looks += self.peers.len();
        }
        self.retain(|peer| {
            message.resize(1 + 8 * MAX_SERVICES, 0);
            for _ in 0..UPDATES {
                match rustix::net::recv(&peer.socket, &mut message[..], RecvFlags::DONTWAIT) {
                    Ok((_, 0)) => return false,
                    Ok((_, length)) => {
                        peer.update(&message[..length]);
                        is_news = true;
                    }
                    Err(error) => return matches!(error, Errno::AGAIN | Errno::INTR),
                }
            }
            true // more are read next time
        });
        is_news
    }

    /// Forwards a datagram to the first peer that `is` accepts. Returns false if there is none.
    pub(super) fn forward(&mut self, datagram: &Datagram<'_>, is: impl Fn(&Peer) -> bool) -> bool {
        let found = self.peers.iter().position(is);
        if let Some(index) = found {
            self.forward_to(index, datagram);
        }
        found.is_some()
    }

    fn forward_to(&mut self, index: usize, datagram: &Datagram<'_>) {
        let Some(header) = ForwardHeader::write(datagram, &mut self.scratch) else { return };
        // a ring that is full or broken loses it, as a wire would
        let _ = self.peers[index].sender.send(header, &self.scratch);
        self.forwarded += 1;
        self.written = true;
    }

    /// Writes what found no room and wakes peers that sleep. Returns true if nothing is left to
    /// write.
    pub(super) fn flush(&mut self) -> bool {
        if !self.written {
            return true;
        }
        let _uncancelled = Uncancelled::begin(); // closes what leads to those that have ended
        self.retain(|peer| peer.sender.write_backlog().is_ok());
        self.written = false;
        for peer in &self.peers {
            self.written |= !peer.sender.wake();
        }
        !self.written
    }
}

impl Peer {
    /// One that has announced nothing yet.
    pub(super) const fn new(address: IpAddr, socket: OwnedFd, sender: Sender) -> Self {
        Self { address, socket, partition: None, services: BTreeSet::new(), sender }
    }

    /// Takes an announcement: partition and services.
    fn update(&mut self, message: &[u8]) {
        let Some((&partition, services)) = message.split_first() else { return };
        self.partition = IdPartition::new(partition);
        let (services, _) = services.as_chunks();
        self.services =
            services.iter().map(|service| ServiceId(u64::from_ne_bytes(*service))).collect();
    }
}

/// The announcement that the owner of an address gets from a peer.
pub(super) fn announcement(partition: IdPartition, services: &BTreeSet<ServiceId>) -> Vec<u8> {
    let services = services.iter().take(MAX_SERVICES);
    let services = services.flat_map(|service| service.0.to_ne_bytes());
    [partition.get()].into_iter().chain(services).collect()
}

/// Header before a forwarded datagram: its source, what is known of its identification, and whether
/// it has met a receive buffer that fills.
pub(super) struct ForwardHeader([u8; ForwardHeader::LEN]);

impl ForwardHeader {
    pub(super) const LEN: usize = 24;

    fn of(net: &NetHeader, congested: bool) -> Self {
        let mut header = [0; Self::LEN];
        let (kind, id) = match net.ident {
            Ident::Likely(id) => (0, id),
            Ident::Known { id, dont_fragment } => (1 + u8::from(dont_fragment), id),
        };
        header[..16].copy_from_slice(&Gid::from(net.src).0);
        header[16..18].copy_from_slice(&net.src_port.to_ne_bytes());
        header[18..20].copy_from_slice(&id.to_ne_bytes());
        header[20] = kind;
        header[21] = congested.into();
        Self(header)
    }

    /// Writes a datagram behind its header, and returns what a ring is to say of both; `None` for
    /// what is longer than any packet.
    pub(super) fn write(datagram: &Datagram<'_>, to: &mut Vec<u8>) -> Option<RunHeader> {
        let &Datagram { net, bytes, meta } = datagram;
        let length = Self::LEN + bytes.len();
        if length > LONGEST {
            return None;
        }
        to.clear();
        to.extend_from_slice(&Self::of(net, meta.congested).0);
        to.extend_from_slice(bytes);
        let NetHeader { traffic_class, hop_limit, .. } = *net;
        Some(RunHeader {
            length,
            segment: length,
            traffic_class,
            hop_limit,
            src_port: ROCE_UDP_PORT, // that of the datagram is in its own header
            checksum_verified: meta.checksum_verified,
        })
    }

    /// The network header, what else is known, and the datagram behind it, with what the ring says
    /// of it.
    pub(super) fn read<'a>(
        header: &RunHeader,
        dst: IpAddr,
        bytes: &'a [u8],
    ) -> Option<(NetHeader, DatagramMeta, &'a [u8])> {
        let (forward, datagram) = bytes.split_first_chunk::<{ Self::LEN }>()?;
        let (src, rest) = forward.split_first_chunk::<16>()?;
        let word = |at: usize| u16::from_ne_bytes([rest[at], rest[at + 1]]);
        let (src_port, id) = (word(0), word(2));
        let ident = match rest[4] {
            0 => Ident::Likely(id),
            kind => Ident::Known { id, dont_fragment: kind > 1 },
        };
        let src = Ipv6Addr::from(*src).to_canonical();
        let &RunHeader { traffic_class, hop_limit, checksum_verified, .. } = header;
        let net = NetHeader {
            src,
            dst,
            src_port,
            traffic_class,
            hop_limit,
            ident,
            frame: FrameFields::default(),
        };
        let congested = rest[5] != 0;
        Some((net, DatagramMeta { checksum_verified, congested, not_ready: false }, datagram))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_forward_header_says_what_was_known() {
        for (src, dst) in [("10.0.0.1", "10.0.0.2"), ("fe80::1", "2001:db8::2")] {
            let (src, dst) = (src.parse().unwrap(), dst.parse().unwrap());
            for ident in [
                Ident::Likely(0x1234),
                Ident::Known { id: 0xFFFF, dont_fragment: false },
                Ident::Known { id: 1, dont_fragment: true },
            ] {
                let net = NetHeader {
                    src,
                    dst,
                    src_port: 49_152,
                    traffic_class: 3,
                    hop_limit: 64,
                    ident,
                    frame: FrameFields::default(),
                };
                let congested = src.is_ipv4();
                let meta = DatagramMeta { congested, ..DatagramMeta::default() };
                let bytes = [&ForwardHeader::of(&net, congested).0[..], b"datagram"].concat();
                let header = RunHeader {
                    length: bytes.len(),
                    segment: bytes.len(),
                    traffic_class: 3,
                    hop_limit: 64,
                    src_port: ROCE_UDP_PORT,
                    checksum_verified: false,
                };
                assert_eq!(
                    ForwardHeader::read(&header, dst, &bytes),
                    Some((net, meta, &b"datagram"[..]))
                );
            }
        }
        let header = RunHeader {
            length: 23,
            segment: 23,
            traffic_class: 0,
            hop_limit: 0,
            src_port: ROCE_UDP_PORT,
            checksum_verified: false,
        };
        assert_eq!(ForwardHeader::read(&header, [10, 0, 0, 2].into(), &[0; 23]), None);
    }
}
