//! Servers that fork per connection: `RDMAV_FORK_SAFE=1`, on both sides.
//!
//! A child cannot use its parent's rsockets, so a connection begins as TCP and becomes an rsocket
//! in the process that first uses it. As in librdmacm's `librspreload.so`, the accepting side
//! listens with an rsocket at the same address, and offers it by four zero bytes. The connecting
//! side then connects. A host has one rsocket listener per port; others stay with TCP after 2 s.
//!
//! A side that sends first stays with TCP; the offering side checks for data before and after the
//! offer. A side that cannot connect declines by urgent data.

use std::{
    ffi::{c_int, c_short},
    mem::MaybeUninit,
    net::SocketAddr,
    process, ptr,
    sync::{
        OnceLock,
        atomic::{AtomicI32, AtomicU32, Ordering},
    },
    thread,
    time::{Duration, Instant},
};

use libc::{pollfd, socklen_t};
use rustix::net::{
    SocketAddrAny,
    addr::{SocketAddrArg, SocketAddrStorage},
};

use crate::{
    next::{self, errno, is_nonblocking, set_errno},
    rdma::{self, LIMIT, connect_rsocket, set_nonblocking},
    table::{self, State},
    watched,
};

const OFFER: [u8; 4] = [0; 4];

const PORT_LIMIT: Duration = Duration::from_secs(2);

const PAUSE: Duration = Duration::from_millis(2);

const KEPT: [(c_int, c_int); 5] = [
    (libc::SOL_SOCKET, libc::SO_KEEPALIVE),
    (libc::SOL_SOCKET, libc::SO_RCVTIMEO),
    (libc::SOL_SOCKET, libc::SO_SNDTIMEO),
    (libc::SOL_SOCKET, libc::SO_LINGER),
    (libc::IPPROTO_TCP, libc::TCP_NODELAY),
];

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Use {
    Receive,
    Send,
}

impl Use {
    /// Timeout in milliseconds; -1: none.
    unsafe fn limit(self, fd: c_int) -> c_int {
        let name = if self == Self::Send { libc::SO_SNDTIMEO } else { libc::SO_RCVTIMEO };
        let Some(time) = next::option::<libc::timeval>(fd, name) else { return -1 };
        let microseconds = time.tv_sec.saturating_mul(1_000_000).saturating_add(time.tv_usec);
        match microseconds {
            0 => -1,
            limit => c_int::try_from(limit / 1000 + 1).unwrap_or(c_int::MAX),
        }
    }
}

/// True if connections begin as TCP.
pub(crate) fn is_on() -> bool {
    static ON: OnceLock<bool> = OnceLock::new();
    *ON.get_or_init(|| {
        let value = std::env::var("RDMAV_FORK_SAFE");
        value.is_ok_and(|value| value.trim().parse::<i32>().is_ok_and(|number| number != 0))
    })
}

pub(crate) unsafe fn begin(fd: c_int, state: State) {
    static CONNECTIONS: AtomicI32 = AtomicI32::new(0);
    let before = errno();
    if is_on() && table::entry(fd).is_none() && is_tcp(fd) {
        let number = CONNECTIONS.fetch_add(1, Ordering::Relaxed) % table::NUMBERS;
        table::put(fd, number, state);
    }
    set_errno(before);
}

unsafe fn is_tcp(fd: c_int) -> bool {
    let option = |name| next::option::<c_int>(fd, name);
    matches!(option(libc::SO_DOMAIN), Some(libc::AF_INET | libc::AF_INET6))
        && option(libc::SO_TYPE) == Some(libc::SOCK_STREAM)
        && option(libc::SO_PROTOCOL) == Some(libc::IPPROTO_TCP)
}

type Ask = unsafe fn(c_int, *mut libc::sockaddr, *mut socklen_t) -> c_int;

/// IPv4-mapped IPv6 becomes IPv4, as the peer may know it.
unsafe fn address(fd: c_int, ask: Ask) -> Option<SocketAddr> {
    let mut storage = MaybeUninit::<SocketAddrStorage>::zeroed();
    let mut size = size_of::<SocketAddrStorage>() as socklen_t;
    if ask(fd, storage.as_mut_ptr().cast(), &raw mut size) != 0 {
        return None;
    }
    let mut address = SocketAddr::try_from(SocketAddrAny::new(storage, size)).ok()?;
    address.set_ip(address.ip().to_canonical());
    Some(address)
}

