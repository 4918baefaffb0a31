use std::ffi::{c_int, c_void};

use libc::{iovec, msghdr, off_t, sockaddr, socklen_t};

use crate::{
    fork::{self, Use},
    function::replaced,
    next, rdma, table,
};

/// Data calls; the first decides between rsocket and TCP.
macro_rules! transfers {
    ($(
        $by:ident $flags:tt, $rsocket:path:
            fn $name:ident($($argument:ident: $kind:ty),*) -> $returns:ty;
    )*) => {
        replaced! {$(
            fn $name(fd: c_int, $($argument: $kind),*) -> $returns {
                if table::pending(fd).is_some() && !fork::decide(fd, Use::$by, $flags) {
                    return -1;
                }
                match table::connected(fd) {
                    Some(rsocket) => $rsocket(rsocket, $($argument),*),
                    None => next::$name(fd, $($argument),*),
                }
            }
        )*}
    };
}

transfers! {
    Receive 0, rdma::rread: fn read(to: *mut c_void, length: usize) -> isize;
    Receive 0, rdma::rreadv: fn readv(pieces: *const iovec, count: c_int) -> isize;
    Receive flags, rdma::rrecv: fn recv(to: *mut c_void, length: usize, flags: c_int) -> isize;
    Receive flags, rdma::rrecvfrom: fn recvfrom(
        to: *mut c_void, length: usize, flags: c_int, address: *mut sockaddr, size: *mut socklen_t
    ) -> isize;
    Receive flags, rdma::rrecvmsg: fn recvmsg(message: *mut msghdr, flags: c_int) -> isize;
    Send 0, rdma::rwrite: fn write(from: *const c_void, length: usize) -> isize;
    Send 0, rdma::rwritev: fn writev(pieces: *const iovec, count: c_int) -> isize;
    Send flags, rdma::rsend: fn send(from: *const c_void, length: usize, flags: c_int) -> isize;
    Send flags, rdma::rsendto: fn sendto(
        from: *const c_void, length: usize, flags: c_int, address: *const sockaddr, size: socklen_t
    ) -> isize;
    Send flags, rdma::rsendmsg: fn sendmsg(message: *const msghdr, flags: c_int) -> isize;
    Send 0, send_file: fn sendfile(from: c_int, offset: *mut off_t, count: usize) -> isize;
}

replaced!(
    fn getpeername(fd: c_int, address: *mut sockaddr, length: *mut socklen_t) -> c_int {
        match table::connected(fd) {
            Some(rsocket) => rdma::rgetpeername(rsocket, address, length),
            None => next::getpeername(fd, address, length),
        }
    }

    fn getsockname(fd: c_int, address: *mut sockaddr, length: *mut socklen_t) -> c_int {
        match table::connected(fd) {
            Some(rsocket) => rdma::rgetsockname(rsocket, address, length),
            None => next::getsockname(fd, address, length),
        }
    }

    fn shutdown(fd: c_int, how: c_int) -> c_int {
        fork::stay_on_tcp(fd);
        match table::connected(fd) {
            Some(rsocket) => rdma::rshutdown(rsocket, how),
            None => next::shutdown(fd, how),
        }
    }

    /// For large files.
    fn sendfile64(to: c_int, from: c_int, offset: *mut off_t, count: usize) -> isize {
        sendfile(to, from, offset, count)
    }

    /// Fortified, without the size check.
    fn __read_chk(fd: c_int, to: *mut c_void, length: usize, _room: usize) -> isize {
        read(fd, to, length)
    }

    fn __recv_chk(fd: c_int, to: *mut c_void, length: usize, _room: usize, flags: c_int) -> isize {
        recv(fd, to, length, flags)
    }

    fn __recvfrom_chk(
        fd: c_int,
        to: *mut c_void,
        length: usize,
        _room: usize,
        flags: c_int,
        address: *mut sockaddr,
        size: *mut socklen_t,
    ) -> isize {
        recvfrom(fd, to, length, flags, address, size)
    }
);

const PIECE: usize = 1 << 16;

unsafe fn send_file(rsocket: c_int, from: c_int, offset: *mut off_t, count: usize) -> isize {
    let mut sent = 0;
    let mut piece = [0_u8; PIECE];
    while sent < count {
        let most = PIECE.min(count - sent);
        let at = if offset.is_null() { libc::lseek(from, 0, libc::SEEK_CUR) } else { *offset };
        let got = libc::pread(from, piece.as_mut_ptr().cast(), most, at);
        let done =
            if got > 0 { rdma::rwrite(rsocket, piece.as_ptr().cast(), got as usize) } else { got };
        if done <= 0 {
            return if sent > 0 { sent as isize } else { done };
        }
        if offset.is_null() {
            libc::lseek(from, at + done as off_t, libc::SEEK_SET);
        } else {
            *offset = at + done as off_t;
        }
        sent += done as usize;
    }
    sent as isize
}
