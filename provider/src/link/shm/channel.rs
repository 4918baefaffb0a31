//! Channels between two devices of the host: a ring each way.

use std::{io, mem, net::IpAddr, os::fd::OwnedFd, sync::Arc, time::Duration};

use roce_transport::{
    share::IdPartition,
    time::Instant,
    wire::{FrameFields, Ident, NetHeader},
};

use super::{
    peer::ForwardHeader,
    socket::{is_closed, poll_with, wakeup},
    witness::{Witness, Witnesses},
};
use crate::link::{
    Datagram, DatagramMeta, DatagramRun,
    rings::{Reader, RunHeader, Sender, Writer},
};

/// Time between two attempts to connect to an address's socket.
pub(super) const RETRY: Duration = Duration::from_millis(100);

/// Channel to another device, through a ring that this one writes.
pub(super) enum OutgoingChannel {
    /// There is none, and none is requested before this time.
    Absent(Instant),
    /// Likewise: the service receives at the address. Its clients can be requested directly.
    Served(Instant),
    /// Requested, not yet granted.
    Requested(Request),
    Open(Box<OpenChannel>),
}

/// A channel that is not yet granted.
pub(super) struct Request {
    pub(super) socket: OwnedFd,
    pub(super) writer: Writer,
    /// Index of the interface of the addresses.
    pub(super) interface: u32,
    /// Time at which it is made again: who has not answered by then may be stopped, and another
    /// process may have the address.
    pub(super) until: Instant,
}

pub(super) struct OpenChannel {
    socket: OwnedFd,
    pub(super) sender: Sender,
    pub(super) interface: u32,
    /// The reader's own partition, if there may be several processes at the address, and it forwards to
    /// others.
    pub(super) forwards_but: Option<IdPartition>,
    /// The reader is stopped. Perhaps another process has the address by now.
    pub(super) renewal: Option<Request>,
    /// Number of times that it was asked for while the reader was stopped.
    pub(super) renewals: u32,
    /// True if something was sent that the reader is not woken for yet.
    pub(super) is_used: bool,
    /// What tells which connections with the address are over when the reader has ended.
    pub(super) witness: Option<Witness>,
}

/// Answer to a request.
struct Answer {
    /// What wakes the reader.
    wakeup: OwnedFd,
    /// The reader's partition, if it has one.
    partition: Option<IdPartition>,
    /// The claim table of the reader's address, if that can be shared.
    claims: Option<OwnedFd>,
}

impl OutgoingChannel {
    /// The channel, if it is open.
    pub(super) fn open(&mut self) -> Option<&mut OpenChannel> {
        if let Self::Open(channel) = self { Some(channel) } else { None }
    }

    /// Opens if there is an answer, and closes if the other process has ended. `ends`: the addresses
    /// that it is between.
    pub(super) fn update(&mut self, now: Instant, ends: [IpAddr; 2], witnesses: &mut Witnesses) {
        *self = match mem::replace(self, Self::Absent(now)) {
            Self::Requested(request) => match request.answer() {
                Ok(Some(Answer { wakeup, partition: own, claims })) => {
                    let Request { socket, writer, interface, .. } = request;
                    let sender = Sender::new(writer, wakeup);
                    let (renewal, renewals) = (None, 0);
                    let forwards_but = own.filter(|_| claims.is_some());
                    let witness = claims.and_then(|claims| witnesses.witness(ends, &claims));
                    Self::Open(Box::new(OpenChannel {
                        socket,
                        sender,
                        interface,
                        forwards_but,
                        renewal,
                        renewals,
                        is_used: false,
                        witness,
                    }))
                }
                Ok(None) => Self::Requested(request),
                Err(_) => Self::Absent(now.plus(RETRY)),
            },
            Self::Open(mut channel) => {
                channel.renew(now, ends, witnesses);
                if is_closed(&channel.socket) {
                    if let Some(witness) = channel.witness.take() {
                        witnesses.ask(now, witness);
                    }
                    Self::Absent(now)
                } else {
                    Self::Open(channel)
                }
            }
            absent @ (Self::Absent(_) | Self::Served(_)) => absent,
        };
    }
}

/// What leads to an address.
pub(super) struct Ways {
    /// The channel to the process that has the address.
    pub(super) main: OutgoingChannel,
    /// Those to other processes there, requested or open.
    pub(super) direct: Vec<Direct>,
    /// Time from which others are looked for.
    pub(super) probe_at: Instant,
}

/// A channel to a process that does not receive for the address.
pub(super) struct Direct {
    pub(super) partition: IdPartition,
    pub(super) channel: OutgoingChannel,
    /// Time up to which what goes by the other channel is waited for, so that nothing overtakes it;
    /// `None`: that is over.
    drains_until: Option<Instant>,
}

