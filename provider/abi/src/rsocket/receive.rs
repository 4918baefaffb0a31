//! Receiving.

use std::ffi::{c_int, c_void};

use libc::{iovec, msghdr, sockaddr, socklen_t};
use roce_provider::calls::Call;

use super::{
    connect,
    iovec::Cursor,
    wait::{Patience, transfer},
};
use crate::{
    errno::{self, Errno, Result},
    export::export,
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
        return Err(Errno::NOTSUPP);
    }
    let room = Cursor::new(pieces, count)?;
    let peek = flags & libc::MSG_PEEK != 0;
    let some = flags & libc::MSG_WAITALL == 0 || peek;
    transfer(number, Patience::Receiving.with(flags), room, some, |entry, next, received| {
        Ok(entry.socket.receive(room.1 - received, peek, &mut |from| next.write(from))?)
    })
}

unsafe fn receive_one(number: c_int, at: *mut c_void, length: usize, flags: c_int) -> isize {
    let piece = iovec { iov_base: at, iov_len: length };
    errno::value(receive(number, &raw const piece, 1, flags))
}

unsafe extern "C-unwind" fn rrecv(
    number: c_int,
    at: *mut c_void,
    length: usize,
    flags: c_int,
) -> isize {
    receive_one(number, at, length, flags)
}

unsafe extern "C-unwind" fn rrecvfrom(
    number: c_int,
    at: *mut c_void,
    length: usize,
    flags: c_int,
    from: *mut sockaddr,
    size: *mut socklen_t,
) -> isize {
    let received = receive_one(number, at, length, flags);
    if received >= 0 && !from.is_null() {
        let _call = Call::begin();
        let _ = connect::give_peer(number, from, size); // it may be gone since
    }
    received
}

/// Without control data, which streams have none of.
unsafe extern "C-unwind" fn rrecvmsg(number: c_int, message: *mut msghdr, flags: c_int) -> isize {
    if message.is_null() {
        return errno::value(Err(Errno(libc::EFAULT)));
    }
    let received = receive(number, (*message).msg_iov, (*message).msg_iovlen, flags);
    if received.is_ok() {
        ((*message).msg_controllen, (*message).msg_flags, (*message).msg_namelen) = (0, 0, 0);
    }
    errno::value(received)
}

unsafe extern "C-unwind" fn rread(number: c_int, at: *mut c_void, length: usize) -> isize {
    receive_one(number, at, length, 0)
}

unsafe extern "C-unwind" fn rreadv(number: c_int, pieces: *const iovec, count: c_int) -> isize {
    match Cursor::number(count) {
        Ok(count) => errno::value(receive(number, pieces, count, 0)),
        Err(error) => errno::value(Err(error)),
    }
}

export!(rrecv, rrecvfrom, rrecvmsg, rread, rreadv);
