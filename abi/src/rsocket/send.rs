use libc::{iovec, msghdr, sockaddr, socklen_t};

use super::{
    connect::given,
    iovec::Cursor,
    table,
    wait::{Blocking, transfer, until},
};
use crate::prelude::*;

const NOWHERE: (*const sockaddr, socklen_t) = (std::ptr::null(), 0);

/// Sends all, unless non-blocking or failing. Cancellation point.
unsafe fn send(
    fd: c_int,
    pieces: *const iovec,
    count: usize,
    flags: c_int,
    (to, size): (*const sockaddr, socklen_t),
) -> Result<isize> {
    refuse_if(flags & libc::MSG_OOB != 0, Rule::SocketOption)?;
    let is_datagram = table::is_datagram(fd)?;
    let (all, blocking) = (Cursor::new(pieces, count)?, Blocking::Sending.with(flags));
    if is_datagram {
        let to = if to.is_null() { None } else { Some(given(to, size)?) };
        return until(fd, blocking, |entry| {
            let (mut next, bytes) = all;
            entry.socket.send_to(bytes, to, &mut |to| next.read(to))?;
            Ok(bytes.cast_signed())
        });
    }
    transfer(fd, blocking, all, false, |entry, next, sent| {
        Ok(entry.socket.send(all.1 - sent, &mut |to| next.read(to))?)
    })
}

unsafe fn send_one(
    fd: c_int,
    at: *const c_void,
    length: usize,
    flags: c_int,
    to: (*const sockaddr, socklen_t),
) -> Result<isize> {
    let piece = iovec { iov_base: at.cast_mut(), iov_len: length };
    send(fd, &raw const piece, 1, flags, to)
}

waiting_calls!(
    fn rsend(fd: c_int, at: *const c_void, length: usize, flags: c_int) -> isize {
        send_one(fd, at, length, flags, NOWHERE)
    }

    fn rsendto(
        fd: c_int,
        at: *const c_void,
        length: usize,
        flags: c_int,
        to: *const sockaddr,
        size: socklen_t,
    ) -> isize {
        send_one(fd, at, length, flags, (to, size))
    }

    /// No control data.
    fn rsendmsg(fd: c_int, message: *const msghdr, flags: c_int) -> isize {
        refuse_if(message.is_null(), Rule::SocketPointer)?;
        refuse_if((*message).msg_controllen > 0, Rule::SocketOption)?;
        let &msghdr { msg_name, msg_namelen, msg_iov, msg_iovlen, .. } = &*message;
        send(fd, msg_iov, msg_iovlen, flags, (msg_name.cast_const().cast(), msg_namelen))
    }

    fn rwrite(fd: c_int, at: *const c_void, length: usize) -> isize {
        send_one(fd, at, length, 0, NOWHERE)
    }

    fn rwritev(fd: c_int, pieces: *const iovec, count: c_int) -> isize {
        send(fd, pieces, Cursor::number(count)?, 0, NOWHERE)
    }
);
