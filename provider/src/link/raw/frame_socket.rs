//! What a [`RawLink`](super::RawLink) sends and receives its frames by.

use std::{io, os::fd::BorrowedFd};

use roce_transport::{adapter::Transmit, time::Instant};

use roce_ethernet::FrameCounters;

/// A frame that has arrived, from the receiver's address on.
pub(super) struct Arrived<'a> {
    pub(super) frame: &'a [u8],
    /// Length of each payload but the last of a run; `None`: it is a single datagram.
    pub(super) segment: Option<usize>,
    /// Its tag was that of the device, and has been removed.
    pub(super) untagged: bool,
}

/// Sends and receives frames on one interface, without waiting.
pub(super) trait FrameSocket: Send {
    /// The most datagrams of a run.
    fn segments(&self) -> usize;

    /// Sends a run whose headers are those of its first datagram; `false`: it is full.
    ///
    /// # Errors
    /// When the run cannot be sent. It is lost.
    fn send_run(&mut self, run: &Transmit, headers: &mut [u8], payload: &[u8]) -> io::Result<bool>;

    /// Sends a whole frame; `false`: it is full.
    ///
    /// # Errors
    /// When the frame cannot be sent. It is lost.
    fn send_frame(&mut self, frame: &[u8]) -> io::Result<bool>;

    /// Has everything leave that was sent.
    fn submit(&mut self) {}

    /// True if something that was sent has not left, and [`submit`](Self::submit) is to be called
    /// again.
    fn is_behind(&self) -> bool {
        false
    }

    /// The next frame, if there is one.
    ///
    /// # Errors
    /// When frames cannot be received; not because the interface is down or gone, which the port
    /// tells.
    fn receive(
        &mut self,
        now: Instant,
        counters: &mut FrameCounters,
    ) -> io::Result<Option<Arrived<'_>>>;

    /// Something may have arrived at any of the descriptors.
    fn wake(&mut self) {}

    /// Bytes that the system keeps before they are received.
    fn receive_buffer(&self) -> Option<usize>;

    /// Frames that arrived and found no room.
    fn drops(&self) -> u64;

    /// Counts what only it knows of.
    fn count(&self, counters: &mut FrameCounters) {
        let _ = counters;
    }

    /// Descriptors that become readable when a frame has arrived.
    fn descriptors(&self) -> Vec<BorrowedFd<'_>>;

    /// Descriptor that becomes writable when there is room again; `None`: nothing tells.
    fn writable(&self) -> Option<BorrowedFd<'_>>;
}
