//! Receiving.

use std::ffi::{c_int, c_void};

use libc::{iovec, msghdr, sockaddr, socklen_t};
use roce_provider::calls::Call;

use super::{
    connect,
    iovec::Cursor,
    wait::{Patience, until},
};
use crate::{
    errno::{self, Errno, Result},
    export::export,
    rule::Rule,
};

/// Receives into the pieces what is there, or with `MSG_WAITALL` as much as fits.
///
/// A cancellation point, as the calls below.
unsafe fn receive(
    number: c_int,
    pieces: *const iovec,
    count: usize,
    flags: c_int,
) -> Result<isize> {
    if flags & (libc::MSG_OOB | libc::MSG_ERRQUEUE) != 0 {
        return Err(Errno::of(Rule::SocketOption));
    }
    let (mut cursor, bytes) = Cursor::new(pieces, count)?;
    let peek = flags & libc::MSG_PEEK != 0;
    let all = flags & libc::MSG_WAITALL != 0 && !peek;
    let mut received = 0;
    let result = until(number, Patience::Receiving.with(flags), |entry| {
        let mut next = cursor;
        let done = entry.socket.receive(bytes - received, peek, &mut |from| next.write(from))?;
        cursor.skip(done);
        received += done;
        if all && done > 0 && received < bytes { Err(Errno::told(libc::EAGAIN)) } else { Ok(()) }
    });
    match result {
        Err(error) if received == 0 => Err(error),
        _ => Ok(received.cast_signed()),
    }
}

unsafe fn receive_one(
    call: &str,
    number: c_int,
    at: *mut c_void,
    length: usize,
    flags: c_int,
) -> isize {
    let piece = iovec { iov_base: at, iov_len: length };
    errno::value(call, receive(number, &raw const piece, 1, flags))
}

unsafe extern "C-unwind" fn rrecv(
    number: c_int,
    at: *mut c_void,
    length: usize,
    flags: c_int,
) -> isize {
    receive_one("rrecv", number, at, length, flags)
}

unsafe extern "C-unwind" fn rrecvfrom(
    number: c_int,
    at: *mut c_void,
    length: usize,
    flags: c_int,
    from: *mut sockaddr,
    size: *mut socklen_t,
) -> isize {
    let received = receive_one("rrecvfrom", number, at, length, flags);
    if received >= 0 && !from.is_null() {
        let _call = Call::begin();
        let _ = connect::give_peer(number, from, size); // it may be gone since
    }
    received
}

/// Without control data, which streams have none of.
unsafe extern "C-unwind" fn rrecvmsg(number: c_int, message: *mut msghdr, flags: c_int) -> isize {
    if message.is_null() {
        return errno::value("rrecvmsg", Err(Errno::of(Rule::SocketPointer)));
    }
    let received = receive(number, (*message).msg_iov, (*message).msg_iovlen, flags);
    if received.is_ok() {
        ((*message).msg_controllen, (*message).msg_flags, (*message).msg_namelen) = (0, 0, 0);
    }
    errno::value("rrecvmsg", received)
}

unsafe extern "C-unwind" fn rread(number: c_int, at: *mut c_void, length: usize) -> isize {
    receive_one("rread", number, at, length, 0)
}

unsafe extern "C-unwind" fn rreadv(number: c_int, pieces: *const iovec, count: c_int) -> isize {
    match Cursor::number(count) {
        Ok(count) => errno::value("rreadv", receive(number, pieces, count, 0)),
        Err(error) => errno::value("rreadv", Err(error)),
    }
}

export!(rrecv, rrecvfrom, rrecvmsg, rread, rreadv);
