//! Channels to other processes of this host.
//!
//! A datagram for a queue pair goes through a channel to the process with its partition. All
//! others, and all datagrams without a channel, take the network stack.

use std::{collections::BTreeMap, io, net::IpAddr, os::fd::OwnedFd, time::Duration};

use roce_transport::{
    adapter::Transmit,
    addr::ROCE_UDP_PORT,
    share::{Addressee, IdPartition},
    time::Instant,
};

use super::{
    hello::Hello,
    names::{connect, of_process},
};
use crate::{
    cancel::Uncancelled,
    link::{
        DatagramRun, SharedRuns,
        arrival::Arrival,
        epoll::{Readable, watch},
        rings::{LONGEST, Outgoing, RunHeader},
    },
};

/// Time between attempts to find a process.
pub(super) const RETRY: Duration = Duration::from_millis(100);
/// The same at an own address.
const FORWARD_RETRY: Duration = Duration::from_millis(1);
const RESPONSE_TIMEOUT: Duration = Duration::from_secs(1);
/// Exponential backoff between attempts to write runs that found no room.
const WRITE_RETRY: Duration = Duration::from_micros(50);
const WRITE_RETRY_MOST: Duration = Duration::from_millis(2);
/// Most pairs of addresses, and most channels.
pub(super) const MAX_PAIRS: usize = 1024;

#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(super) struct Destination {
    pub(super) src: IpAddr,
    pub(super) dst: IpAddr,
    /// `None`: the process has all numbers.
    pub(super) partition: Option<IdPartition>,
}

#[derive(Default)]
pub(in crate::link) struct Paths {
    /// By source and destination. No source: forwarding to processes at an own address.
    pub(super) pairs: BTreeMap<(Option<IpAddr>, IpAddr), Channels>,
    /// Time from which pairs without a channel may be forgotten.
    sweep_at: Instant,
    pub(super) write_at: Option<Instant>,
    write_wait: Duration,
    scratch: Vec<u8>,
    pub(in crate::link) sent: SharedRuns,
    pub(in crate::link) forwarded: u64,
}

#[derive(Default)]
pub(super) struct Channels {
    pub(super) channels: Vec<Channel>,
    /// Next attempts to find a process with all numbers, and those with partitions.
    look_at: [Instant; 2],
}

pub(super) struct Channel {
    /// Partition of the reader; `None`: all numbers.
    to: Option<IdPartition>,
    ring: Outgoing,
    /// Deadline of the response.
    until: Instant,
    /// The reader must be woken.
    needs_wakeup: bool,
    /// The channel leads from an owner to a peer.
    is_owners: bool,
}

impl Channels {
    /// True even before the channel is open.
    fn has(&self, partition: Option<IdPartition>) -> bool {
        self.channels.iter().any(|it| it.to.is_none() || it.to == partition)
    }

    fn open_to(&mut self, partition: Option<IdPartition>) -> Option<&mut Channel> {
        self.channels.iter_mut().find(|it| it.is_for(partition))
    }

    /// True if open channels reach all datagrams of a run.
    fn can_carry(&self, datagrams: &[u8], segment: usize) -> bool {
        let is_carried = |partition| self.channels.iter().any(|it| it.is_for(partition));
        !self.channels.is_empty()
            && datagrams.chunks(segment.max(1)).map(partition_of).all(is_carried)
    }

    /// Sends each datagram of a run to its process. False if a channel is missing.
    fn send(&mut self, header: RunHeader, datagrams: &[u8]) -> io::Result<bool> {
        if let Some(partition) = one_partition(datagrams, header.segment) {
            let channel = self.open_to(partition);
            return channel.map_or(Ok(false), |it| it.send(header, datagrams).map(|()| true));
        }
        if !self.can_carry(datagrams, header.segment) {
            return Ok(false);
        }
        for datagram in datagrams.chunks(header.segment.max(1)) {
            let length = datagram.len();
            let channel =
                self.open_to(partition_of(datagram)).ok_or(io::ErrorKind::NotConnected)?;
            channel.send(RunHeader { length, segment: length, ..header }, datagram)?;
        }
        Ok(true)
    }

    fn replace(&mut self, channel: Channel) {
        self.channels.retain(|it| it.to != channel.to);
        self.channels.push(channel);
    }

    /// Wakes sleeping readers and counts the wakeups. True if everything is written.
    fn wake(&mut self, wakeups: &mut u64) -> bool {
        let used = self.channels.iter_mut().filter(|it| it.needs_wakeup);
        used.fold(true, |written, it| {
            it.needs_wakeup = false;
            *wakeups += u64::from(it.ring.wake());
            it.ring.is_written() && written
        })
    }
}

