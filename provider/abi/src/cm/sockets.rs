//! rsockets: sockets on top of connections. There are none yet: `rsocket` fails with `EOPNOTSUPP`,
//! and other calls fail with `EBADF`, since no descriptor is an rsocket. Waiting for descriptors of
//! all kinds works, which programs without rsockets use as well.

use std::ffi::{c_int, c_uint, c_ulong, c_void};

use libc::{fd_set, iovec, msghdr, off_t, pollfd, sockaddr, socklen_t, timeval};

use crate::{errno::set, export::export};

unsafe extern "C-unwind" {
    /// As in libc, but declared to unwind: they are cancellation points.
    fn poll(descriptors: *mut pollfd, count: c_ulong, timeout: c_int) -> c_int;
    fn select(
        count: c_int,
        read: *mut fd_set,
        write: *mut fd_set,
        except: *mut fd_set,
        timeout: *mut timeval,
    ) -> c_int;
}

unsafe extern "C-unwind" fn rpoll(
    descriptors: *mut pollfd,
    count: c_ulong,
    timeout: c_int,
) -> c_int {
    poll(descriptors, count, timeout)
}

unsafe extern "C-unwind" fn rselect(
    count: c_int,
    read: *mut fd_set,
    write: *mut fd_set,
    except: *mut fd_set,
    timeout: *mut timeval,
) -> c_int {
    select(count, read, write, except, timeout)
}

extern "C" fn rsocket(_domain: c_int, _kind: c_int, _protocol: c_int) -> c_int {
    set(libc::EOPNOTSUPP);
    -1
}

/// Calls on an rsocket, which no descriptor is.
macro_rules! calls {
    ($(fn $name:ident($($argument:ty),*) -> $returns:ty;)*) => {
        $(
            extern "C" fn $name(_socket: c_int, $(_: $argument),*) -> $returns {
                set(libc::EBADF);
                -1
            }
        )*
        export!($($name),*);
    };
}

calls! {
    fn rbind(*const sockaddr, socklen_t) -> c_int;
    fn rlisten(c_int) -> c_int;
    fn raccept(*mut sockaddr, *mut socklen_t) -> c_int;
    fn rconnect(*const sockaddr, socklen_t) -> c_int;
    fn rshutdown(c_int) -> c_int;
    fn rrecv(*mut c_void, usize, c_int) -> isize;
    fn rrecvfrom(*mut c_void, usize, c_int, *mut sockaddr, *mut socklen_t) -> isize;
    fn rrecvmsg(*mut msghdr, c_int) -> isize;
    fn rsend(*const c_void, usize, c_int) -> isize;
    fn rsendto(*const c_void, usize, c_int, *const sockaddr, socklen_t) -> isize;
    fn rsendmsg(*const msghdr, c_int) -> isize;
    fn rread(*mut c_void, usize) -> isize;
    fn rreadv(*const iovec, c_int) -> isize;
    fn rwrite(*const c_void, usize) -> isize;
    fn rwritev(*const iovec, c_int) -> isize;
    fn rgetpeername(*mut sockaddr, *mut socklen_t) -> c_int;
    fn rgetsockname(*mut sockaddr, *mut socklen_t) -> c_int;
    fn rsetsockopt(c_int, c_int, *const c_void, socklen_t) -> c_int;
    fn rgetsockopt(c_int, c_int, *mut c_void, *mut socklen_t) -> c_int;
    fn riomap(*mut c_void, usize, c_int, c_int, off_t) -> off_t;
    fn riounmap(*mut c_void, usize) -> c_int;
    fn riowrite(*const c_void, usize, off_t, c_int) -> isize;
}

/// Variadic in C, where a third argument is passed as one that is named.
extern "C" fn rfcntl(_socket: c_int, _command: c_int, _argument: c_uint) -> c_int {
    set(libc::EBADF);
    -1
}

export!(rpoll, rselect, rsocket, rfcntl);
