//! Rings that other processes write, and the descriptor by which writers wake this process.

use std::{
    io, mem,
    net::IpAddr,
    os::fd::{AsFd, OwnedFd},
};

use roce_transport::wire::{FrameFields, Ident, NetHeader};
use rustix::event::{EventfdFlags, eventfd};

use super::{hello::Hello, paths::MAX_PAIRS};
use crate::{
    cancel::Uncancelled,
    link::{
        DatagramMeta, DatagramRun,
        arrival::Arrival,
        rings::{Incoming, LONGEST, Reader, RunHeader},
    },
};

pub(in crate::link) struct Inbox {
    pub(super) wakeup: OwnedFd,
    pub(super) rings: Vec<Ring>,
    /// Number of sleeping threads.
    sleepers: u32,
    /// The next receive reads `wakeup`: another process may have written there.
    pub(super) reads_wakeup: bool,
    buffer: Box<[u8]>,
}

pub(super) struct Ring {
    purpose: Hello,
    dst: IpAddr,
    channel: Incoming,
}

impl Inbox {
    pub(super) fn new() -> io::Result<Self> {
        let wakeup = eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)?;
        let buffer = vec![0; LONGEST].into();
        Ok(Self { wakeup, rings: Vec::new(), sleepers: 0, reads_wakeup: false, buffer })
    }

    pub(super) fn add(
        &mut self,
        purpose: Hello,
        dst: IpAddr,
        socket: OwnedFd,
        reader: Reader,
    ) -> io::Result<()> {
        if self.rings.len() >= MAX_PAIRS {
            return Err(io::ErrorKind::QuotaExceeded.into());
        }
        let channel = Incoming::accept(socket, reader, self.wakeup.as_fd())?;
        channel.reader.set_asleep(self.sleepers > 0);
        self.rings.push(Ring { purpose, dst, channel });
        Ok(())
    }

    pub(super) fn forget(&mut self, address: IpAddr) {
        self.rings.retain(|ring| ring.dst != address);
    }

    pub(super) fn update(&mut self) {
        self.rings.iter_mut().for_each(|ring| ring.channel.update());
    }

    pub(super) fn drop_ended(&mut self) {
        self.rings.retain(|ring| !(ring.channel.is_closed && ring.channel.reader.is_empty()));
    }

    /// Whether the owner of this term forwards datagrams of an address. `Some(false)`: that owner
    /// has ended.
    pub(super) fn is_forwarding(&self, address: IpAddr, term: u64) -> Option<bool> {
        let is_owner = |ring: &&Ring| ring.dst == address && ring.purpose == Hello::Forward(term);
        self.rings.iter().filter(is_owner).map(|ring| !ring.channel.is_closed).max()
    }

    /// True if there are rings, and each has delivered before.
    pub(in crate::link) fn is_settled(&self) -> bool {
        !self.rings.is_empty() && self.rings.iter().all(|ring| !ring.channel.reader.never_read())
    }

    /// Hands over some of the arrived runs and returns their number.
    pub(in crate::link) fn receive(&mut self, sink: &mut dyn FnMut(&DatagramRun<'_>)) -> usize {
        let Self { rings, buffer, sleepers, reads_wakeup, wakeup } = self;
        let mut count = 0;
        // before the rings: a run written afterwards wakes a sleeping thread
        let is_awaited = |ring: &Ring| *sleepers > 0 && !ring.channel.reader.is_empty();
        if mem::take(reads_wakeup) || rings.iter().any(is_awaited) {
            let _ = rustix::io::read(wakeup, &mut [0; 8]);
        }
        for Ring { purpose, dst, channel } in &mut *rings {
            count += channel.read(*sleepers > 0, buffer, |header, bytes| match *purpose {
                Hello::From(src) => hand_over([src, *dst], header, bytes, sink),
                _ => {
                    if let Some((arrival, bytes)) = bytes.split_first_chunk() {
                        Arrival::decode(arrival).hand_over(*dst, bytes, sink);
                    }
                }
            });
        }
        if rings.iter().any(|ring| ring.channel.is_broken) {
            let _uncancelled = Uncancelled::begin();
            rings.retain(|ring| !ring.channel.is_broken);
        }
        count
    }

    /// True if there is nothing to receive.
    pub(in crate::link) fn park(&mut self) -> bool {
        self.sleepers += 1;
        self.rings.iter().fold(true, |quiet, ring| ring.channel.reader.park() & quiet)
    }

    pub(in crate::link) fn unpark(&mut self) {
        self.sleepers = self.sleepers.saturating_sub(1);
        if self.sleepers == 0 {
            self.rings.iter().for_each(|ring| ring.channel.reader.set_asleep(false));
        }
    }
}

fn hand_over(
    [src, dst]: [IpAddr; 2],
    header: RunHeader,
    bytes: &[u8],
    sink: &mut dyn FnMut(&DatagramRun<'_>),
) {
    let RunHeader { segment, traffic_class, hop_limit, src_port, checksum_verified, .. } = header;
    let meta = DatagramMeta { checksum_verified, ..DatagramMeta::default() };
    let ident = Ident::Known { id: 0, dont_fragment: true };
    let frame = FrameFields::default();
    let net = NetHeader { src, dst, src_port, traffic_class, hop_limit, ident, frame };
    sink(&DatagramRun { net: &net, bytes, segment, meta });
}
