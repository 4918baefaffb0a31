//! A ring from one process to another, and the Unix socket between them. The socket carries the
//! memory to the reader and the reader's event descriptor to the writer, and closes with either.

use std::{
    collections::VecDeque,
    fs, io,
    os::fd::{AsFd, AsRawFd, OwnedFd},
    path::Path,
};

use rustix::{fs::OFlags, net::RecvFlags};

use super::ring::{RunHeader, Writer};
use crate::link::{
    descriptors::{poll_with, send_with},
    ensure,
};

/// Most bytes that wait for room in a ring. Further bytes are lost, as with a full socket buffer.
const BACKLOG: usize = 16 << 20;

pub(in crate::link) struct Outgoing {
    pub(in crate::link) socket: OwnedFd,
    writer: Writer,
    /// Wakes the reader; set by its response.
    wakeup: Option<OwnedFd>,
    backlog: VecDeque<(RunHeader, Box<[u8]>)>,
    backlog_bytes: usize,
    /// The reader wrote an impossible position.
    pub(in crate::link) is_broken: bool,
}

impl Outgoing {
    /// `hello` states the ring's purpose.
    pub(in crate::link) fn request(socket: OwnedFd, hello: &[u8]) -> io::Result<Self> {
        let (writer, memory) = Writer::new()?;
        send_with(&socket, hello, &[memory.as_fd()])?;
        let (wakeup, backlog) = (None, VecDeque::new());
        Ok(Self { socket, writer, wakeup, backlog, backlog_bytes: 0, is_broken: false })
    }

    pub(in crate::link) const fn is_open(&self) -> bool {
        self.wakeup.is_some()
    }

    pub(in crate::link) fn is_written(&self) -> bool {
        self.backlog.is_empty()
    }

    /// Opens on a response. Errors: a channel closed by the other process, or an invalid response.
    pub(in crate::link) fn update(&mut self) -> io::Result<()> {
        if self.is_open() {
            return ensure(!is_closed(&self.socket), io::ErrorKind::ConnectionReset);
        }
        if let Some((_, mut descriptors)) = poll_with(&self.socket, &mut [0])? {
            let first = descriptors.pop().ok_or(io::ErrorKind::InvalidData)?;
            self.wakeup = Some(wakeup(first)?);
            if self.writer.has_unread() {
                self.wake();
            }
        }
        Ok(())
    }

    fn push(&mut self, header: RunHeader, bytes: &[u8]) -> io::Result<bool> {
        let pushed = self.writer.push(header, bytes);
        self.is_broken |= pushed.is_err();
        pushed.map_err(|error| io::Error::new(io::ErrorKind::InvalidData, error))
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

    /// True if the reader slept, which costs a system call.
    pub(in crate::link) fn wake(&self) -> bool {
        let Some(wakeup) = &self.wakeup else { return false };
        let sleeps = self.writer.must_wake();
        if sleeps {
            // a full counter has woken the reader already
            let _ = rustix::io::write(wakeup, &1u64.to_ne_bytes());
        }
        sleeps
    }
}

/// True if the other process has closed the connection, or has ended.
pub(in crate::link) fn is_closed(socket: &OwnedFd) -> bool {
    match rustix::net::recv(socket, &mut [0u8; 1], RecvFlags::DONTWAIT) {
        Ok((_, length)) => length == 0,
        Err(error) => !matches!(error, rustix::io::Errno::AGAIN | rustix::io::Errno::INTR),
    }
}

/// Accepts only a nonblocking eventfd. A full pipe would block this process under its lock, and a
/// closed pipe would end the process.
fn wakeup(descriptor: OwnedFd) -> io::Result<OwnedFd> {
    let link = fs::read_link(format!("/proc/self/fd/{}", descriptor.as_raw_fd()))?;
    let flags = rustix::fs::fcntl_getfl(&descriptor)?;
    let is_eventfd = link == Path::new("anon_inode:[eventfd]");
    ensure(is_eventfd && flags.contains(OFlags::NONBLOCK), io::ErrorKind::InvalidData)?;
    Ok(descriptor)
}

#[cfg(test)]
mod tests {
    use rustix::event::{EventfdFlags, eventfd};

    use super::*;
    use crate::link::stranger::unix_socket;

    #[test]
    fn only_a_counter_that_lets_nobody_wait_wakes() {
        let counter = |flags| eventfd(0, EventfdFlags::CLOEXEC | flags).unwrap();
        assert!(wakeup(counter(EventfdFlags::NONBLOCK)).is_ok());
        assert!(wakeup(counter(EventfdFlags::empty())).is_err());
        assert!(wakeup(unix_socket().unwrap()).is_err());
        assert!(wakeup(fs::File::open("/dev/null").unwrap().into()).is_err());
    }
}
