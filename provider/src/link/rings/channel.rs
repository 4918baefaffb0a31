//! A ring from one process to another, and the Unix socket between them. The socket carries the
//! memory to the reader, and in return the reader's event descriptor to the writer. It shows at
//! once that the other process has ended, however it ended.

use std::{
    fs, io,
    os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd},
    path::Path,
};

use rustix::{fs::OFlags, net::RecvFlags};

use super::{
    ring::{Broken, Reader, RunHeader, Writer},
    sender::Sender,
};
use crate::link::{
    BATCH,
    descriptors::{poll_with, send_with},
};

/// The side that writes.
pub(in crate::link) struct Outgoing {
    socket: OwnedFd,
    pub(in crate::link) sender: Sender,
}

impl Outgoing {
    /// Asks the process at the other end of a socket to read a ring. `hello` says what for.
    pub(in crate::link) fn request(socket: OwnedFd, hello: &[u8]) -> io::Result<Self> {
        let (writer, memory) = Writer::new()?;
        send_with(&socket, hello, &[memory.as_fd()])?;
        Ok(Self { socket, sender: Sender::new(writer) })
    }

    /// True once the reader has answered.
    pub(in crate::link) const fn is_open(&self) -> bool {
        self.sender.is_open()
    }

    /// Opens if there is an answer.
    ///
    /// # Errors
    /// When the other process has closed the channel, or has answered what makes no sense.
    pub(in crate::link) fn update(&mut self) -> io::Result<()> {
        if self.is_open() {
            return if is_closed(&self.socket) {
                Err(io::ErrorKind::ConnectionReset.into())
            } else {
                Ok(())
            };
        }
        if let Some((_, mut descriptors)) = poll_with(&self.socket, &mut [0])? {
            let first = descriptors.pop().ok_or(io::ErrorKind::InvalidData)?;
            self.sender.open(wakeup(first)?);
        }
        Ok(())
    }
}

impl AsFd for Outgoing {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.socket.as_fd()
    }
}

/// The side that reads.
pub(in crate::link) struct Incoming {
    socket: OwnedFd,
    reader: Reader,
    /// The other process has closed it; what it wrote before is still to be read.
    is_closed: bool,
    /// The ring holds what cannot be.
    is_broken: bool,
}

impl Incoming {
    /// Answers a request for a channel with what wakes this process.
    pub(in crate::link) fn accept(
        socket: OwnedFd,
        reader: Reader,
        wakeup: BorrowedFd<'_>,
    ) -> io::Result<Self> {
        send_with(&socket, &[0], &[wakeup])?;
        Ok(Self { socket, reader, is_closed: false, is_broken: false })
    }

    /// Notes whether the other process has closed it.
    pub(in crate::link) fn update(&mut self) {
        self.is_closed = self.is_closed || is_closed(&self.socket);
    }

    pub(in crate::link) const fn is_closed(&self) -> bool {
        self.is_closed
    }

    pub(in crate::link) const fn is_broken(&self) -> bool {
        self.is_broken
    }

    /// True if nothing comes any more.
    pub(in crate::link) fn is_over(&self) -> bool {
        self.is_closed && self.reader.is_empty()
    }

    /// True if there is nothing to read.
    pub(in crate::link) fn is_empty(&self) -> bool {
        self.reader.is_empty()
    }

    /// True if nothing has ever come.
    pub(in crate::link) const fn is_unread(&self) -> bool {
        self.reader.is_unread()
    }

    /// Has the other side wake this one with the next run, or not. True if there is none to read
    /// yet.
    pub(in crate::link) fn set_asleep(&self, asleep: bool) -> bool {
        self.reader.set_asleep(asleep);
        self.reader.is_empty()
    }

    /// Hands over some runs; returns their number. `sleepers`: threads sleep until something comes.
    pub(in crate::link) fn read(
        &mut self,
        sleepers: bool,
        buffer: &mut [u8],
        mut sink: impl FnMut(RunHeader, &[u8]),
    ) -> usize {
        for count in 0..BATCH {
            let popped = if sleepers {
                self.reader.pop_for_sleepers(buffer)
            } else {
                self.reader.pop(buffer)
            };
            match popped {
                Ok(Some(header)) => sink(header, &buffer[..header.length]),
                Ok(None) => return count,
                Err(Broken) => {
                    self.is_broken = true;
                    return count;
                }
            }
        }
        BATCH
    }
}

/// True if the process at the other end has closed the connection, or has ended.
pub(in crate::link) fn is_closed(socket: &OwnedFd) -> bool {
    match rustix::net::recv(socket, &mut [0u8; 1], RecvFlags::DONTWAIT) {
        Ok((_, length)) => length == 0,
        Err(error) => !matches!(error, rustix::io::Errno::AGAIN | rustix::io::Errno::INTR),
    }
}

/// What wakes another process, if it is that: a counter that lets no writer wait. A full pipe would
/// stop this process under its lock, and one that is closed would end it.
fn wakeup(descriptor: OwnedFd) -> io::Result<OwnedFd> {
    let link = fs::read_link(format!("/proc/self/fd/{}", descriptor.as_raw_fd()))?;
    let flags = rustix::fs::fcntl_getfl(&descriptor)?;
    if link == Path::new("anon_inode:[eventfd]") && flags.contains(OFlags::NONBLOCK) {
        Ok(descriptor)
    } else {
        Err(io::ErrorKind::InvalidData.into())
    }
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