impl Channel {
    fn request(
        now: Instant,
        epoll: &OwnedFd,
        to: Option<IdPartition>,
        socket: OwnedFd,
        purpose: Hello,
    ) -> io::Result<Self> {
        let ring = Outgoing::request(socket, &purpose.message())?;
        watch(epoll, &ring.socket, Readable::News)?;
        let is_owners = matches!(purpose, Hello::Forward(1..));
        Ok(Self { to, ring, until: now.plus(RESPONSE_TIMEOUT), needs_wakeup: false, is_owners })
    }

    fn is_for(&self, partition: Option<IdPartition>) -> bool {
        self.ring.is_open() && (self.to.is_none() || self.to == partition)
    }

    fn send(&mut self, header: RunHeader, bytes: &[u8]) -> io::Result<()> {
        self.needs_wakeup = true;
        self.ring.send(header, bytes)
    }

    /// Opens on a response. False if the other process has ended or does not respond.
    fn update(&mut self, now: Instant) -> bool {
        self.ring.update().is_ok()
            && (self.ring.is_open() || now < self.until)
            && !self.ring.is_broken
    }
}

impl Paths {
    pub(super) fn can_carry(&self, bytes: &[u8], run: &Transmit) -> bool {
        let channels = self.pairs.get(&(Some(run.src), run.dst));
        channels.is_some_and(|it| it.can_carry(run.payload(bytes), run.segment))
    }

    /// Sweeps unused pairs at the limit. True if there is room.
    fn make_room(&mut self, now: Instant) -> bool {
        if self.pairs.len() >= MAX_PAIRS && self.sweep_at <= now {
            self.sweep_at = now.plus(RETRY);
            self.pairs
                .retain(|_, it| it.look_at.iter().any(|at| now < *at) || !it.channels.is_empty());
        }
        self.pairs.len() < MAX_PAIRS
    }

    /// Asks a process for a channel, unless just tried; `at_once`: even then.
    pub(super) fn request(
        &mut self,
        now: Instant,
        epoll: &OwnedFd,
        Destination { src, dst, partition }: Destination,
        interface: u32,
        at_once: bool,
    ) {
        let kind = usize::from(partition.is_some());
        let is_due = match self.pairs.get(&(Some(src), dst)) {
            Some(channels) => {
                !channels.has(partition) && (at_once || channels.look_at[kind] <= now)
            }
            None => !dst.is_multicast() && self.make_room(now),
        };
        if !is_due {
            return;
        }
        let _uncancelled = Uncancelled::begin();
        let count = self.pairs.values().map(|it| it.channels.len()).sum::<usize>();
        let names = partition.map(Some).into_iter().chain([None]);
        let found = names.filter(|_| count < MAX_PAIRS).find_map(|to| {
            let socket = connect(&of_process(dst, interface, to)).ok()?;
            Some(Channel::request(now, epoll, to, socket, Hello::From(src)))
        });
        let channels = self.pairs.entry((Some(src), dst)).or_default();
        let look_at = &mut channels.look_at[kind];
        *look_at = now.plus(RETRY);
        if let Some(Ok(channel)) = found {
            channels.channels.push(channel);
            *look_at = now; // perhaps there are more
        }
    }

    /// Sends runs between two addresses through their channels, as [`Link::send`] does. `None`: no
    /// channel. Runs without room wait here: a slow reader must not hold up the others.
    ///
    /// [`Link::send`]: crate::link::Link::send
    pub(in crate::link) fn send(
        &mut self,
        now: Instant,
        bytes: &[u8],
        runs: &[Transmit],
        trusted: bool,
    ) -> Option<io::Result<usize>> {
        let first = runs.first()?;
        let channels = self.pairs.get_mut(&(Some(first.src), first.dst))?;
        let mut taken = 0;
        let mut result = Ok(true);
        for run in runs {
            result = channels.send(RunHeader::of(run, trusted), run.payload(bytes));
            if !matches!(result, Ok(true)) {
                break;
            }
            taken += 1;
        }
        self.sent.runs += taken as u64;
        if !channels.wake(&mut self.sent.wakeups) {
            self.write_at = Some(now.plus(self.write_wait.max(WRITE_RETRY)));
        }
        if result.as_ref().is_err_and(|error| error.kind() == io::ErrorKind::InvalidData) {
            let _uncancelled = Uncancelled::begin(); // descriptors are closed
            channels.channels.retain(|it| !it.ring.is_broken);
        }
        // an error is returned when its run is the first
        if taken > 0 { Some(Ok(taken)) } else { result.err().map(Err) }
    }

    /// Adds a channel for forwarding to the peer behind a socket.
    pub(super) fn add_forward(
        &mut self,
        now: Instant,
        epoll: &OwnedFd,
        address: IpAddr,
        partition: IdPartition,
        (socket, term): (OwnedFd, u64),
    ) -> io::Result<()> {
        let purpose = Hello::Forward(term);
        let channel = Channel::request(now, epoll, Some(partition), socket, purpose)?;
        self.pairs.entry((None, address)).or_default().replace(channel);
        Ok(())
    }

