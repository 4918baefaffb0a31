//! Frame transport of a [`RawLink`](super::RawLink).

use std::{io, os::fd::BorrowedFd};

use roce_transport::{adapter::Transmit, time::Instant};

use roce_ethernet::FrameCounters;

pub(super) struct Arrived<'a> {
    pub(super) frame: &'a [u8],
    /// Payload length of a run, except the last; `None`: a single datagram.
    pub(super) segment: Option<usize>,
    /// Its tag was the device's, and is removed.
    pub(super) untagged: bool,
}

/// A non-blocking socket for frames on one interface.
pub(super) trait FrameSocket: Send {
    /// Most datagrams of a run.
    fn segments(&self) -> usize;

    /// Sends a run with its first datagram's headers; `false`: full.
    ///
    /// # Errors
    /// If the run cannot be sent. It is lost.
    fn send_run(&mut self, run: &Transmit, headers: &mut [u8], payload: &[u8]) -> io::Result<bool>;

    /// Sends a whole frame; `false`: full.
    ///
    /// # Errors
    /// If the frame cannot be sent. It is lost.
    fn send_frame(&mut self, frame: &[u8]) -> io::Result<bool>;

    fn submit(&mut self) {}

    /// True while frames are unflushed: call [`submit`](Self::submit) again.
    fn is_behind(&self) -> bool {
        false
    }

    /// Returns the next frame.
    ///
    /// # Errors
    /// If receiving fails; an interface that is down or gone is no error, the port reports it.
    fn receive(
        &mut self,
        now: Instant,
        counters: &mut FrameCounters,
    ) -> io::Result<Option<Arrived<'_>>>;

    fn wake(&mut self) {}

    /// Bytes that the system buffers.
    fn receive_buffer(&self) -> Option<usize>;

    /// Frames dropped for want of room.
    fn drops(&self) -> u64;

    fn count(&self, counters: &mut FrameCounters) {
        let _ = counters;
    }

    /// Descriptors that become readable on arrival.
    fn descriptors(&self) -> Vec<BorrowedFd<'_>>;

    /// Descriptor that becomes writable with room; `None`: no notification.
    fn writable(&self) -> Option<BorrowedFd<'_>>;
}
