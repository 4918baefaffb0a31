//! Frame transport of a [`RawLink`](super::RawLink).

use std::{io, os::fd::BorrowedFd};

use roce_transport::{adapter::Transmit, time::Instant};

use roce_ethernet::FrameCounters;

pub(super) struct Arrived<'a> {
    pub(super) frame: &'a [u8],
    /// Payload length of each datagram but the last; `None`: a single datagram.
    pub(super) segment: Option<usize>,
    /// The device's VLAN tag is removed.
    pub(super) untagged: bool,
}

pub(super) type Received<'a> = io::Result<Option<Arrived<'a>>>;

/// Non-blocking frame I/O on one interface.
pub(super) trait FrameSocket: Send {
    /// Most datagrams per run.
    fn segments(&self) -> usize;

    /// `headers` are the first datagram's. Returns `false` if full; on an error, the run is lost.
    fn send_run(&mut self, run: &Transmit, headers: &mut [u8], payload: &[u8]) -> io::Result<bool>;

    /// Returns `false` if full; on an error, the frame is lost.
    fn send_frame(&mut self, frame: &[u8]) -> io::Result<bool>;

    fn submit(&mut self) {}

    /// Frames wait: call [`submit`](Self::submit) again.
    fn has_unsent(&self) -> bool {
        false
    }

    /// An interface down or gone is no error: the port reports it.
    fn receive(&mut self, now: Instant, counters: &mut FrameCounters) -> Received<'_>;

    fn wake(&mut self) {}

    /// In bytes.
    fn receive_buffer(&self) -> Option<usize>;

    /// Frames dropped for lack of room.
    fn drops(&self) -> u64;

    fn count(&self, counters: &mut FrameCounters) {
        let _ = counters;
    }

    /// Readable on arrival.
    fn descriptors(&self) -> Vec<BorrowedFd<'_>>;

    /// Writable with room; `None`: no notification.
    fn writable(&self) -> Option<BorrowedFd<'_>>;
}
