//! AF_XDP: a program at the interface passes RoCE packets to the device in shared memory. All else
//! takes the packet socket.

mod bpf;
mod memory;
mod open;
mod program;
mod ring;

use std::{
    io,
    os::fd::{AsFd, BorrowedFd, OwnedFd},
    time::Duration,
};

use roce_transport::time::Instant;
use rustix::{
    io::Errno,
    net::{
        RecvFlags, SendFlags, recv, send, sockopt,
        xdp::{XdpDesc, XdpDescOptions},
    },
};

use super::socket::{Arrived, PacketSocket, Received};
use memory::{Chunk, Memory};
pub(crate) use open::{XdpMode, XdpOptions};
use ring::{Consumer, Producer};
use roce_ethernet::FrameCounters;

/// Most parts of a frame.
const PARTS: usize = 17;
/// Poll interval of the packet socket: its frames are not urgent, and a poll is a system call.
const LOOK: Duration = Duration::from_micros(50);

pub(super) struct XdpSocket {
    /// Attached while open.
    _program: OwnedFd,
    socket: OwnedFd,
    memory: Memory,
    fill: Producer<u64>,
    rx: Consumer<XdpDesc>,
    sending: Sending,
    /// The last frame's chunk, until the next call.
    held: Option<Chunk>,
    whole: Vec<u8>,
    rx_chunks: usize,
    is_busy_polled: bool,
    look: Instant,
}

/// Each chunk is free, in the ring, or with the kernel.
struct Sending {
    tx: Producer<XdpDesc>,
    completion: Consumer<u64>,
    free: Vec<Chunk>,
    multi_buffer: bool,
    /// Frames are written, not submitted.
    is_new: bool,
    stalled: Option<Errno>,
}

impl Sending {
    fn reap(&mut self, memory: &mut Memory) {
        while let Some(place) = self.completion.pop() {
            self.free.extend(memory.take(place).map(|(chunk, _)| chunk));
        }
    }

    /// Makes the kernel send while it can.
    fn submit(&mut self, socket: &OwnedFd) {
        if self.is_new {
            self.tx.submit();
            self.is_new = false;
            self.stalled = None;
        }
        // each call sends a few frames
        while self.has_unsent() {
            let room = self.tx.room(u32::MAX);
            match send(socket, &[], SendFlags::DONTWAIT | SendFlags::NOSIGNAL) {
                Ok(_) => {}
                Err(Errno::AGAIN | Errno::BUSY | Errno::NOBUFS | Errno::INTR) => {
                    if self.tx.room(u32::MAX) == room {
                        break;
                    }
                }
                Err(error) => self.stalled = Some(error),
            }
        }
    }

    fn has_unsent(&self) -> bool {
        self.stalled.is_none() && self.tx.is_pending() && self.tx.needs_wakeup()
    }
}