/// For an address, with a TCP socket's options.
unsafe fn like(fd: c_int, address: SocketAddr) -> Option<c_int> {
    let rsocket = rdma::make(if address.is_ipv4() { libc::AF_INET } else { libc::AF_INET6 })?;
    for (level, name) in KEPT {
        let (mut value, mut size) = ([0_u8; 16], 16);
        if next::getsockopt(fd, level, name, value.as_mut_ptr().cast(), &raw mut size) == 0 {
            rdma::rsetsockopt(rsocket, level, name, value.as_ptr().cast(), size);
        }
    }
    Some(rsocket)
}

enum Peeked {
    Nothing,
    Offer,
    /// Data, or end of stream.
    Other,
}

unsafe fn peek_offer(fd: c_int) -> Peeked {
    let mut bytes = [1_u8; OFFER.len()];
    let flags = libc::MSG_PEEK | libc::MSG_DONTWAIT;
    match next::recv(fd, bytes.as_mut_ptr().cast(), bytes.len(), flags) {
        -1 if [libc::EAGAIN, libc::EINTR].contains(&errno()) => Peeked::Nothing,
        4 if bytes == OFFER => Peeked::Offer,
        _ => Peeked::Other,
    }
}

/// Urgent data is outside the stream.
unsafe fn decline(fd: c_int) {
    let mut bytes = OFFER;
    next::recv(fd, bytes.as_mut_ptr().cast(), bytes.len(), libc::MSG_DONTWAIT);
    next::send(fd, bytes.as_ptr().cast(), 1, libc::MSG_OOB | libc::MSG_NOSIGNAL);
}

unsafe fn is_declined(fd: c_int) -> bool {
    let mut byte = 0_u8;
    next::recv(fd, (&raw mut byte).cast(), 1, libc::MSG_OOB | libc::MSG_DONTWAIT) == 1
}

/// Events that may decide between TCP and rsocket.
pub(crate) const ANYTHING: c_short = libc::POLLIN | libc::POLLPRI;

/// `limit` in milliseconds; -1: forever.
unsafe fn wait_for<const N: usize>(fds: [c_int; N], limit: c_int) -> c_int {
    let mut all = fds.map(|fd| pollfd { fd, events: ANYTHING, revents: 0 });
    rdma::rpoll(all.as_mut_ptr(), N as _, limit)
}

/// Lock for steps, by process id: a forked child does not wait for its parent.
struct Turn;

impl Turn {
    fn take() -> Self {
        let own = process::id();
        loop {
            let holder = TURN_OF.load(Ordering::Relaxed);
            let (success, failure) = (Ordering::Acquire, Ordering::Relaxed);
            if holder != own && TURN_OF.compare_exchange(holder, own, success, failure).is_ok() {
                return Self;
            }
            thread::sleep(PAUSE);
        }
    }
}

impl Drop for Turn {
    fn drop(&mut self) {
        TURN_OF.store(0, Ordering::Release);
    }
}

static TURN_OF: AtomicU32 = AtomicU32::new(0);

/// Listens at this side's address once the port is free.
unsafe fn listener(fd: c_int) -> Option<c_int> {
    let own = address(fd, next::getsockname)?;
    let rsocket = like(fd, own)?;
    let one: c_int = 1;
    let (option, size) = (ptr::from_ref(&one).cast(), size_of::<c_int>() as socklen_t);
    rdma::rsetsockopt(rsocket, libc::SOL_SOCKET, libc::SO_REUSEADDR, option, size);
    set_nonblocking(rsocket, true);
    let end = Instant::now() + PORT_LIMIT;
    let mut is_bound = false;
    while matches!(peek_offer(fd), Peeked::Nothing) && Instant::now() < end {
        is_bound =
            is_bound || own.with_sockaddr(|at, size| rdma::rbind(rsocket, at.cast(), size) == 0);
        if is_bound && rdma::rlisten(rsocket, 1) == 0 {
            return Some(rsocket);
        }
        if errno() != libc::EADDRINUSE {
            break;
        }
        thread::sleep(PAUSE);
    }
    rdma::rclose(rsocket);
    None
}

