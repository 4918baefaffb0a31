use std::{
    ffi::{c_int, c_uint},
    sync::atomic::Ordering,
};

use roce_rsocket::Socket;

use super::table::{self, Entry};
use crate::{
    call::{self, CallId},
    cm,
    errno::{Errno, Result, refuse_if},
    export::export,
    rule::Rule,
};

/// Errors as for `socket`.
fn create(domain: c_int, kind: c_int, protocol: c_int) -> Result<c_int> {
    refuse_if(domain != libc::AF_INET && domain != libc::AF_INET6, Rule::SocketFamily)?;
    let (is_stream, only) = match kind & !(libc::SOCK_NONBLOCK | libc::SOCK_CLOEXEC) {
        libc::SOCK_STREAM => (true, libc::IPPROTO_TCP),
        libc::SOCK_DGRAM => (false, libc::IPPROTO_UDP),
        _ => return Err(Errno::of(Rule::SocketType)),
    };
    refuse_if(protocol != 0 && protocol != only, Rule::SocketProtocol)?;
    cm::prepare();
    let socket =
        if is_stream { Socket::stream()? } else { Socket::datagram(domain == libc::AF_INET6)? };
    Ok(table::add(Entry::new(socket, domain, kind & libc::SOCK_NONBLOCK != 0)))
}

unsafe extern "C" fn rsocket(domain: c_int, kind: c_int, protocol: c_int) -> c_int {
    call::control(CallId::rsocket, || create(domain, kind, protocol))
}

fn control(fd: c_int, command: c_int, argument: c_uint) -> Result<c_int> {
    let entry = table::find(fd)?;
    match command {
        libc::F_GETFL => {
            let flags = if entry.is_blocking() { 0 } else { libc::O_NONBLOCK };
            Ok(libc::O_RDWR | flags)
        }
        libc::F_SETFL => {
            let nonblocking = argument.cast_signed() & libc::O_NONBLOCK != 0;
            entry.nonblocking.store(nonblocking, Ordering::Relaxed);
            Ok(0)
        }
        // SAFETY: These commands access no memory.
        libc::F_GETFD | libc::F_SETFD => match unsafe { libc::fcntl(fd, command, argument) } {
            -1 => Err(Errno::last()),
            flags => Ok(flags),
        },
        _ => Err(Errno::of(Rule::SocketArgument)),
    }
}

/// Variadic in C; a third argument is passed like a named one.
unsafe extern "C" fn rfcntl(fd: c_int, command: c_int, argument: c_uint) -> c_int {
    call::control(CallId::rfcntl, || control(fd, command, argument))
}

export!(rsocket, rfcntl);
