//! Channels to other processes of this host.
//!
//! A datagram for a queue pair goes by a channel to the process with its partition. Without a
//! channel it takes the network stack, as do datagrams for no queue pair in particular.

use std::{collections::BTreeMap, io, net::IpAddr, os::fd::OwnedFd, time::Duration};

use roce_transport::{
    adapter::Transmit,
    addr::ROCE_UDP_PORT,
    share::{Addressee, IdPartition},
    time::Instant,
};

use super::{
    epoll::{Readable, watch},
    hello::Hello,
    names::connect_directly,
};
use crate::{
    cancel::Uncancelled,
    link::{
        DatagramRun, SharedRuns,
        arrival::Arrival,
        rings::{LONGEST, Outgoing, RunHeader},
    },
};

/// Time between two attempts to find a process.
pub(super) const RETRY: Duration = Duration::from_millis(100);
/// The same for one at an own address.
const FORWARD_RETRY: Duration = Duration::from_millis(1);
/// Time that a process has to answer a request.
const ANSWER: Duration = Duration::from_secs(1);
/// Exponential backoff between attempts to write runs that found no room.
const WRITE_RETRY: Duration = Duration::from_micros(50);
const WRITE_RETRY_MOST: Duration = Duration::from_millis(2);
/// Greatest number of pairs of addresses, and of channels.
pub(super) const MAX_PAIRS: usize = 1024;

/// A process that a channel leads to.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(super) struct Destination {
    pub(super) src: IpAddr,
    pub(super) dst: IpAddr,
    /// `None`: it has all numbers.
    pub(super) partition: Option<IdPartition>,
}

#[derive(Default)]
pub(in crate::link) struct Paths {
    /// By source and destination. Without a source they lead to processes at an own address, for
    /// datagrams that this one has received for them.
    pairs: BTreeMap<(Option<IpAddr>, IpAddr), Ways>,
    /// Time from which pairs without a channel may be forgotten.
    sweep_at: Instant,
    pub(super) write_at: Option<Instant>,
    write_wait: Duration,
    scratch: Vec<u8>,
    pub(in crate::link) sent: SharedRuns,
    pub(in crate::link) forwarded: u64,
}

/// The channels from one address to another.
#[derive(Default)]
struct Ways {
    ways: Vec<(Option<IdPartition>, Way)>,
    /// Times of the next attempts to find processes: one with all numbers, and those with
    /// partitions.
    look_at: [Instant; 2],
}

struct Way {
    channel: Outgoing,
    /// Time that there is for an answer.
    until: Instant,
    /// Something was sent that the reader is not woken for yet.
    is_used: bool,
    /// It leads from an owner to a peer.
    is_owners: bool,
}

impl Ways {
    /// The channel for datagrams to this partition.
    fn to(&mut self, partition: Option<IdPartition>) -> Option<&mut Way> {
        let mut ways = self.ways.iter_mut();
        ways.find(|(to, way)| leads(*to, way, partition)).map(|(_, way)| way)
    }

    /// True if there is such a channel, whether or not it has been answered.
    fn has(&self, partition: Option<IdPartition>) -> bool {
        self.ways.iter().any(|(to, _)| to.is_none() || *to == partition)
    }

    fn take(&self, datagrams: &[u8], segment: usize) -> bool {
        let is_taken = |partition| self.ways.iter().any(|(to, way)| leads(*to, way, partition));
        match one_partition(datagrams, segment) {
            _ if self.ways.is_empty() => false,
            Some(partition) => is_taken(partition),
            None => datagrams.chunks(segment.max(1)).map(partition_of).all(is_taken),
        }
    }

    /// Sends a run through the channels that [take](Self::take) it, to each process its datagrams.
    /// Returns false if there are none.
    fn send(&mut self, header: RunHeader, datagrams: &[u8]) -> io::Result<bool> {
        if let Some(partition) = one_partition(datagrams, header.segment) {
            return self.to(partition).map_or(Ok(false), |way| way.send(header, datagrams));
        }
        if !self.take(datagrams, header.segment) {
            return Ok(false);
        }
        for datagram in datagrams.chunks(header.segment.max(1)) {
            let length = datagram.len();
            let way = self.to(partition_of(datagram)).ok_or(io::ErrorKind::NotConnected)?;
            way.send(RunHeader { length, segment: length, ..header }, datagram)?;
        }
        Ok(true)
    }

    /// Wakes the readers that sleep, which is counted. Returns true if everything is written.
    fn wake(&mut self, wakeups: &mut u64) -> bool {
        let used = self.ways.iter_mut().filter(|(_, way)| way.is_used);
        used.fold(true, |written, (_, way)| {
            way.is_used = false;
            *wakeups += u64::from(way.channel.wake());
            way.channel.is_written() && written
        })
    }
}

