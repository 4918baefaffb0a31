//! Packets to devices of the same host through memory that two processes share, in the place of the
//! network stack.
//!
//! Each address that a link is bound to has a socket in the abstract name space of Unix sockets,
//! which is one per network namespace, as the addresses are. A process that is about to send to an
//! address tries to connect to the socket of that name. If there is one, and it belongs to the same
//! user, the sender makes a [ring](ring), sends the memory's descriptor, and gets an event
//! descriptor with which it can wake the receiver. Until the answer is there, and wherever there is
//! no such socket, packets take the network stack. The ring carries what the network would: runs of
//! whole packets, ICRC included.
//!
//! By the same socket a process finds the one that has the address that it wants itself, and
//! [shares](address) it.
//!
//! A connection of Unix sockets also shows at once that the other process has ended, however it
//! ended.

mod acquire;
mod address;
mod channel;
mod claim;
mod listener;
mod outgoing;
mod owner;
mod peer;
mod ring;
mod sender;
mod socket;

use std::{
    collections::BTreeMap,
    io,
    mem::MaybeUninit,
    net::IpAddr,
    os::fd::{AsFd, BorrowedFd, OwnedFd},
    sync::Arc,
    time::Duration,
};

use roce_transport::{cm::ServiceId, share::IdPartition, time::Instant};
use rustix::event::{EventfdFlags, Timespec, epoll, eventfd};

use super::{BATCH, Datagram, SharingLink};
use crate::cancel::Uncancelled;
use address::SharedAddresses;
use channel::{IncomingChannel, OutgoingChannel, RETRY};
use listener::{Hello, Listeners};
use owner::HANDOVER;
use ring::{Broken, LONGEST};
use socket::{is_closed, send_with, watch};

/// Time between two looks for processes that come and go, while no thread sleeps on the link.
const LOOK: Duration = Duration::from_millis(1);
/// Time after which runs that found no room are written again.
const WRITE_RETRY: Duration = Duration::from_micros(50);
/// Greatest number of pairs of addresses that are remembered, and of rings from other devices.
const MAX_PAIRS: usize = 1024;

/// Devices of this host, and the rings to and from them.
pub(super) struct ShmLink {
    /// Readable when any of the descriptors here is. Its descriptor never changes.
    epoll: OwnedFd,
    /// Wakeup eventfd: other processes write to it to wake this one.
    wakeup: OwnedFd,
    listeners: Listeners,
    outgoing: BTreeMap<(IpAddr, IpAddr), OutgoingChannel>,
    incoming: Vec<IncomingChannel>,
    /// True if addresses may be shared.
    shares: bool,
    /// True if all that is sent is what an adapter has built.
    trusted: bool,
    addresses: SharedAddresses,
    /// Time of the next look for processes that come and go.
    look_at: Instant,
    /// Time from which pairs without a channel may be forgotten.
    sweep_at: Instant,
    /// Number of threads that sleep until the descriptor is readable.
    sleepers: u32,
    /// Time at which runs that found no room are tried again.
    write_at: Option<Instant>,
    buffer: Box<[u8]>,
    sent_runs: u64,
}

