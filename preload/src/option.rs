//! Options: TCP's socket keeps all, an rsocket those it knows.

use std::ffi::{c_int, c_void};

use libc::socklen_t;

use crate::{function::replaced, next, rdma, table};

replaced!(
    fn setsockopt(
        fd: c_int,
        level: c_int,
        name: c_int,
        value: *const c_void,
        length: socklen_t,
    ) -> c_int {
        if let Some((rsocket, _)) = table::find(fd) {
            // no effect if unknown
            rdma::rsetsockopt(rsocket, level, name, value, length);
        }
        next::setsockopt(fd, level, name, value, length)
    }

    fn getsockopt(
        fd: c_int,
        level: c_int,
        name: c_int,
        value: *mut c_void,
        length: *mut socklen_t,
    ) -> c_int {
        let of_connection = [
            (libc::SOL_SOCKET, libc::SO_ERROR),
            (libc::IPPROTO_TCP, libc::TCP_MAXSEG),
            (libc::SOL_SOCKET, libc::SO_SNDBUF),
            (libc::SOL_SOCKET, libc::SO_RCVBUF),
        ];
        match table::connected(fd).filter(|_| of_connection.contains(&(level, name))) {
            Some(rsocket) => rdma::rgetsockopt(rsocket, level, name, value, length),
            None => next::getsockopt(fd, level, name, value, length),
        }
    }
);
