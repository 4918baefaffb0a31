//! The sending side of a channel: a ring that this process writes, and what found no room in it.

use std::{collections::VecDeque, io, os::fd::OwnedFd};

use super::ring::{Broken, RunHeader, Writer};

/// Number of bytes that may wait for room in a ring; more are lost, as when a socket's buffer is
/// full.
const BACKLOG: usize = 16 << 20;

/// Sender of runs to another process.
pub(in crate::link) struct Sender {
    writer: Writer,
    /// What wakes the reader, once it has answered: an eventfd of its own.
    wakeup: Option<OwnedFd>,
    /// Runs that found no room, in order.
    backlog: VecDeque<(RunHeader, Box<[u8]>)>,
    backlog_bytes: usize,
    /// The reader has written what cannot be.
    is_broken: bool,
}

impl Sender {
    pub(super) const fn new(writer: Writer) -> Self {
        let backlog = VecDeque::new();
        Self { writer, wakeup: None, backlog, backlog_bytes: 0, is_broken: false }
    }

    /// The reader has answered.
    pub(super) fn open(&mut self, wakeup: OwnedFd) {
        self.wakeup = Some(wakeup);
        if self.writer.has_unread() {
            self.wake();
        }
    }

    /// True once the reader has answered.
    pub(super) const fn is_open(&self) -> bool {
        self.wakeup.is_some()
    }

    /// True if the reader has all that was sent.
    pub(in crate::link) fn is_drained(&self) -> bool {
        self.backlog.is_empty() && !self.writer.has_unread()
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

    /// Wakes the reader if it sleeps. Returns true if it did: that takes a call of the system.
    pub(in crate::link) fn wake(&self) -> bool {
        let Some(wakeup) = &self.wakeup else { return false };
        let sleeps = self.writer.must_wake();
        if sleeps {
            // full means that it is awake already
            let _ = rustix::io::write(wakeup, &1u64.to_ne_bytes());
        }
        sleeps
    }

    /// True if everything is written.
    pub(in crate::link) fn is_written(&self) -> bool {
        self.backlog.is_empty()
    }
}

fn broken(error: Broken) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, error)
}
