use std::ffi::{c_int, c_void};

use libc::{iovec, msghdr, sockaddr, socklen_t};
use roce_provider::calls::Call;

use super::{
    connect, datagram,
    iovec::Cursor,
    wait::{Blocking, transfer},
};
use crate::{
    call::{self, CallId},
    errno::{Errno, Result},
    export::export,
    rule::Rule,
};

const NOBODY: (*mut sockaddr, *mut socklen_t) = (std::ptr::null_mut(), std::ptr::null_mut());

/// With `MSG_WAITALL`, receives all that fits. Cancellation point.
unsafe fn receive(
    number: c_int,
    pieces: *const iovec,
    count: usize,
    flags: c_int,
) -> Result<isize> {
    let room = Cursor::new(pieces, count)?;
    let peek = flags & libc::MSG_PEEK != 0;
    let some = flags & libc::MSG_WAITALL == 0 || peek;
    transfer(number, Blocking::Receiving.with(flags), room, some, |entry, next, received| {
        Ok(entry.socket.receive(room.1 - received, peek, &mut |from| next.write(from))?)
    })
}

unsafe fn receive_one(
    call: CallId,
    number: c_int,
    at: *mut c_void,
    length: usize,
    flags: c_int,
) -> isize {
    let piece = iovec { iov_base: at, iov_len: length };
    call::waiting(call, || Ok(receive_from(number, &raw const piece, 1, flags, NOBODY)?.0))
}

unsafe extern "C-unwind" fn rrecv(
    number: c_int,
    at: *mut c_void,
    length: usize,
    flags: c_int,
) -> isize {
    receive_one(CallId::rrecv, number, at, length, flags)
}

unsafe extern "C-unwind" fn rrecvfrom(
    number: c_int,
    at: *mut c_void,
    length: usize,
    flags: c_int,
    from: *mut sockaddr,
    size: *mut socklen_t,
) -> isize {
    let piece = iovec { iov_base: at, iov_len: length };
    call::waiting(CallId::rrecvfrom, || {
        Ok(receive_from(number, &raw const piece, 1, flags, (from, size))?.0)
    })
}

/// True if a datagram was truncated.
unsafe fn receive_from(
    number: c_int,
    pieces: *const iovec,
    count: usize,
    flags: c_int,
    (from, size): (*mut sockaddr, *mut socklen_t),
) -> Result<(isize, bool)> {
    if flags & (libc::MSG_OOB | libc::MSG_ERRQUEUE) != 0 {
        return Err(Errno::of(Rule::SocketOption));
    }
    if datagram::is_one(number)? {
        let received = datagram::receive(number, pieces, count, flags, (from, size))?;
        return Ok((received.length(flags), received.is_truncated()));
    }
    let received = receive(number, pieces, count, flags)?;
    if !from.is_null() {
        let _call = Call::begin();
        let _ = connect::give_peer(number, from, size); // it may have gone
    }
    Ok((received, false))
}

/// No control data; streams give no address.
unsafe extern "C-unwind" fn rrecvmsg(number: c_int, message: *mut msghdr, flags: c_int) -> isize {
    call::waiting(CallId::rrecvmsg, || {
        if message.is_null() {
            return Err(Errno::of(Rule::SocketPointer));
        }
        let &msghdr { msg_name, msg_namelen, msg_iov, msg_iovlen, .. } = &*message;
        let mut size = 0;
        let name = if datagram::is_one(number)? {
            size = msg_namelen;
            (msg_name.cast(), &raw mut size)
        } else {
            NOBODY
        };
        let (length, is_truncated) = receive_from(number, msg_iov, msg_iovlen, flags, name)?;
        (*message).msg_flags = if is_truncated { libc::MSG_TRUNC } else { 0 };
        ((*message).msg_controllen, (*message).msg_namelen) = (0, size);
        Ok(length)
    })
}

unsafe extern "C-unwind" fn rread(number: c_int, at: *mut c_void, length: usize) -> isize {
    receive_one(CallId::rread, number, at, length, 0)
}

unsafe extern "C-unwind" fn rreadv(number: c_int, pieces: *const iovec, count: c_int) -> isize {
    call::waiting(CallId::rreadv, || {
        Ok(receive_from(number, pieces, Cursor::number(count)?, 0, NOBODY)?.0)
    })
}

export!(rrecv, rrecvfrom, rrecvmsg, rread, rreadv);
