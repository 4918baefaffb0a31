//! Sending.

use std::ffi::{c_int, c_void};

use libc::{iovec, msghdr, sockaddr, socklen_t};

use super::{
    iovec::Cursor,
    wait::{Patience, until},
};
use crate::{
    errno::{self, Errno, Result},
    export::export,
    rule::Rule,
};

/// Sends what lies in the pieces: all of it, unless the socket does not wait, or something fails
/// meanwhile.
///
/// A cancellation point, as the calls below.
unsafe fn send(number: c_int, pieces: *const iovec, count: usize, flags: c_int) -> Result<isize> {
    if flags & libc::MSG_OOB != 0 {
        return Err(Errno::of(Rule::SocketOption));
    }
    let (mut cursor, bytes) = Cursor::new(pieces, count)?;
    let mut sent = 0;
    let result = until(number, Patience::Sending.with(flags), |entry| {
        let mut next = cursor;
        let done = entry.socket.send(bytes - sent, &mut |to| next.read(to))?;
        cursor.skip(done);
        sent += done;
        if sent == bytes { Ok(()) } else { Err(Errno::told(libc::EAGAIN)) }
    });
    match result {
        Err(error) if sent == 0 => Err(error),
        _ => Ok(sent.cast_signed()),
    }
}

unsafe fn send_one(
    call: &str,
    number: c_int,
    at: *const c_void,
    length: usize,
    flags: c_int,
) -> isize {
    let piece = iovec { iov_base: at.cast_mut(), iov_len: length };
    errno::value(call, send(number, &raw const piece, 1, flags))
}

unsafe extern "C-unwind" fn rsend(
    number: c_int,
    at: *const c_void,
    length: usize,
    flags: c_int,
) -> isize {
    send_one("rsend", number, at, length, flags)
}

/// A stream goes to its peer, whatever the address says.
unsafe extern "C-unwind" fn rsendto(
    number: c_int,
    at: *const c_void,
    length: usize,
    flags: c_int,
    _to: *const sockaddr,
    _size: socklen_t,
) -> isize {
    send_one("rsendto", number, at, length, flags)
}

/// Without control data, which streams have none of.
unsafe extern "C-unwind" fn rsendmsg(number: c_int, message: *const msghdr, flags: c_int) -> isize {
    if message.is_null() {
        return errno::value("rsendmsg", Err(Errno::of(Rule::SocketPointer)));
    }
    if (*message).msg_controllen > 0 {
        return errno::value("rsendmsg", Err(Errno::of(Rule::SocketOption)));
    }
    errno::value("rsendmsg", send(number, (*message).msg_iov, (*message).msg_iovlen, flags))
}

unsafe extern "C-unwind" fn rwrite(number: c_int, at: *const c_void, length: usize) -> isize {
    send_one("rwrite", number, at, length, 0)
}

unsafe extern "C-unwind" fn rwritev(number: c_int, pieces: *const iovec, count: c_int) -> isize {
    match Cursor::number(count) {
        Ok(count) => errno::value("rwritev", send(number, pieces, count, 0)),
        Err(error) => errno::value("rwritev", Err(error)),
    }
}

export!(rsend, rsendto, rsendmsg, rwrite, rwritev);
