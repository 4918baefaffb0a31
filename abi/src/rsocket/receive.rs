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
    errno::{Result, refuse_if},
    export::export,
    rule::Rule,
};

const NOBODY: (*mut sockaddr, *mut socklen_t) = (std::ptr::null_mut(), std::ptr::null_mut());

/// With `MSG_WAITALL`, receives all that fits. Cancellation point.
unsafe fn receive(fd: c_int, pieces: *const iovec, count: usize, flags: c_int) -> Result<isize> {
    let room = Cursor::new(pieces, count)?;
    let peek = flags & libc::MSG_PEEK != 0;
    let some = flags & libc::MSG_WAITALL == 0 || peek;
    transfer(fd, Blocking::Receiving.with(flags), room, some, |entry, next, received| {
        Ok(entry.socket.receive(room.1 - received, peek, &mut |from| next.write(from))?)
    })
}

unsafe fn receive_one(
    call: CallId,
    fd: c_int,
    at: *mut c_void,
    length: usize,
    flags: c_int,
) -> isize {
    let piece = iovec { iov_base: at, iov_len: length };
    call::waiting(call, || Ok(receive_from(fd, &raw const piece, 1, flags, NOBODY)?.0))
}

unsafe extern "C-unwind" fn rrecv(
    fd: c_int,
    at: *mut c_void,
    length: usize,
    flags: c_int,
) -> isize {
    receive_one(CallId::rrecv, fd, at, length, flags)
}

unsafe extern "C-unwind" fn rrecvfrom(
    fd: c_int,
    at: *mut c_void,
    length: usize,
    flags: c_int,
    from: *mut sockaddr,
    size: *mut socklen_t,
) -> isize {
    let piece = iovec { iov_base: at, iov_len: length };
    call::waiting(CallId::rrecvfrom, || {
        Ok(receive_from(fd, &raw const piece, 1, flags, (from, size))?.0)
    })
}

/// True if a datagram was truncated.
unsafe fn receive_from(
    fd: c_int,
    pieces: *const iovec,
    count: usize,
    flags: c_int,
    (from, size): (*mut sockaddr, *mut socklen_t),
) -> Result<(isize, bool)> {
    refuse_if(flags & (libc::MSG_OOB | libc::MSG_ERRQUEUE) != 0, Rule::SocketOption)?;
    if datagram::is_one(fd)? {
        let received = datagram::receive(fd, pieces, count, flags, (from, size))?;
        return Ok((received.length(flags), received.is_truncated()));
    }
    let received = receive(fd, pieces, count, flags)?;
    if !from.is_null() {
        let _call = Call::begin();
        let _ = connect::give_peer(fd, from, size); // it may have gone
    }
    Ok((received, false))
}

/// No control data; streams give no address.
unsafe extern "C-unwind" fn rrecvmsg(fd: c_int, message: *mut msghdr, flags: c_int) -> isize {
    call::waiting(CallId::rrecvmsg, || {
        refuse_if(message.is_null(), Rule::SocketPointer)?;
        let &msghdr { msg_name, msg_namelen, msg_iov, msg_iovlen, .. } = &*message;
        let mut size = 0;
        let name = if datagram::is_one(fd)? {
            size = msg_namelen;
            (msg_name.cast(), &raw mut size)
        } else {
            NOBODY
        };
        let (length, is_truncated) = receive_from(fd, msg_iov, msg_iovlen, flags, name)?;
        (*message).msg_flags = if is_truncated { libc::MSG_TRUNC } else { 0 };
        ((*message).msg_controllen, (*message).msg_namelen) = (0, size);
        Ok(length)
    })
}

unsafe extern "C-unwind" fn rread(fd: c_int, at: *mut c_void, length: usize) -> isize {
    receive_one(CallId::rread, fd, at, length, 0)
}

unsafe extern "C-unwind" fn rreadv(fd: c_int, pieces: *const iovec, count: c_int) -> isize {
    call::waiting(CallId::rreadv, || {
        Ok(receive_from(fd, pieces, Cursor::number(count)?, 0, NOBODY)?.0)
    })
}

export!(rrecv, rrecvfrom, rrecvmsg, rread, rreadv);