    /// Forwards a run to the process with this partition at an own address. A run to an unreachable
    /// process is lost. False if there is no process, by `is_there`.
    pub(super) fn forward(
        &mut self,
        now: Instant,
        epoll: &OwnedFd,
        (interface, partition): (u32, IdPartition),
        run: &DatagramRun<'_>,
        is_there: impl FnOnce() -> bool,
    ) -> bool {
        let address = run.net.dst;
        let has = self.pairs.get(&(None, address)).is_some_and(|it| it.has(Some(partition)));
        if !has {
            if !is_there() {
                return false;
            }
            let pair = self.pairs.entry((None, address)).or_default();
            if now < pair.look_at[0] {
                return true;
            }
            let _uncancelled = Uncancelled::begin();
            let (to, purpose) = (Some(partition), Hello::Forward(0));
            let found = connect(&of_process(address, interface, to))
                .and_then(|found| Channel::request(now, epoll, to, found, purpose));
            match found {
                Ok(channel) => pair.replace(channel),
                Err(_) => pair.look_at[0] = now.plus(FORWARD_RETRY),
            }
        }
        let channels = self.pairs.get_mut(&(None, address)).into_iter();
        let mut channels = channels.flat_map(|it| &mut it.channels);
        let channel = channels.find(|it| it.to == Some(partition));
        let length = Arrival::LEN + run.bytes.len();
        let arrival = Arrival::of(run, false).filter(|_| length <= LONGEST);
        let (Some(channel), Some(arrival)) = (channel, arrival) else { return true };
        self.scratch.clear();
        self.scratch.extend_from_slice(&arrival.encode());
        self.scratch.extend_from_slice(run.bytes);
        let header = RunHeader {
            length,
            segment: length,
            traffic_class: 0, // in the arrival instead
            hop_limit: 0,
            src_port: ROCE_UDP_PORT,
            checksum_verified: run.meta.checksum_verified,
        };
        // a full or broken ring loses the run
        let _ = channel.send(header, &self.scratch);
        self.forwarded += run.payloads().count() as u64;
        true
    }

    pub(super) fn wake_forwards(&mut self, now: Instant, address: IpAddr) {
        let channels = self.pairs.get_mut(&(None, address));
        if channels.is_some_and(|it| !it.wake(&mut self.sent.wakeups)) {
            self.write_at = Some(now.plus(self.write_wait.max(WRITE_RETRY)));
        }
    }

    /// Datagrams already written are still read.
    pub(super) fn resign(&mut self, address: IpAddr) {
        self.pairs.remove(&(None, address));
    }

    pub(super) fn forget(&mut self, address: IpAddr) {
        self.pairs.retain(|(src, _), _| *src != Some(address));
        self.resign(address);
    }

    pub(super) fn write_backlogs(&mut self, now: Instant) {
        if self.write_at.is_none_or(|due| now < due) {
            return;
        }
        let _uncancelled = Uncancelled::begin();
        self.write_wait = WRITE_RETRY_MOST.min(self.write_wait.max(WRITE_RETRY) * 2);
        let mut is_written = true;
        for channels in self.pairs.values_mut() {
            channels.channels.retain_mut(|it| {
                it.needs_wakeup = true;
                it.ring.write_backlog().is_ok()
            });
            is_written &= channels.wake(&mut self.sent.wakeups);
        }
        self.write_at = (!is_written).then(|| now.plus(self.write_wait));
        if is_written {
            self.write_wait = WRITE_RETRY;
        }
    }

    /// Opens channels with a response, and forgets those of ended processes. Returns the processes
    /// behind formerly open channels, and whether a peer of this owner has ended.
    pub(super) fn update(&mut self, now: Instant) -> (Vec<Destination>, bool) {
        let (mut ended, mut has_peer_ended) = (Vec::new(), false);
        for (&(src, dst), channels) in &mut self.pairs {
            for gone in channels.channels.extract_if(.., |it| !it.update(now)) {
                has_peer_ended |= gone.is_owners;
                let src = src.filter(|_| gone.ring.is_open());
                ended.extend(src.map(|src| Destination { src, dst, partition: gone.to }));
            }
        }
        (ended, has_peer_ended)
    }
}

/// Partition of the process that a datagram is for. `None`: no particular process.
pub(super) fn partition_of(datagram: &[u8]) -> Option<IdPartition> {
    // the upper six bits of the destination QPN; for QP1, the message has the partition
    let partition = IdPartition::new(datagram.get(5)? >> 2);
    partition.or_else(|| match Addressee::of(datagram) {
        Addressee::Partition(partition) => Some(partition),
        Addressee::Service(_) | Addressee::Unknown => None,
    })
}

fn one_partition(datagrams: &[u8], segment: usize) -> Option<Option<IdPartition>> {
    let mut all = datagrams.chunks(segment.max(1)).map(partition_of);
    let first = all.next()?;
    all.all(|other| other == first).then_some(first)
}
