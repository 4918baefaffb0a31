//! The sending side of a channel: a ring that this process writes, and what found no room in it.

use std::{collections::VecDeque, io, os::fd::OwnedFd, time::Duration};

use roce_transport::time::Instant;

use super::{
    SILENCE,
    ring::{Broken, RunHeader, Writer},
};

/// Number of bytes that may wait for room in a ring; more are lost, as when a socket's buffer is
/// full.
const BACKLOG: usize = 16 << 20;

/// Sender of runs to another process.
pub(in crate::link) struct Sender {
    writer: Writer,
    /// What wakes the reader: an eventfd of its own.
    wakeup: OwnedFd,
    /// Runs that found no room, in order.
    backlog: VecDeque<(RunHeader, Box<[u8]>)>,
    backlog_bytes: usize,
    /// The reader has written what cannot be.
    is_broken: bool,
    /// Where the reader stood when it was last looked at, if it had something to read.
    stood: Option<u64>,
}

impl Sender {
    pub(in crate::link) const fn new(writer: Writer, wakeup: OwnedFd) -> Self {
        let backlog = VecDeque::new();
        Self { writer, wakeup, backlog, backlog_bytes: 0, is_broken: false, stood: None }
    }

    /// Sends to another reader from now on, first what still waits.
    pub(in crate::link) fn redirect(&mut self, writer: Writer, wakeup: OwnedFd) {
        (self.writer, self.wakeup, self.stood) = (writer, wakeup, None);
        self.is_broken = false;
    }

    /// True if the reader has something to read.
    pub(in crate::link) fn is_unread(&self) -> bool {
        self.writer.unread().is_some()
    }

    /// True if the reader has all that was sent.
    pub(in crate::link) fn is_drained(&self) -> bool {
        self.backlog.is_empty() && !self.is_unread()
    }

    /// True if the reader had something to read when this was last called, and has read nothing
    /// since.
    pub(in crate::link) fn is_stalled(&mut self) -> bool {
        let stands = self.writer.unread();
        let is_stalled = stands.is_some() && stands == self.stood;
        self.stood = stands;
        is_stalled
    }

    pub(in crate::link) const fn is_broken(&self) -> bool {
        self.is_broken
    }

    fn push(&mut self, header: RunHeader, bytes: &[u8]) -> io::Result<bool> {
        self.writer.push(header, bytes).map_err(|error| {
            self.is_broken = true;
            broken(error)
        })
    }

    pub(in crate::link) fn send(&mut self, header: RunHeader, bytes: &[u8]) -> io::Result<()> {
        self.write_backlog()?;
        if self.backlog.is_empty() && self.push(header, bytes)? {
            return Ok(());
        }
        if self.backlog_bytes + bytes.len() > BACKLOG {
            return Err(io::Error::new(
                io::ErrorKind::WouldBlock,
                "the other process does not read what it is sent",
            ));
        }
        self.backlog_bytes += bytes.len();
        self.backlog.push_back((header, bytes.into()));
        Ok(())
    }

    /// Writes as much of what waits as there is room for.
    pub(in crate::link) fn write_backlog(&mut self) -> io::Result<()> {
        while let Some((header, bytes)) = self.backlog.pop_front() {
            if !self.push(header, &bytes)? {
                self.backlog.push_front((header, bytes));
                break;
            }
            self.backlog_bytes -= bytes.len();
        }
        Ok(())
    }

    /// Something was sent: wakes the reader, and sets when what found no room is tried again, and when it
    /// is looked at whether the reader reads.
    pub(in crate::link) fn note_sent(
        &mut self,
        now: Instant,
        write_wait: Duration,
        write_at: &mut Option<Instant>,
        check_at: &mut Option<Instant>,
    ) {
        if !self.wake() {
            *write_at = Some(now.plus(write_wait));
        }
        if check_at.is_none() {
            self.is_stalled(); // from now on
            *check_at = Some(now.plus(SILENCE));
        }
    }

    /// Wakes the reader if it sleeps. Returns true if everything is written.
    pub(in crate::link) fn wake(&self) -> bool {
        if self.writer.must_wake() {
            // full means that it is awake already
            let _ = rustix::io::write(&self.wakeup, &1u64.to_ne_bytes());
        }
        self.backlog.is_empty()
    }
}

fn broken(error: Broken) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, error)
}
