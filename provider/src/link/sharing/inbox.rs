//! Rings that other processes write, and the descriptor by which writers wake this process.

use std::{
    io,
    net::IpAddr,
    os::fd::{AsFd, OwnedFd},
};

use roce_transport::wire::{FrameFields, Ident, NetHeader};
use rustix::event::{EventfdFlags, eventfd};

use super::{hello::Hello, paths::MAX_PAIRS};
use crate::{
    cancel::Uncancelled,
    link::{
        BATCH, DatagramMeta, DatagramRun, RunSink,
        arrival::Arrival,
        descriptors::send_with,
        ensure,
        rings::{LONGEST, Reader, RunHeader, is_closed},
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
    socket: OwnedFd,
    reader: Reader,
    /// The other process has closed the channel. Runs written before are still read.
    is_closed: bool,
    /// The ring holds an impossible record.
    is_broken: bool,
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
        ensure(self.rings.len() < MAX_PAIRS, io::ErrorKind::QuotaExceeded)?;
        // the other process may have ended, after runs for this process
        let is_closed = send_with(&socket, &[0], &[self.wakeup.as_fd()]).is_err();
        reader.set_asleep(self.sleepers > 0);
        self.rings.push(Ring { purpose, dst, socket, reader, is_closed, is_broken: false });
        Ok(())
    }

    pub(super) fn forget(&mut self, address: IpAddr) {
        self.rings.retain(|ring| ring.dst != address);
    }

    pub(super) fn update(&mut self) {
        for ring in self.rings.iter_mut().filter(|ring| !ring.is_closed) {
            ring.is_closed = is_closed(&ring.socket);
        }
    }

    pub(super) fn drop_ended(&mut self) {
        self.rings.retain(|ring| !(ring.is_closed && ring.reader.is_empty()));
    }

    /// Whether the owner of this term forwards datagrams of an address. `Some(false)`: that owner
    /// has ended.
    pub(super) fn is_forwarding(&self, address: IpAddr, term: u64) -> Option<bool> {
        let is_owner = |ring: &&Ring| ring.dst == address && ring.purpose == Hello::Forward(term);
        self.rings.iter().filter(is_owner).map(|ring| !ring.is_closed).max()
    }

    /// True if there are rings, and each has delivered before.
    pub(in crate::link) fn is_settled(&self) -> bool {
        !self.rings.is_empty() && self.rings.iter().all(|ring| !ring.reader.never_read())
    }

    /// Hands over some of the arrived runs and returns their number.
    pub(in crate::link) fn receive(&mut self, sink: &mut RunSink<'_>) -> usize {
        let Self { rings, buffer, sleepers, reads_wakeup, wakeup } = self;
        let mut count = 0;
        for ring in &mut *rings {
            count += ring.receive(buffer, sink);
        }
        if rings.iter().any(|ring| ring.is_broken) {
            let _uncancelled = Uncancelled::begin();
            rings.retain(|ring| !ring.is_broken);
        }
        *reads_wakeup |= *sleepers > 0 && count > 0;
        // until the last run, the descriptor stays readable
        if *reads_wakeup && rings.iter().all(|ring| ring.reader.is_empty()) {
            *reads_wakeup = false;
            let _ = rustix::io::read(&*wakeup, &mut [0; 8]);
            // this may have read the signal of a later run
            if *sleepers > 0 && !park(rings) {
                let _ = rustix::io::write(wakeup, &1u64.to_ne_bytes());
            }
        }
        count
    }

    /// True if there is nothing to receive.
    pub(in crate::link) fn park(&mut self) -> bool {
        self.sleepers += 1;
        park(&self.rings)
    }

    pub(in crate::link) fn unpark(&mut self) {
        self.sleepers = self.sleepers.saturating_sub(1);
        if self.sleepers == 0 {
            self.rings.iter().for_each(|ring| ring.reader.set_asleep(false));
        }
    }
}

impl Ring {
    /// Hands over some runs and returns their number.
    fn receive(&mut self, buffer: &mut [u8], sink: &mut RunSink<'_>) -> usize {
        for count in 0..BATCH {
            let popped = self.reader.pop(buffer);
            self.is_broken = popped.is_err();
            let Ok(Some(header)) = popped else { return count };
            let bytes = &buffer[..header.length];
            if let Hello::From(src) = self.purpose {
                hand_over([src, self.dst], header, bytes, sink);
            } else if let Some((arrival, bytes)) = bytes.split_first_chunk() {
                Arrival::decode(arrival).hand_over(self.dst, bytes, sink);
            }
        }
        BATCH
    }
}

/// Requests wakeups by further runs. True if there is nothing to receive.
fn park(rings: &[Ring]) -> bool {
    rings.iter().fold(true, |quiet, ring| ring.reader.park() & quiet)
}

fn hand_over([src, dst]: [IpAddr; 2], header: RunHeader, bytes: &[u8], sink: &mut RunSink<'_>) {
    let RunHeader { segment, traffic_class, hop_limit, src_port, checksum_verified, .. } = header;
    let meta = DatagramMeta { checksum_verified, ..DatagramMeta::default() };
    let ident = Ident::Known { id: 0, dont_fragment: true };
    let frame = FrameFields::default();
    let net = NetHeader { src, dst, src_port, traffic_class, hop_limit, ident, frame };
    sink(&DatagramRun { net: &net, bytes, segment, meta });
}

#[cfg(test)]
mod tests {
    use rustix::net::{AddressFamily, SocketFlags, SocketType, socketpair};

    use super::*;
    use crate::{
        link::{descriptors::poll_with, rings::Outgoing},
        readiness::is_readable,
    };

    #[test]
    fn the_descriptor_is_readable_until_the_last_run() {
        let address = IpAddr::from([127, 0, 0, 1]);
        let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
        let (here, there) =
            socketpair(AddressFamily::UNIX, SocketType::SEQPACKET, flags, None).unwrap();
        let mut ring = Outgoing::request(here, &Hello::From(address).message()).unwrap();
        let (_, mut memory) = poll_with(&there, &mut [0; 64]).unwrap().unwrap();
        let reader = Reader::new(memory.pop().unwrap()).unwrap();
        let mut inbox = Inbox::new().unwrap();
        inbox.add(Hello::From(address), address, there, reader).unwrap();
        ring.update().unwrap();
        assert!(inbox.park());
        let header = RunHeader {
            length: 8,
            segment: 8,
            traffic_class: 0,
            hop_limit: 64,
            src_port: 4791,
            checksum_verified: true,
        };
        let mut left = 2 * BATCH + 1;
        (0..left).for_each(|_| ring.send(header, &[7; 8]).unwrap());
        assert!(ring.wake() && !ring.wake());
        while left > 0 {
            assert!(is_readable(inbox.wakeup.as_fd()), "{left} runs are left");
            left -= inbox.receive(&mut |run| assert_eq!(run.bytes, [7; 8]));
        }
        assert!(!is_readable(inbox.wakeup.as_fd()));
        // parked again
        ring.send(header, &[7; 8]).unwrap();
        assert!(ring.wake());
    }
}
