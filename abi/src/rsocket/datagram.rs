use std::ffi::c_int;

use libc::{iovec, sockaddr, socklen_t};
use roce_provider::calls::Call;

use super::{
    connect::{give, given},
    iovec::Cursor,
    table,
    wait::{Blocking, until},
};
use crate::errno::Result;

pub(super) fn is_one(fd: c_int) -> Result<bool> {
    let _call = Call::begin();
    Ok(table::find(fd)?.socket.is_datagram())
}

/// Cancellation point.
pub(super) unsafe fn send(
    fd: c_int,
    pieces: *const iovec,
    count: usize,
    flags: c_int,
    (to, size): (*const sockaddr, socklen_t),
) -> Result<isize> {
    let (cursor, bytes) = Cursor::new(pieces, count)?;
    let to = if to.is_null() { None } else { Some(given(to, size)?) };
    until(fd, Blocking::Sending.with(flags), |entry| {
        let mut next = cursor;
        entry.socket.send_to(bytes, to, &mut |to| next.read(to))?;
        Ok(bytes.cast_signed())
    })
}

#[derive(Clone, Copy)]
pub(super) struct Received {
    whole: usize,
    fit: usize,
}

impl Received {
    pub(super) const fn is_truncated(self) -> bool {
        self.fit < self.whole
    }

    /// With `MSG_TRUNC`, the whole length.
    pub(super) const fn length(self, flags: c_int) -> isize {
        let length = if flags & libc::MSG_TRUNC != 0 { self.whole } else { self.fit };
        length.cast_signed()
    }
}

pub(super) unsafe fn receive(
    fd: c_int,
    pieces: *const iovec,
    count: usize,
    flags: c_int,
    (from, size): (*mut sockaddr, *mut socklen_t),
) -> Result<Received> {
    let (cursor, room) = Cursor::new(pieces, count)?;
    let peek = flags & libc::MSG_PEEK != 0;
    until(fd, Blocking::Receiving.with(flags), |entry| {
        let mut next = cursor;
        let (whole, sender) =
            entry.socket.receive_from(room, peek, &mut |from| next.write(from))?;
        match sender {
            Some(sender) => give(entry, sender, from, size),
            None if !size.is_null() => *size = 0,
            None => {}
        }
        Ok(Received { whole, fit: whole.min(room) })
    })
}
