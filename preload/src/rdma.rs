use std::{
    ffi::{c_int, c_ulong, c_void},
    ptr,
    sync::OnceLock,
};

use libc::{epoll_event, iovec, msghdr, nfds_t, pollfd, sockaddr, socklen_t};

use crate::{
    function::{Function, Library, functions},
    next::errno,
};

/// Milliseconds; a host without RDMA does not respond.
pub(crate) const LIMIT: c_int = 3000;

functions! {
    Rdmacm;
    fn rsocket(domain: c_int, kind: c_int, protocol: c_int) -> c_int;
    fn rbind(fd: c_int, address: *const sockaddr, length: socklen_t) -> c_int;
    fn rlisten(fd: c_int, backlog: c_int) -> c_int;
    fn raccept(fd: c_int, address: *mut sockaddr, length: *mut socklen_t) -> c_int;
    fn rconnect(fd: c_int, address: *const sockaddr, length: socklen_t) -> c_int;
    fn rgetpeername(fd: c_int, address: *mut sockaddr, length: *mut socklen_t) -> c_int;
    fn rgetsockname(fd: c_int, address: *mut sockaddr, length: *mut socklen_t) -> c_int;
    fn rsetsockopt(
        fd: c_int, level: c_int, name: c_int, value: *const c_void, length: socklen_t
    ) -> c_int;
    fn rgetsockopt(
        fd: c_int, level: c_int, name: c_int, value: *mut c_void, length: *mut socklen_t
    ) -> c_int;
    fn rshutdown(fd: c_int, how: c_int) -> c_int;
    fn rclose(fd: c_int) -> c_int;
    fn rfcntl(fd: c_int, command: c_int, argument: c_ulong) -> c_int;
    fn rread(fd: c_int, to: *mut c_void, length: usize) -> isize;
    fn rreadv(fd: c_int, pieces: *const iovec, count: c_int) -> isize;
    fn rrecv(fd: c_int, to: *mut c_void, length: usize, flags: c_int) -> isize;
    fn rrecvfrom(
        fd: c_int, to: *mut c_void, length: usize, flags: c_int, address: *mut sockaddr,
        size: *mut socklen_t
    ) -> isize;
    fn rrecvmsg(fd: c_int, message: *mut msghdr, flags: c_int) -> isize;
    fn rwrite(fd: c_int, from: *const c_void, length: usize) -> isize;
    fn rwritev(fd: c_int, pieces: *const iovec, count: c_int) -> isize;
    fn rsend(fd: c_int, from: *const c_void, length: usize, flags: c_int) -> isize;
    fn rsendto(
        fd: c_int, from: *const c_void, length: usize, flags: c_int, address: *const sockaddr,
        size: socklen_t
    ) -> isize;
    fn rsendmsg(fd: c_int, message: *const msghdr, flags: c_int) -> isize;
    fn rpoll(all: *mut pollfd, count: nfds_t, timeout: c_int) -> c_int;
    fn repoll_create(flags: c_int) -> c_int;
    fn repoll_ctl(epoll: c_int, op: c_int, fd: c_int, event: *mut epoll_event) -> c_int;
    fn repoll_wait(epoll: c_int, events: *mut epoll_event, most: c_int, timeout: c_int) -> c_int;
}

/// Takes queue sizes from the environment, as librdmacm's `librspreload.so`.
pub(crate) unsafe fn make(domain: c_int) -> Option<c_int> {
    const SOL_RDMA: c_int = 0x10000;
    const SIZES: [(&str, c_int); 3] = [("RS_SQ_SIZE", 0), ("RS_RQ_SIZE", 1), ("RS_INLINE", 2)];
    static NAMED: OnceLock<Vec<(c_int, c_int)>> = OnceLock::new();
    let rsocket = rsocket(domain, libc::SOCK_STREAM, 0);
    let named = NAMED.get_or_init(|| {
        let number = |name| std::env::var(name).ok()?.trim().parse().ok();
        SIZES.iter().filter_map(|(name, option)| Some((*option, number(name)?))).collect()
    });
    if rsocket < 0 {
        return None;
    }
    for (option, size) in named {
        rsetsockopt(rsocket, SOL_RDMA, *option, ptr::from_ref(size).cast(), 4);
    }
    Some(rsocket)
}

pub(crate) unsafe fn set_nonblocking(rsocket: c_int, nonblocking: bool) {
    let flags = if nonblocking { libc::O_NONBLOCK } else { 0 };
    rfcntl(rsocket, libc::F_SETFL, flags as _);
}

/// True if connected in time.
pub(crate) unsafe fn connect_rsocket(
    rsocket: c_int,
    address: *const sockaddr,
    length: socklen_t,
) -> bool {
    set_nonblocking(rsocket, true);
    if rconnect(rsocket, address, length) == 0 {
        return true;
    }
    let mut done = pollfd { fd: rsocket, events: libc::POLLOUT, revents: 0 };
    if errno() != libc::EINPROGRESS || rpoll(&raw mut done, 1, LIMIT) != 1 {
        return false;
    }
    let (mut error, mut size) = (0, size_of::<c_int>() as socklen_t);
    let (level, name) = (libc::SOL_SOCKET, libc::SO_ERROR);
    rgetsockopt(rsocket, level, name, (&raw mut error).cast(), &raw mut size) == 0 && error == 0
}

pub(crate) fn is_there() -> bool {
    static NEWEST: Function = Function::new(c"repoll_wait", Library::Rdmacm);
    !NEWEST.address().is_null()
}