/// True if a channel to this partition, or to all of them, is for datagrams to that one.
const fn leads(to: Option<IdPartition>, way: &Way, partition: Option<IdPartition>) -> bool {
    way.channel.is_open()
        && match (to, partition) {
            (None, _) => true,
            (Some(to), Some(partition)) => to.get() == partition.get(),
            (Some(_), None) => false,
        }
}

impl Way {
    fn new(channel: Outgoing, now: Instant, is_owners: bool) -> Self {
        Self { channel, until: now.plus(ANSWER), is_used: false, is_owners }
    }

    fn send(&mut self, header: RunHeader, bytes: &[u8]) -> io::Result<bool> {
        self.is_used = true;
        self.channel.send(header, bytes)?;
        Ok(true)
    }

    /// Opens if there is an answer. Returns false if the other process has ended, or does not
    /// answer.
    fn update(&mut self, now: Instant) -> bool {
        self.channel.update().is_ok()
            && (self.channel.is_open() || now < self.until)
            && !self.channel.is_broken
    }
}

impl Paths {
    pub(super) fn take(&self, bytes: &[u8], run: &Transmit) -> bool {
        let ways = self.pairs.get(&(Some(run.src), run.dst));
        ways.is_some_and(|ways| ways.take(payload(bytes, run), run.segment))
    }

    /// True if there is room for another pair of addresses.
    fn has_room(&mut self, now: Instant) -> bool {
        if self.pairs.len() >= MAX_PAIRS && self.sweep_at <= now {
            self.sweep_at = now.plus(RETRY);
            self.pairs
                .retain(|_, ways| ways.look_at.iter().any(|at| now < *at) || !ways.ways.is_empty());
        }
        self.pairs.len() < MAX_PAIRS
    }

