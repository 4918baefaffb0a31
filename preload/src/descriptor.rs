use std::ffi::{c_int, c_ulong, c_void};

use crate::{fork, function::replaced, next, rdma, table, watched};

unsafe fn forget(fd: c_int) {
    if let Some((rsocket, is_last)) = table::take(fd) {
        watched::forget(fd, rsocket);
        if is_last {
            rdma::rclose(rsocket);
        }
    }
}

/// Gives a duplicate the same rsocket.
unsafe fn share(fd: c_int, with: c_int) -> c_int {
    if let (Some((rsocket, state)), true) = (table::entry(fd), with >= 0) {
        table::put(with, rsocket, state);
    }
    with
}

replaced!(
    fn close(fd: c_int) -> c_int {
        forget(fd);
        watched::closed(fd);
        next::close(fd)
    }

    fn dup(fd: c_int) -> c_int {
        share(fd, next::dup(fd))
    }

    fn dup2(fd: c_int, to: c_int) -> c_int {
        if fd != to {
            forget(to);
        }
        share(fd, next::dup2(fd, to))
    }

    fn dup3(fd: c_int, to: c_int, flags: c_int) -> c_int {
        if fd != to {
            forget(to);
        }
        share(fd, next::dup3(fd, to, flags))
    }

    /// Variadic in C; a third argument is passed like a named one.
    fn fcntl(fd: c_int, command: c_int, argument: c_ulong) -> c_int {
        let done = next::fcntl(fd, command, argument);
        match (command, table::connected(fd)) {
            (libc::F_DUPFD | libc::F_DUPFD_CLOEXEC, _) => return share(fd, done),
            (libc::F_SETFL, Some(rsocket)) if done == 0 => {
                rdma::rfcntl(rsocket, command, argument);
            }
            _ => {}
        }
        done
    }

    /// For large files.
    fn fcntl64(fd: c_int, command: c_int, argument: c_ulong) -> c_int {
        fcntl(fd, command, argument)
    }

    /// Variadic in C.
    fn ioctl(fd: c_int, request: c_ulong, argument: *mut c_void) -> c_int {
        fork::progress(fd);
        let Some(rsocket) = table::connected(fd) else { return next::ioctl(fd, request, argument) };
        match request as libc::Ioctl {
            libc::FIONREAD => {
                let mut bytes = [0_u8; 4096];
                let (place, flags) =
                    (bytes.as_mut_ptr().cast(), libc::MSG_PEEK | libc::MSG_DONTWAIT);
                let there = rdma::rrecv(rsocket, place, bytes.len(), flags);
                *argument.cast::<c_int>() = there.max(0) as c_int;
                0
            }
            libc::FIONBIO => {
                let flags = if *argument.cast::<c_int>() == 0 { 0 } else { libc::O_NONBLOCK };
                rdma::rfcntl(rsocket, libc::F_SETFL, flags as c_ulong);
                next::ioctl(fd, request, argument)
            }
            _ => next::ioctl(fd, request, argument),
        }
    }
);
