use std::{
    ffi::{c_int, c_ulong, c_void},
    mem::MaybeUninit,
};

use libc::{
    epoll_event, fd_set, iovec, msghdr, nfds_t, off_t, pollfd, sigset_t, sockaddr, socklen_t,
    timespec, timeval,
};

use crate::function::functions;

functions! {
    Next;
    fn socket(domain: c_int, kind: c_int, protocol: c_int) -> c_int;
    fn bind(fd: c_int, address: *const sockaddr, length: socklen_t) -> c_int;
    fn listen(fd: c_int, backlog: c_int) -> c_int;
    fn accept4(fd: c_int, address: *mut sockaddr, length: *mut socklen_t, flags: c_int) -> c_int;
    fn connect(fd: c_int, address: *const sockaddr, length: socklen_t) -> c_int;
    fn getpeername(fd: c_int, address: *mut sockaddr, length: *mut socklen_t) -> c_int;
    fn getsockname(fd: c_int, address: *mut sockaddr, length: *mut socklen_t) -> c_int;
    fn setsockopt(
        fd: c_int, level: c_int, name: c_int, value: *const c_void, length: socklen_t
    ) -> c_int;
    fn getsockopt(
        fd: c_int, level: c_int, name: c_int, value: *mut c_void, length: *mut socklen_t
    ) -> c_int;
    fn shutdown(fd: c_int, how: c_int) -> c_int;
    fn close(fd: c_int) -> c_int;
    fn fcntl(fd: c_int, command: c_int, argument: c_ulong) -> c_int;
    fn ioctl(fd: c_int, request: c_ulong, argument: *mut c_void) -> c_int;
    fn dup(fd: c_int) -> c_int;
    fn dup3(fd: c_int, to: c_int, flags: c_int) -> c_int;
    fn dup2(fd: c_int, to: c_int) -> c_int;
    fn read(fd: c_int, to: *mut c_void, length: usize) -> isize;
    fn readv(fd: c_int, pieces: *const iovec, count: c_int) -> isize;
    fn recv(fd: c_int, to: *mut c_void, length: usize, flags: c_int) -> isize;
    fn recvfrom(
        fd: c_int, to: *mut c_void, length: usize, flags: c_int, address: *mut sockaddr,
        size: *mut socklen_t
    ) -> isize;
    fn recvmsg(fd: c_int, message: *mut msghdr, flags: c_int) -> isize;
    fn write(fd: c_int, from: *const c_void, length: usize) -> isize;
    fn writev(fd: c_int, pieces: *const iovec, count: c_int) -> isize;
    fn send(fd: c_int, from: *const c_void, length: usize, flags: c_int) -> isize;
    fn sendto(
        fd: c_int, from: *const c_void, length: usize, flags: c_int, address: *const sockaddr,
        size: socklen_t
    ) -> isize;
    fn sendmsg(fd: c_int, message: *const msghdr, flags: c_int) -> isize;
    fn sendfile(to: c_int, from: c_int, offset: *mut off_t, count: usize) -> isize;
    fn poll(all: *mut pollfd, count: nfds_t, timeout: c_int) -> c_int;
    fn ppoll(
        all: *mut pollfd, count: nfds_t, timeout: *const timespec, mask: *const sigset_t
    ) -> c_int;
    fn select(
        count: c_int, read: *mut fd_set, write: *mut fd_set, except: *mut fd_set,
        timeout: *mut timeval
    ) -> c_int;
    fn pselect(
        count: c_int, read: *mut fd_set, write: *mut fd_set, except: *mut fd_set,
        timeout: *const timespec, mask: *const sigset_t
    ) -> c_int;
    fn epoll_ctl(epoll: c_int, op: c_int, fd: c_int, event: *mut epoll_event) -> c_int;
    fn epoll_pwait(
        epoll: c_int, events: *mut epoll_event, most: c_int, timeout: c_int, mask: *const sigset_t
    ) -> c_int;
}

pub(crate) fn errno() -> c_int {
    std::io::Error::last_os_error().raw_os_error().unwrap_or_default()
}

pub(crate) fn set_errno(errno: c_int) {
    // SAFETY: `errno` is thread-local.
    unsafe { *libc::__errno_location() = errno };
}

/// Of `SOL_SOCKET`; zeros are a `T`.
pub(crate) unsafe fn option<T>(fd: c_int, name: c_int) -> Option<T> {
    let (mut value, mut size) = (MaybeUninit::<T>::zeroed(), size_of::<T>() as socklen_t);
    let got = getsockopt(fd, libc::SOL_SOCKET, name, value.as_mut_ptr().cast(), &raw mut size);
    (got == 0).then(|| value.assume_init())
}

pub(crate) unsafe fn is_nonblocking(fd: c_int) -> bool {
    fcntl(fd, libc::F_GETFL, 0) & libc::O_NONBLOCK != 0
}
