use std::{ffi::c_int, mem::MaybeUninit};

use libc::{pollfd, sockaddr, sockaddr_storage, socklen_t};

use crate::{
    fork,
    function::replaced,
    next::{self, errno, is_nonblocking, set_errno},
    rdma::{self, connect_rsocket, set_nonblocking},
    table::{self, State},
    watched,
};

/// Ends the rsocket: the socket becomes TCP.
unsafe fn give_up(fd: c_int) {
    let before = errno();
    if let Some((rsocket, is_last)) = table::take(fd) {
        watched::moved(fd, (rsocket, State::New), None);
        if is_last {
            rdma::rclose(rsocket);
        }
    }
    set_errno(before);
}

replaced!(
    fn socket(domain: c_int, kind: c_int, protocol: c_int) -> c_int {
        let fd = next::socket(domain, kind, protocol);
        let is_stream = kind & !(libc::SOCK_NONBLOCK | libc::SOCK_CLOEXEC) == libc::SOCK_STREAM;
        let is_tcp = (domain == libc::AF_INET || domain == libc::AF_INET6)
            && (protocol == 0 || protocol == libc::IPPROTO_TCP);
        if fd >= 0 && is_stream && is_tcp && !fork::is_on() && rdma::is_there() {
            let before = errno();
            if let Some(rsocket) = rdma::make(domain)
                && !table::put(fd, rsocket, State::New)
            {
                rdma::rclose(rsocket);
            }
            set_errno(before);
        }
        fd
    }

    fn bind(fd: c_int, address: *const sockaddr, length: socklen_t) -> c_int {
        let bound = next::bind(fd, address, length);
        if let (0, Some((rsocket, State::New))) = (bound, table::find(fd)) {
            // with its assigned port
            let mut own = MaybeUninit::<sockaddr_storage>::zeroed();
            let mut size = size_of::<sockaddr_storage>() as socklen_t;
            let known = next::getsockname(fd, own.as_mut_ptr().cast(), &raw mut size) == 0;
            if !known || rdma::rbind(rsocket, own.as_ptr().cast(), size) != 0 {
                give_up(fd);
            }
        }
        bound
    }

    fn listen(fd: c_int, backlog: c_int) -> c_int {
        let listens = next::listen(fd, backlog);
        if let (0, Some((rsocket, State::New))) = (listens, table::find(fd)) {
            if rdma::rlisten(rsocket, backlog) == 0 {
                set_nonblocking(rsocket, true);
                table::put(fd, rsocket, State::Listens);
            } else {
                give_up(fd);
            }
        }
        listens
    }

    fn accept4(fd: c_int, address: *mut sockaddr, length: *mut socklen_t, flags: c_int) -> c_int {
        let Some((rsocket, State::Listens)) = table::find(fd) else {
            let accepted = next::accept4(fd, address, length, flags);
            if accepted >= 0 {
                fork::begin(accepted, State::Accepted);
            }
            return accepted;
        };
        loop {
            let accepted = rdma::raccept(rsocket, address, length);
            if accepted >= 0 {
                return adopt(fd, accepted, flags);
            }
            let wanted = |fd| pollfd { fd, events: libc::POLLIN, revents: 0 };
            let mut by_tcp = wanted(fd);
            if next::poll(&raw mut by_tcp, 1, 0) == 1 || is_nonblocking(fd) {
                return next::accept4(fd, address, length, flags);
            }
            let mut both = [wanted(fd), wanted(rsocket)];
            if rdma::rpoll(both.as_mut_ptr(), 2, -1) < 0 {
                return -1;
            }
        }
    }

    fn accept(fd: c_int, address: *mut sockaddr, length: *mut socklen_t) -> c_int {
        accept4(fd, address, length, 0)
    }

    /// Blocks until decided, even if non-blocking.
    fn connect(fd: c_int, address: *const sockaddr, length: socklen_t) -> c_int {
        if let Some((rsocket, state)) = table::find(fd) {
            match state {
                State::Connected => {
                    set_errno(libc::EISCONN);
                    return -1;
                }
                State::New => {
                    let before = errno();
                    if connect_rsocket(rsocket, address, length) {
                        set_nonblocking(rsocket, is_nonblocking(fd));
                        table::put(fd, rsocket, State::Connected);
                        set_errno(before);
                        return 0;
                    }
                    give_up(fd);
                }
                _ => {}
            }
        }
        let done = next::connect(fd, address, length);
        if done == 0 || errno() == libc::EINPROGRESS {
            fork::begin(fd, State::Expects);
        }
        done
    }
);

/// Creates a socket for an accepted rsocket.
unsafe fn adopt(listener: c_int, rsocket: c_int, flags: c_int) -> c_int {
    let domain = next::option(listener, libc::SO_DOMAIN).unwrap_or(libc::AF_INET);
    let fd = next::socket(domain, libc::SOCK_STREAM | flags, 0);
    if fd >= 0 && table::put(fd, rsocket, State::Connected) {
        set_nonblocking(rsocket, flags & libc::SOCK_NONBLOCK != 0);
        return fd;
    }
    if fd >= 0 {
        next::close(fd);
        set_errno(libc::EMFILE);
    }
    rdma::rclose(rsocket);
    -1
}
