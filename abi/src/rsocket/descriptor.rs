use std::{sync::atomic::Ordering, time::Duration};

use roce_provider::calls::Call;
use roce_rsocket::Socket;

use super::{
    instance,
    table::{self, Entry},
    wait::{Blocking, WOULD_BLOCK, until},
};
use crate::{cm, prelude::*};

calls!(
    /// Errors as for `socket`.
    fn rsocket(domain: c_int, kind: c_int, protocol: c_int) -> c_int {
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

    /// Variadic in C; a third argument is passed like a named one.
    fn rfcntl(fd: c_int, command: c_int, argument: c_uint) -> c_int {
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

    fn rshutdown(fd: c_int, how: c_int) -> c_int {
        let (read, write) = match how {
            libc::SHUT_RD => (true, false),
            libc::SHUT_WR => (false, true),
            libc::SHUT_RDWR => (true, true),
            _ => return Err(Errno::of(Rule::SocketArgument)),
        };
        Ok(table::find(fd)?.socket.shutdown(read, write)?)
    }
);

/// Shuts down; returns the time to deliver sent data. `None`: until done, or the peer is lost.
fn shut_down(fd: c_int) -> Result<Option<Duration>> {
    let _call = Call::begin();
    let entry = table::find(fd)?;
    let (on, seconds) = entry.options.lock().linger;
    let _ = entry.socket.shutdown(true, true); // may be unconnected
    Ok(on.then(|| Duration::from_secs(seconds.into())))
}

waiting_calls!(
    /// An rsocket or an instance of `repoll_create`; else `EBADF`.
    fn rclose(fd: c_int) -> c_int {
        let Ok(limit) = shut_down(fd) else { return instance::close(fd) };
        // unsent data is lost after the limit
        let _ = until(fd, Blocking::AtMost(limit), |entry| {
            if entry.socket.is_sent() { Ok(()) } else { Err(WOULD_BLOCK) }
        });
        let _call = Call::begin();
        drop(table::remove(fd));
        Ok(())
    }
);