impl XdpSocket {
    /// Queues a frame until [`submit`](Self::submit); a long one takes `packet`. Returns `false` if
    /// full.
    pub(super) fn send(
        &mut self,
        packet: &PacketSocket,
        head: &[u8],
        rest: &[u8],
    ) -> io::Result<bool> {
        let Self { sending, memory, socket, .. } = self;
        let (length, chunk) = (head.len() + rest.len(), memory.chunk);
        let parts = length.div_ceil(chunk);
        if parts > 1 && !sending.multi_buffer || parts > PARTS {
            return packet.send(head, rest);
        }
        if sending.free.len() < parts {
            sending.reap(memory);
        }
        if sending.free.len() < parts {
            sending.is_new = true;
            sending.submit(socket);
            sending.reap(memory);
        }
        if sending.free.len() < parts {
            return match sending.stalled {
                Some(error) => Err(error.into()),
                None => Ok(false),
            };
        }
        for part in 0..parts {
            let range = part * chunk..length.min((part + 1) * chunk);
            let cut = |bytes: &'_ [u8], start: usize| {
                let from = range.start.saturating_sub(start).min(bytes.len());
                let to = range.end.saturating_sub(start).min(bytes.len());
                from..to
            };
            let (head, rest) = (&head[cut(head, 0)], &rest[cut(rest, head.len())]);
            let Some(mut buffer) = sending.free.pop() else { break };
            let written = memory.write(&mut buffer, 0, head);
            written.and_then(|()| memory.write(&mut buffer, head.len(), rest));
            let options = match part + 1 < parts {
                true => XdpDescOptions::XDP_PKT_CONTD,
                false => XdpDescOptions::empty(),
            };
            // there are as many chunks as entries
            sending.tx.push(XdpDesc { addr: buffer.give(), len: range.len() as u32, options });
        }
        sending.is_new = true;
        Ok(true)
    }

    fn refill(&mut self, chunk: Chunk) {
        // there are as many entries as chunks
        self.fill.push(chunk.give());
        self.fill.submit();
    }

    fn take(&mut self, counters: &mut FrameCounters) -> Option<Arrived<'_>> {
        if let Some(chunk) = self.held.take() {
            self.refill(chunk);
        }
        self.whole.clear();
        let mut is_damaged = false;
        loop {
            let entry = self.rx.pop()?;
            let (length, is_last) =
                (entry.len as usize, !entry.options.contains(XdpDescOptions::XDP_PKT_CONTD));
            let Some((chunk, offset)) = self.memory.take(entry.addr) else {
                is_damaged = true;
                continue;
            };
            if is_last && self.whole.is_empty() && !is_damaged {
                let chunk = self.held.insert(chunk);
                let frame = self.memory.bytes(chunk, offset, length).unwrap_or_default();
                return Some(Arrived { frame, segment: None, untagged: false });
            }
            match self.memory.bytes(&chunk, offset, length) {
                Some(bytes) => self.whole.extend_from_slice(bytes),
                None => is_damaged = true,
            }
            self.refill(chunk);
            if is_last && is_damaged {
                counters.truncated += 1;
                (self.whole, is_damaged) = (Vec::new(), false);
            } else if is_last {
                return Some(Arrived { frame: &self.whole, segment: None, untagged: false });
            }
        }
    }

    /// Makes the kernel read the fill ring or poll the interface.
    fn poll(&self) {
        if self.is_busy_polled || self.fill.needs_wakeup() {
            // No data returns; an error only means that the interface is down.
            let _ = recv(&self.socket, &mut [0_u8; 0], RecvFlags::DONTWAIT);
        }
    }

    pub(super) fn submit(&mut self) {
        self.sending.submit(&self.socket);
    }

    /// Frames wait: call [`submit`](Self::submit) again.
    pub(super) fn has_unsent(&self) -> bool {
        self.sending.has_unsent()
    }

    pub(super) fn receive<'a>(
        &'a mut self,
        now: Instant,
        packet: &'a mut PacketSocket,
        counters: &mut FrameCounters,
    ) -> Received<'a> {
        if !self.rx.is_ready() {
            self.poll();
        }
        if self.rx.is_ready() {
            return Ok(self.take(counters));
        }
        if now < self.look {
            return Ok(None);
        }
        let frame = packet.receive(counters)?;
        if frame.is_none() {
            self.look = now.plus(LOOK);
        }
        Ok(frame)
    }

    pub(super) fn wake(&mut self) {
        self.look = Instant::ZERO;
    }

    /// In bytes.
    pub(super) fn receive_buffer(&self) -> Option<usize> {
        Some(self.rx_chunks * self.memory.chunk)
    }

    /// Frames dropped for lack of room.
    pub(super) fn drops(&self) -> u64 {
        sockopt::xdp_statistics(&self.socket)
            .map_or(0, |statistics| statistics.rx_dropped + statistics.rx_ring_full.unwrap_or(0))
    }

    pub(super) fn count(&self, counters: &mut FrameCounters) {
        let Ok(statistics) = sockopt::xdp_statistics(&self.socket) else { return };
        counters.xdp_no_chunk = statistics.rx_dropped;
        counters.xdp_ring_full = statistics.rx_ring_full.unwrap_or(0);
        counters.xdp_fill_empty = statistics.rx_fill_ring_empty_descs.unwrap_or(0);
        counters.xdp_invalid = statistics.rx_invalid_descs + statistics.tx_invalid_descs;
    }

    /// Readable on arrival.
    pub(super) fn descriptor(&self) -> BorrowedFd<'_> {
        self.socket.as_fd()
    }
}