/// Longest time that is waited for the other channel to be read.
const DRAINING: Duration = Duration::from_millis(100);

impl Direct {
    pub(super) const fn new(now: Instant, partition: IdPartition, request: Request) -> Self {
        let channel = OutgoingChannel::Requested(request);
        Self { partition, channel, drains_until: Some(now.plus(DRAINING)) }
    }
}

/// Number of direct channels to an address: one for each process that there can be.
const MAX_DIRECT: usize = IdPartition::COUNT as usize;

impl Ways {
    pub(super) const fn new(main: OutgoingChannel) -> Self {
        Self { main, direct: Vec::new(), probe_at: Instant::ZERO }
    }

    /// The channels that are open, with the partition of the process that a direct one is to.
    pub(super) fn open(&mut self) -> impl Iterator<Item = (Option<IdPartition>, &mut OpenChannel)> {
        let direct = self.direct.iter_mut().map(|it| (Some(it.partition), &mut it.channel));
        let all = [(None, &mut self.main)].into_iter().chain(direct);
        all.filter_map(|(partition, channel)| Some((partition, channel.open()?)))
    }

    /// The channel for datagrams to this partition.
    fn to(&mut self, now: Instant, partition: Option<IdPartition>) -> Option<&mut OpenChannel> {
        let Self { main, direct, .. } = self;
        let main = main.open();
        let Some(direct) = direct.iter_mut().find(|it| Some(it.partition) == partition) else {
            return main;
        };
        let Some(channel) = direct.channel.open() else { return main };
        let is_drained = main.as_ref().is_none_or(|main| main.sender.is_drained());
        direct.drains_until.take_if(|until| is_drained || *until <= now);
        if direct.drains_until.is_some() { main } else { Some(channel) }
    }

    /// True if there is one for a run.
    pub(super) fn take(&self, datagrams: &[u8], segment: usize) -> bool {
        let is_open = |channel: &OutgoingChannel| matches!(channel, OutgoingChannel::Open(_));
        is_open(&self.main)
            || one_partition(datagrams, segment).is_some_and(|partition| {
                self.direct.iter().any(|it| it.partition == partition && is_open(&it.channel))
            })
    }

    /// The process for which another is to be looked for now, if the datagrams are for one that may
    /// have a channel of its own.
    pub(super) fn wants(&self, now: Instant, datagrams: &[u8]) -> Option<IdPartition> {
        if now < self.probe_at || self.direct.len() >= MAX_DIRECT {
            return None;
        }
        let but = match &self.main {
            OutgoingChannel::Open(channel) => Some(channel.forwards_but?),
            OutgoingChannel::Served(_) => None,
            OutgoingChannel::Absent(_) | OutgoingChannel::Requested(_) => return None,
        };
        let partition = partition_of(datagrams).filter(|partition| Some(*partition) != but)?;
        self.direct.iter().all(|it| it.partition != partition).then_some(partition)
    }

    /// Opens what has an answer, and forgets what has ended.
    pub(super) fn update(&mut self, now: Instant, ends: [IpAddr; 2], witnesses: &mut Witnesses) {
        self.main.update(now, ends, witnesses);
        self.direct.retain_mut(|Direct { channel, .. }| {
            channel.update(now, ends, witnesses);
            match channel {
                OutgoingChannel::Requested(request) => now < request.until,
                OutgoingChannel::Open(_) => true,
                OutgoingChannel::Absent(_) | OutgoingChannel::Served(_) => false,
            }
        });
    }

    /// Sends a run through the channels that [take](Self::take) it.
    pub(super) fn send(
        &mut self,
        now: Instant,
        header: RunHeader,
        datagrams: &[u8],
    ) -> io::Result<()> {
        if self.direct.is_empty() || one_partition(datagrams, header.segment).is_some() {
            return self.send_to(now, partition_of(datagrams), header, datagrams);
        }
        for datagram in datagrams.chunks(header.segment) {
            let length = datagram.len();
            let header = RunHeader { length, segment: length, ..header };
            self.send_to(now, partition_of(datagram), header, datagram)?;
        }
        Ok(())
    }

    fn send_to(
        &mut self,
        now: Instant,
        partition: Option<IdPartition>,
        header: RunHeader,
        datagrams: &[u8],
    ) -> io::Result<()> {
        let channel = self.to(now, partition).ok_or(io::ErrorKind::NotConnected)?;
        channel.is_used = true;
        channel.sender.send(header, datagrams)
    }

    /// Closes channels that were found to be broken.
    pub(super) fn close_broken(&mut self, now: Instant) {
        let is_broken = |channel: &mut OutgoingChannel| {
            channel.open().is_some_and(|channel| channel.sender.is_broken())
        };
        if is_broken(&mut self.main) {
            self.main = OutgoingChannel::Absent(now.plus(RETRY));
        }
        self.direct.retain_mut(|direct| !is_broken(&mut direct.channel));
    }
}