    /// Asks a process for a channel, unless one was looked for just before; `at_once`: even then.
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
            Some(ways) => !ways.has(partition) && (at_once || ways.look_at[kind] <= now),
            None => !dst.is_multicast() && self.has_room(now),
        };
        if !is_due {
            return;
        }
        let _uncancelled = Uncancelled::begin();
        let mut names = partition.map(Some).into_iter().chain([None]);
        let found = names.find_map(|partition| {
            Some((partition, connect_directly(dst, interface, partition).ok()?))
        });
        let channels = || self.pairs.values().map(|ways| ways.ways.len()).sum::<usize>();
        let found = found.filter(|_| channels() < MAX_PAIRS).and_then(|(partition, socket)| {
            Some((partition, offer(epoll, socket, Hello::From(src)).ok()?))
        });
        let ways = self.pairs.entry((Some(src), dst)).or_default();
        let look_at = &mut ways.look_at[kind];
        *look_at = now.plus(RETRY);
        if let Some((partition, channel)) = found {
            ways.ways.push((partition, Way::new(channel, now, false)));
            *look_at = now; // perhaps there are more
        }
    }

    /// Sends runs between two addresses through their channels, as [`Link::send`] does; `None` if
    /// there is none. Runs without room wait here: a slow reader must not keep the others.
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
        let ways = self.pairs.get_mut(&(Some(first.src), first.dst))?;
        let mut taken = 0;
        let mut result = Ok(true);
        for run in runs {
            result = ways.send(RunHeader::of(run, trusted), payload(bytes, run));
            if !matches!(result, Ok(true)) {
                break;
            }
            taken += 1;
        }
        self.sent.runs += taken as u64;
        if !ways.wake(&mut self.sent.wakeups) {
            self.write_at = Some(now.plus(self.write_wait.max(WRITE_RETRY)));
        }
        if result.as_ref().is_err_and(|error| error.kind() == io::ErrorKind::InvalidData) {
            let _uncancelled = Uncancelled::begin(); // descriptors are closed
            ways.ways.retain(|(_, way)| !way.channel.is_broken);
        }
        // an error shows when its run is the first
        if taken > 0 { Some(Ok(taken)) } else { result.err().map(Err) }
    }

    /// Has a channel to a peer at an own address from now on.
    pub(super) fn add_forward(
        &mut self,
        address: IpAddr,
        partition: IdPartition,
        channel: Outgoing,
        now: Instant,
        is_owners: bool,
    ) {
        let ways = &mut self.pairs.entry((None, address)).or_default().ways;
        ways.retain(|(to, _)| *to != Some(partition));
        ways.push((Some(partition), Way::new(channel, now, is_owners)));
    }

    /// Hands a run to the process with this partition at an own address. It is lost, as on a wire,
    /// if that cannot be reached. Returns false if there is none by `is_there`.
    pub(super) fn forward(
        &mut self,
        now: Instant,
        epoll: &OwnedFd,
        (interface, partition): (u32, IdPartition),
        run: &DatagramRun<'_>,
        is_there: impl FnOnce() -> bool,
    ) -> bool {
        let address = run.net.dst;
        let has = self.pairs.get(&(None, address)).is_some_and(|ways| ways.has(Some(partition)));
        if !has {
            if !is_there() {
                return false;
            }
            let [look_at, _] = &mut self.pairs.entry((None, address)).or_default().look_at;
            if now < *look_at {
                return true;
            }
            let _uncancelled = Uncancelled::begin();
            let channel = connect_directly(address, interface, Some(partition))
                .and_then(|socket| offer(epoll, socket, Hello::Forward(0)));
            let Ok(channel) = channel else {
                *look_at = now.plus(FORWARD_RETRY);
                return true;
            };
            self.add_forward(address, partition, channel, now, false);
        }
        let ways = self.pairs.get_mut(&(None, address)).into_iter().flat_map(|it| &mut it.ways);
        let way = ways.into_iter().find(|(to, _)| *to == Some(partition));
        let length = Arrival::LEN + run.bytes.len();
        let arrival = Arrival::of(run, false).filter(|_| length <= LONGEST);
        let (Some((_, way)), Some(arrival)) = (way, arrival) else { return true };
        self.scratch.clear();
        self.scratch.extend_from_slice(&arrival.encode());
        self.scratch.extend_from_slice(run.bytes);
        let header = RunHeader {
            length,
            segment: length,
            traffic_class: 0, // the arrival says it
            hop_limit: 0,
            src_port: ROCE_UDP_PORT,
            checksum_verified: run.meta.checksum_verified,
        };
        // a ring that is full or broken loses it, as a wire would
        let _ = way.send(header, &self.scratch);
        self.forwarded += run.payloads().count() as u64;
        true
    }

    /// Wakes the processes at an address that something was forwarded to.
    pub(super) fn wake_forwards(&mut self, now: Instant, address: IpAddr) {
        let ways = self.pairs.get_mut(&(None, address));
        if ways.is_some_and(|ways| !ways.wake(&mut self.sent.wakeups)) {
            self.write_at = Some(now.plus(self.write_wait.max(WRITE_RETRY)));
        }
    }

    /// True if something is for a process that has not answered yet.
    pub(in crate::link) fn has_waiting(&self) -> bool {
        let forwards = self.pairs.iter().filter(|((src, _), _)| src.is_none());
        let mut ways = forwards.flat_map(|(_, ways)| &ways.ways);
        ways.any(|(_, way)| !way.channel.is_open() && !way.channel.is_drained())
    }

    /// Leaves the datagrams of an address to another process. Written ones are still read.
    pub(super) fn resign(&mut self, address: IpAddr) {
        self.pairs.remove(&(None, address));
    }

    pub(super) fn forget(&mut self, address: IpAddr) {
        self.pairs.retain(|(src, _), _| *src != Some(address));
        self.resign(address);
    }

    /// Writes runs that found no room, if that is due.
    pub(super) fn write_backlogs(&mut self, now: Instant) {
        if self.write_at.is_none_or(|due| now < due) {
            return;
        }
        let _uncancelled = Uncancelled::begin();
        self.write_wait = WRITE_RETRY_MOST.min(self.write_wait.max(WRITE_RETRY) * 2);
        let mut is_written = true;
        for ways in self.pairs.values_mut() {
            ways.ways.retain_mut(|(_, way)| {
                way.is_used = true;
                way.channel.write_backlog().is_ok()
            });
            is_written &= ways.wake(&mut self.sent.wakeups);
        }
        self.write_at = (!is_written).then(|| now.plus(self.write_wait));
        if is_written {
            self.write_wait = WRITE_RETRY;
        }
    }

    /// Opens channels that have an answer, and forgets those of ended processes. Returns the
    /// processes that have had open ones, and whether a peer of this owner has ended.
    pub(super) fn update(&mut self, now: Instant) -> (Vec<Destination>, bool) {
        let (mut ended, mut has_peer_ended) = (Vec::new(), false);
        for (&(src, dst), ways) in &mut self.pairs {
            ways.ways.retain_mut(|(partition, way)| {
                let was_open = way.channel.is_open();
                let stays = way.update(now);
                has_peer_ended |= !stays && way.is_owners;
                let partition = *partition;
                let gone = src.filter(|_| !stays && was_open);
                ended.extend(gone.map(|src| Destination { src, dst, partition }));
                stays
            });
        }
        (ended, has_peer_ended)
    }

    #[cfg(test)]
    pub(super) fn channels(&self) -> usize {
        let ways = self.pairs.values().flat_map(|ways| &ways.ways);
        ways.filter(|(_, way)| way.channel.is_open()).count()
    }
}

fn offer(epoll: &OwnedFd, socket: OwnedFd, purpose: Hello) -> io::Result<Outgoing> {
    let channel = Outgoing::request(socket, &purpose.message())?;
    watch(epoll, &channel, Readable::News)?;
    Ok(channel)
}

pub(super) fn payload<'a>(bytes: &'a [u8], run: &Transmit) -> &'a [u8] {
    bytes.get(run.range.clone()).unwrap_or_default()
}

/// Partition of the process that a datagram is for; `None`: no process in particular.
pub(super) fn partition_of(datagram: &[u8]) -> Option<IdPartition> {
    // the upper six bits of the destination's number; for QP1 the message has it
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