/// False if no step is possible.
unsafe fn step(fd: c_int, number: c_int, state: State) -> bool {
    match state {
        State::Accepted => {
            let offered = listener(fd).filter(|listener| {
                let (offer, flags) = (OFFER.as_ptr().cast(), libc::MSG_NOSIGNAL);
                let is_sent = next::send(fd, offer, OFFER.len(), flags) == OFFER.len() as isize;
                if !is_sent {
                    rdma::rclose(*listener);
                }
                is_sent
            });
            move_on(fd, offered.map(|listener| (listener, State::Offered)));
            true
        }
        State::Offered => {
            if let Some(rsocket) = accepted(fd, number) {
                become_rsocket(fd, rsocket);
            } else if !is_declined(fd) && matches!(peek_offer(fd), Peeked::Nothing) {
                return false;
            } else {
                move_on(fd, None);
            }
            rdma::rclose(number);
            true
        }
        State::Expects | State::Late => {
            match peek_offer(fd) {
                Peeked::Nothing => return false,
                Peeked::Other => move_on(fd, None),
                Peeked::Offer => {
                    let rsocket = if state == State::Expects { connected(fd) } else { None };
                    match rsocket {
                        Some(rsocket) => become_rsocket(fd, rsocket),
                        None => {
                            decline(fd);
                            move_on(fd, None);
                        }
                    }
                }
            }
            true
        }
        State::New | State::Listens | State::Connected => false,
    }
}

/// Accepts the peer host's rsocket, whose local addresses may differ.
unsafe fn accepted(fd: c_int, listener: c_int) -> Option<c_int> {
    let peer = address(fd, next::getpeername)?.ip();
    loop {
        let rsocket = rdma::raccept(listener, ptr::null_mut(), ptr::null_mut());
        if rsocket < 0 {
            return None;
        }
        let host = |ask| address(rsocket, ask).map(|address| address.ip());
        let (from, own) = (host(rdma::rgetpeername), host(rdma::rgetsockname));
        let is_here = from.is_some_and(|from| from.is_loopback()) || from == own;
        if from == Some(peer) || peer.is_loopback() && is_here {
            return Some(rsocket);
        }
        rdma::rclose(rsocket);
    }
}

unsafe fn connected(fd: c_int) -> Option<c_int> {
    let peer = address(fd, next::getpeername)?;
    let rsocket = like(fd, peer)?;
    if peer.with_sockaddr(|at, size| connect_rsocket(rsocket, at.cast(), size)) {
        return Some(rsocket);
    }
    rdma::rclose(rsocket);
    None
}

/// Changes the state of all descriptors; `None`: TCP.
unsafe fn move_on(fd: c_int, to: Option<(c_int, State)>) {
    let Some(from) = table::entry(fd) else { return };
    for fd in table::change(from, to) {
        watched::moved(fd, from, to);
    }
}

unsafe fn become_rsocket(fd: c_int, rsocket: c_int) {
    set_nonblocking(rsocket, is_nonblocking(fd));
    move_on(fd, Some((rsocket, State::Connected)));
    next::shutdown(fd, libc::SHUT_RDWR);
}

/// True after any step.
pub(crate) unsafe fn progress(fd: c_int) -> bool {
    let before = errno();
    let mut any = false;
    while table::pending(fd).is_some() {
        let _turn = Turn::take();
        let takes = table::pending(fd).is_some_and(|(number, state)| step(fd, number, state));
        any |= takes;
        if !takes {
            break;
        }
    }
    set_errno(before);
    any
}

/// Decides before data moves; false: failed.
pub(crate) unsafe fn decide(fd: c_int, by: Use, flags: c_int) -> bool {
    let before = errno();
    loop {
        progress(fd);
        let Some((number, state)) = table::pending(fd) else { break };
        let waits = flags & libc::MSG_DONTWAIT == 0 && !is_nonblocking(fd);
        let ready = match state {
            // the peer connects, sends by TCP, or closes
            State::Offered if waits => wait_for([number, fd], by.limit(fd)),
            State::Offered => 0,
            State::Expects if by == Use::Send && address(fd, next::getpeername).is_some() => {
                let ready = wait_for([fd], LIMIT);
                if ready == 0 {
                    move_on(fd, Some((number, State::Late)));
                    break;
                }
                ready
            }
            State::Expects | State::Late if by == Use::Receive && waits => {
                wait_for([fd], by.limit(fd))
            }
            // not connected: TCP reports it
            _ => break,
        };
        if ready == 0 {
            set_errno(libc::EAGAIN);
        }
        if ready <= 0 {
            return false;
        }
    }
    set_errno(before);
    true
}

/// Keeps a connection with TCP: one direction is shut down.
pub(crate) unsafe fn stay_on_tcp(fd: c_int) {
    match table::pending(fd) {
        Some((number, State::Expects)) => move_on(fd, Some((number, State::Late))),
        Some((_, State::Accepted)) => move_on(fd, None),
        Some((listener, State::Offered)) => {
            move_on(fd, None);
            rdma::rclose(listener);
        }
        _ => {}
    }
}