impl ShmLink {
    /// `shares`: other processes may have the same addresses.
    pub(super) fn new(shares: bool) -> io::Result<Self> {
        let wakeup = eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)?;
        let epoll = epoll::create(epoll::CreateFlags::CLOEXEC)?;
        watch(&epoll, &wakeup)?;
        Ok(Self {
            epoll,
            wakeup,
            listeners: Listeners::default(),
            outgoing: BTreeMap::new(),
            incoming: Vec::new(),
            shares,
            trusted: false,
            addresses: SharedAddresses::default(),
            look_at: Instant::ZERO,
            sweep_at: Instant::ZERO,
            sleepers: 0,
            write_at: None,
            buffer: vec![0; LONGEST].into(),
            sent_runs: 0,
        })
    }

    /// Descriptor that is readable when there is something to do. Runs make it so only while a
    /// thread is [parked](Self::park).
    pub(super) fn descriptor(&self) -> BorrowedFd<'_> {
        self.epoll.as_fd()
    }

    /// Declares that all that is sent from now on is, byte for byte, what an adapter has built.
    pub(super) const fn set_trusted(&mut self) {
        self.trusted = true;
    }

    /// Chooses the partition of the numbers that this device has, `first` if it is free.
    ///
    /// # Errors
    /// [`io::ErrorKind::AddrInUse`] when as many share an address as can.
    pub(super) fn choose_partition(&mut self, first: u8) -> io::Result<()> {
        self.addresses.choose_partition(first)
    }

    /// True if another process reads the UDP socket of this address.
    pub(super) fn is_peer(&self, address: IpAddr) -> bool {
        self.addresses.is_peer(address)
    }

    /// Forwards a datagram to the process that it is for. Returns false if that is this one.
    pub(super) fn forward(&mut self, datagram: &Datagram<'_>) -> bool {
        self.addresses.forward(datagram)
    }

    /// Gives an address up.
    pub(super) fn forget(&mut self, address: IpAddr) {
        self.listeners.forget(address);
        self.outgoing.retain(|(src, _), _| *src != address);
        self.incoming.retain(|incoming| incoming.dst != address);
        if let Some(shared) = self.addresses.forget(address) {
            // others have the same socket, so that closing it does not take it out
            let _ = epoll::delete(&self.epoll, &shared.udp);
        }
    }

    /// Time at which it is to be [attended](Self::attend) to although its descriptor is not
    /// readable.
    pub(super) fn deadline(&self) -> Option<Instant> {
        self.addresses.search_at().into_iter().chain(self.write_at).min()
    }

    /// Does what is due besides receiving: accepts and forgets processes, writes what found no room.
    pub(super) fn attend(&mut self, now: Instant) {
        if self.write_at.is_some_and(|due| due <= now) {
            let _uncancelled = Uncancelled::begin(); // descriptors may be closed, here and below
            self.write_at = None;
            for outgoing in self.outgoing.values_mut() {
                let OutgoingChannel::Open(_, sender) = outgoing else { continue };
                if sender.write_backlog().is_err() {
                    *outgoing = OutgoingChannel::Absent(now.plus(RETRY));
                } else if !sender.wake() {
                    self.write_at = Some(now.plus(WRITE_RETRY));
                }
            }
            self.flush(now);
        }
        if self.addresses.search_at().is_some_and(|due| due <= now) {
            let _uncancelled = Uncancelled::begin();
            self.elect_owners(now);
        }
        if now < self.look_at && self.sleepers == 0 {
            return;
        }
        self.look_at = now.plus(LOOK);
        let mut events = [const { MaybeUninit::uninit() }; 1];
        if !matches!(
            epoll::wait(&self.epoll, &mut events, Some(&Timespec::default())),
            Ok(([_, ..], _))
        ) {
            return;
        }
        let _uncancelled = Uncancelled::begin();
        let _ = rustix::io::read(&self.wakeup, &mut [0; 8]);
        self.accept_pending();
        self.addresses.read_updates();
        self.elect_owners(now);
        self.outgoing.values_mut().for_each(|outgoing| outgoing.update(now));
        self.incoming.retain_mut(|incoming| {
            incoming.closed |= is_closed(&incoming.socket);
            !incoming.closed || !incoming.reader.is_empty()
        });
    }

    /// Accepts processes that ask for a ring or for an address. Those that are refused see that
    /// their connection is closed.
    fn accept_pending(&mut self) {
        for (pending, hello) in self.listeners.accept_pending(&self.epoll) {
            match hello {
                Hello::Ring(src, reader) => {
                    if self.incoming.len() < MAX_PAIRS
                        && send_with(&pending.socket, &[0], &[self.wakeup.as_fd()]).is_ok()
                    {
                        reader.set_asleep(self.sleepers > 0);
                        let socket = Arc::new(pending.socket);
                        self.incoming.push(IncomingChannel::new(
                            Some(src),
                            pending.dst,
                            socket,
                            reader,
                        ));
                    }
                }
                Hello::Share(wakeup) => {
                    let _ = self.addresses.accept_peer(pending.dst, pending.socket, wakeup);
                }
            }
        }
    }

    /// Finds a new owner for each address whose owner has ended.
    fn elect_owners(&mut self, now: Instant) {
        let Self { epoll, wakeup, listeners, addresses, .. } = self;
        let elect =
            |shared: &mut owner::SharedAddress| shared.elect_owner(now, epoll, wakeup, listeners);
        let granted: Vec<_> = addresses.iter_mut().filter_map(elect).collect();
        for (address, grant, owner) in granted {
            match self.attach_ring(address, grant.ring, owner) {
                Ok(()) => self.addresses.announce(address),
                Err(_) => self.addresses.search(address, now.plus(HANDOVER)),
            }
        }
    }

    /// Wakes the peers of shared addresses, and tries again later what finds no room.
    fn flush(&mut self, now: Instant) {
        if !self.addresses.flush() {
            self.write_at = Some(now.plus(WRITE_RETRY));
        }
    }

    /// True if there are rings from others, each of which has brought something before, and no
    /// thread sleeps.
    pub(super) fn is_settled(&self) -> bool {
        self.sleepers == 0
            && !self.incoming.is_empty()
            && self.incoming.iter().all(|incoming| !incoming.reader.is_unread())
    }

    /// Hands over runs that have arrived, some at a time; returns their number.
    pub(super) fn receive(&mut self, now: Instant, sink: &mut dyn FnMut(&Datagram<'_>)) -> usize {
        let mut count = 0;
        let mut broken = false;
        let Self { incoming, buffer, sleepers, addresses, .. } = self;
        let mut sink = |datagram: &Datagram<'_>| {
            if !addresses.forward(datagram) {
                sink(datagram);
            }
        };
        for incoming in incoming.iter_mut() {
            for _ in 0..BATCH {
                match incoming.reader.pop(buffer) {
                    Ok(Some(header)) => {
                        count += 1;
                        incoming.hand_over(header, buffer, &mut sink);
                    }
                    Ok(None) if *sleepers > 0 => {
                        incoming.reader.set_asleep(true);
                        if incoming.reader.is_empty() {
                            break;
                        }
                    }
                    Ok(None) => break,
                    Err(Broken) => {
                        broken = true;
                        incoming.broken = true;
                        break;
                    }
                }
            }
        }
        if broken {
            let _uncancelled = Uncancelled::begin();
            self.incoming.retain(|incoming| !incoming.broken);
        }
        self.flush(now);
        count
    }

    /// A thread is about to sleep on the descriptors. Returns true if there is nothing to receive.
    pub(super) fn park(&mut self) -> bool {
        self.sleepers += 1;
        self.incoming.iter().for_each(|incoming| incoming.reader.set_asleep(true));
        self.incoming.iter().all(|incoming| incoming.reader.is_empty())
    }

    /// A thread that slept on the descriptors is awake again.
    pub(super) fn unpark(&mut self) {
        self.sleepers = self.sleepers.saturating_sub(1);
        if self.sleepers == 0 {
            self.incoming.iter().for_each(|incoming| incoming.reader.set_asleep(false));
        }
        self.look_at = Instant::ZERO;
    }
}

impl SharingLink for ShmLink {
    fn partition(&self) -> Option<IdPartition> {
        self.addresses.partition()
    }

    fn claim(&mut self, service: ServiceId, address: IpAddr) -> io::Result<()> {
        self.addresses.claim(service, address)
    }

    fn is_claimed(&self, service: ServiceId, address: IpAddr) -> bool {
        self.addresses.is_claimed(service, address)
    }

    fn release(&mut self, service: ServiceId, address: IpAddr) {
        self.addresses.release(service, address);
    }

    fn shared_runs(&self) -> u64 {
        self.sent_runs
    }

    fn forwarded(&self) -> u64 {
        self.addresses.forwarded()
    }
}

#[cfg(test)]
mod tests;