/// Partition of the process that a datagram is for; `None`: no queue pair of any.
fn partition_of(datagram: &[u8]) -> Option<IdPartition> {
    // the upper six bits of the destination's number
    IdPartition::new(datagram.get(5)? >> 2)
}

/// That of a run, if all its datagrams are for one process.
fn one_partition(datagrams: &[u8], segment: usize) -> Option<IdPartition> {
    let mut partitions = datagrams.chunks(segment.max(1)).map(partition_of);
    let first = partitions.next()??;
    partitions.all(|other| other == Some(first)).then_some(first)
}

impl Request {
    /// The reader's answer, once it has come.
    fn answer(&self) -> io::Result<Option<Answer>> {
        let mut own = [0];
        let Some((_, descriptors)) = poll_with(&self.socket, &mut own)? else { return Ok(None) };
        let mut descriptors = descriptors.into_iter();
        let first = descriptors.next().ok_or(io::ErrorKind::ConnectionRefused)?;
        let (wakeup, partition) = (wakeup(first)?, IdPartition::new(own[0]));
        Ok(Some(Answer { wakeup, partition, claims: descriptors.next() }))
    }
}

impl OpenChannel {
    /// Goes on through another ring if that has been granted, and the reader of this one still reads
    /// nothing. What is unread in it is lost to the new reader; the former one reads it when it goes
    /// on.
    fn renew(&mut self, now: Instant, ends: [IpAddr; 2], witnesses: &mut Witnesses) {
        let Some(request) = self.renewal.take() else { return };
        match request.answer() {
            Ok(None) => self.renewal = Some(request),
            Ok(Some(Answer { wakeup, partition, claims })) if self.sender.is_stalled() => {
                self.forwards_but = partition.filter(|_| claims.is_some());
                self.sender.redirect(request.writer, wakeup);
                self.socket = request.socket;
                let witness = claims.and_then(|claims| witnesses.witness(ends, &claims));
                if let Some(former) = mem::replace(&mut self.witness, witness) {
                    witnesses.ask(now, former);
                }
            }
            Ok(Some(_)) | Err(_) => {}
        }
    }
}

/// Channel from another device.
pub(super) struct IncomingChannel {
    pub(super) origin: Origin,
    pub(super) dst: IpAddr,
    /// Shows that the other process has ended; `None`: something else does.
    socket: Option<Arc<OwnedFd>>,
    pub(super) reader: Reader,
    /// The other process has ended, or has been told to send elsewhere; what it wrote before is still
    /// to be read.
    pub(super) closed: bool,
    /// The ring holds what cannot be.
    pub(super) broken: bool,
}

/// Where the datagrams of a channel come from.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Origin {
    Address(IpAddr),
    /// The owner of the own address forwards them, and says of each where it comes from.
    Owner,
    /// A peer process at the own address passes on what is not for it, in the same way.
    Peer,
}

impl IncomingChannel {
    pub(super) const fn new(
        origin: Origin,
        dst: IpAddr,
        socket: Option<Arc<OwnedFd>>,
        reader: Reader,
    ) -> Self {
        Self { origin, dst, socket, reader, closed: false, broken: false }
    }

    /// Notes whether the other process has ended.
    pub(super) fn update(&mut self) {
        self.closed |= self.socket.as_ref().is_some_and(|socket| is_closed(socket));
    }

    /// Has the other process send elsewhere.
    pub(super) fn close(&mut self) {
        self.socket = None;
        self.closed = true;
    }

    /// Hands over the datagrams of a run that was read into `buffer`.
    pub(super) fn hand_over(
        &self,
        header: RunHeader,
        buffer: &[u8],
        sink: &mut dyn FnMut(&DatagramRun<'_>),
    ) {
        let RunHeader { length, segment, traffic_class, hop_limit, src_port, checksum_verified } =
            header;
        let dst = self.dst;
        let Origin::Address(src) = self.origin else {
            if let Some((net, meta, bytes)) = ForwardHeader::read(&header, dst, &buffer[..length]) {
                sink(&Datagram { net: &net, bytes, meta }.into());
            }
            return;
        };
        let meta = DatagramMeta { checksum_verified, ..DatagramMeta::default() };
        let net = NetHeader {
            src,
            dst,
            src_port,
            traffic_class,
            hop_limit,
            ident: Ident::Known { id: 0, dont_fragment: true },
            frame: FrameFields::default(),
        };
        sink(&DatagramRun { net: &net, bytes: &buffer[..length], segment, meta });
    }
}
