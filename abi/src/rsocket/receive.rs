use libc::{iovec, msghdr, sockaddr, socklen_t};
use roce_provider::calls::Call;

use super::{
    connect::{give, give_peer},
    iovec::Cursor,
    table,
    wait::{Blocking, transfer, until},
};
use crate::prelude::*;

const NOBODY: (*mut sockaddr, *mut socklen_t) = (std::ptr::null_mut(), std::ptr::null_mut());

unsafe fn receive_one(
    fd: c_int,
    at: *mut c_void,
    length: usize,
    flags: c_int,
    from: (*mut sockaddr, *mut socklen_t),
) -> Result<isize> {
    let piece = iovec { iov_base: at, iov_len: length };
    Ok(receive_from(fd, &raw const piece, 1, flags, from)?.0)
}

waiting_calls!(
    fn rrecv(fd: c_int, at: *mut c_void, length: usize, flags: c_int) -> isize {
        receive_one(fd, at, length, flags, NOBODY)
    }

    fn rrecvfrom(
        fd: c_int,
        at: *mut c_void,
        length: usize,
        flags: c_int,
        from: *mut sockaddr,
        size: *mut socklen_t,
    ) -> isize {
        receive_one(fd, at, length, flags, (from, size))
    }

    /// No control data; streams give no address.
    fn rrecvmsg(fd: c_int, message: *mut msghdr, flags: c_int) -> isize {
        refuse_if(message.is_null(), Rule::SocketPointer)?;
        let &msghdr { msg_name, msg_namelen, msg_iov, msg_iovlen, .. } = &*message;
        let mut size = 0;
        let name = if table::is_datagram(fd)? {
            size = msg_namelen;
            (msg_name.cast(), &raw mut size)
        } else {
            NOBODY
        };
        let (length, is_truncated) = receive_from(fd, msg_iov, msg_iovlen, flags, name)?;
        (*message).msg_flags = if is_truncated { libc::MSG_TRUNC } else { 0 };
        ((*message).msg_controllen, (*message).msg_namelen) = (0, size);
        Ok(length)
    }

    fn rread(fd: c_int, at: *mut c_void, length: usize) -> isize {
        receive_one(fd, at, length, 0, NOBODY)
    }

    fn rreadv(fd: c_int, pieces: *const iovec, count: c_int) -> isize {
        Ok(receive_from(fd, pieces, Cursor::number(count)?, 0, NOBODY)?.0)
    }
);

/// True if a datagram was truncated. Cancellation point.
unsafe fn receive_from(
    fd: c_int,
    pieces: *const iovec,
    count: usize,
    flags: c_int,
    (from, size): (*mut sockaddr, *mut socklen_t),
) -> Result<(isize, bool)> {
    refuse_if(flags & (libc::MSG_OOB | libc::MSG_ERRQUEUE) != 0, Rule::SocketOption)?;
    let is_datagram = table::is_datagram(fd)?;
    let (room, blocking) = (Cursor::new(pieces, count)?, Blocking::Receiving.with(flags));
    let peek = flags & libc::MSG_PEEK != 0;
    if is_datagram {
        return until(fd, blocking, |entry| {
            let (mut next, room) = room;
            let (whole, sender) =
                entry.socket.receive_from(room, peek, &mut |from| next.write(from))?;
            match sender {
                Some(sender) => give(entry, sender, from, size),
                None if !size.is_null() => *size = 0,
                None => {}
            }
            let fit = whole.min(room);
            // with `MSG_TRUNC`, the whole length
            let length = if flags & libc::MSG_TRUNC != 0 { whole } else { fit };
            Ok((length.cast_signed(), fit < whole))
        });
    }
    // with `MSG_WAITALL`, all that fits
    let some = flags & libc::MSG_WAITALL == 0 || peek;
    let received = transfer(fd, blocking, room, some, |entry, next, received| {
        Ok(entry.socket.receive(room.1 - received, peek, &mut |from| next.write(from))?)
    })?;
    if !from.is_null() {
        let _call = Call::begin();
        let _ = give_peer(fd, from, size); // it may have gone
    }
    Ok((received, false))
}
