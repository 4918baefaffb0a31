use std::{
    cell::RefCell,
    ffi::c_int,
    ptr,
    time::{Duration, Instant},
};

use libc::{fd_set, nfds_t, pollfd, sigset_t, timespec, timeval};

use crate::{
    fork,
    function::replaced,
    next, rdma,
    table::{self, State},
};

thread_local! {
    /// Static: a cancelled thread would leak a list on its stack.
    static LIST: RefCell<Vec<pollfd>> = const { RefCell::new(Vec::new()) };
    static SELECTED: RefCell<Vec<pollfd>> = const { RefCell::new(Vec::new()) };
}

/// True if the kernel's `poll` does not suffice.
fn has_rsockets(all: &[pollfd]) -> bool {
    all.iter().any(|one| table::entry(one.fd).is_some_and(|(_, state)| state != State::New))
}

/// An rsocket to poll beside its TCP socket.
fn beside(fd: c_int) -> Option<c_int> {
    let both = |state| matches!(state, State::Listens | State::Offered);
    table::find(fd).filter(|(_, state)| both(*state)).map(|(number, _)| number)
}

fn is_offered(fd: c_int) -> bool {
    matches!(table::find(fd), Some((_, State::Offered)))
}

/// Lists the descriptors, then rsockets beside them. With an offer, any event decides.
fn prepare(all: &[pollfd]) -> (*mut pollfd, nfds_t) {
    LIST.with_borrow_mut(|list| {
        list.clear();
        let asked = |one: &pollfd| if is_offered(one.fd) { fork::ANYTHING } else { one.events };
        list.extend(all.iter().map(|one| pollfd {
            fd: table::connected(one.fd).unwrap_or(one.fd),
            events: asked(one),
            revents: 0,
        }));
        for one in all {
            if let Some(fd) = beside(one.fd) {
                list.push(pollfd { fd, events: asked(one), revents: 0 });
            }
        }
        (list.as_mut_ptr(), list.len() as nfds_t)
    })
}

fn finish(all: &mut [pollfd]) -> c_int {
    LIST.with_borrow(|list| {
        let (own, mut others) = list.split_at(all.len().min(list.len()));
        for (one, found) in all.iter_mut().zip(own) {
            one.revents = found.revents;
            if let (Some(_), Some((first, rest))) = (beside(one.fd), others.split_first()) {
                one.revents |= first.revents;
                others = rest;
            }
        }
        all.iter().filter(|one| one.revents != 0).count() as c_int
    })
}

/// True after any step.
unsafe fn look_at(all: &[pollfd], is_meant: fn(&pollfd) -> bool) -> bool {
    let mut any = false;
    for one in all.iter().filter(|one| is_meant(one)) {
        any |= fork::progress(one.fd);
    }
    any
}

unsafe fn slice<'a>(all: *mut pollfd, count: nfds_t) -> &'a mut [pollfd] {
    if all.is_null() { &mut [] } else { std::slice::from_raw_parts_mut(all, count as usize) }
}

replaced!(
    fn poll(all: *mut pollfd, count: nfds_t, timeout: c_int) -> c_int {
        if !has_rsockets(slice(all, count)) {
            return next::poll(all, count, timeout);
        }
        let end =
            u64::try_from(timeout).ok().map(|limit| Instant::now() + Duration::from_millis(limit));
        look_at(slice(all, count), |_| true);
        loop {
            let left = end.map(|end| end.saturating_duration_since(Instant::now()));
            let left = left.map_or(-1, |left| left.as_millis() as c_int);
            let (list, length) = prepare(slice(all, count));
            let ready = rdma::rpoll(list, length, left);
            if ready <= 0 {
                slice(all, count).iter_mut().for_each(|one| one.revents = 0);
                return ready;
            }
            let ready = finish(slice(all, count));
            // maybe the handshake's event
            if !look_at(slice(all, count), |one| one.revents != 0) {
                return ready;
            }
        }
    }

    /// Fortified, without the size check.
    fn __poll_chk(all: *mut pollfd, count: nfds_t, timeout: c_int, _room: usize) -> c_int {
        poll(all, count, timeout)
    }

    fn ppoll(
        all: *mut pollfd,
        count: nfds_t,
        timeout: *const timespec,
        mask: *const sigset_t,
    ) -> c_int {
        if !has_rsockets(slice(all, count)) {
            return next::ppoll(all, count, timeout, mask);
        }
        let Some(limit) = of_timespec(timeout) else { return invalid() };
        masked(mask, || poll(all, count, limit))
    }

    fn select(
        count: c_int,
        read: *mut fd_set,
        write: *mut fd_set,
        except: *mut fd_set,
        timeout: *mut timeval,
    ) -> c_int {
        let sets = [read, write, except];
        let Some((list, length)) = selected(count, sets) else {
            return next::select(count, read, write, except, timeout);
        };
        let Some(limit) = of_timeval(timeout) else { return invalid() };
        let ready = poll(list, length as nfds_t, limit);
        if ready < 0 { ready } else { keep_ready(sets) }
    }

    fn pselect(
        count: c_int,
        read: *mut fd_set,
        write: *mut fd_set,
        except: *mut fd_set,
        timeout: *const timespec,
        mask: *const sigset_t,
    ) -> c_int {
        let sets = [read, write, except];
        let Some((list, length)) = selected(count, sets) else {
            return next::pselect(count, read, write, except, timeout, mask);
        };
        let Some(limit) = of_timespec(timeout) else { return invalid() };
        let ready = masked(mask, || poll(list, length as nfds_t, limit));
        if ready < 0 { ready } else { keep_ready(sets) }
    }
);

/// Rounds up; `None` if invalid.
fn milliseconds(seconds: i64, nanoseconds: i64) -> Option<c_int> {
    if seconds < 0 || nanoseconds < 0 {
        return None;
    }
    let rest = nanoseconds.div_euclid(1_000_000) + i64::from(nanoseconds % 1_000_000 > 0);
    let milliseconds = seconds.saturating_mul(1000).saturating_add(rest);
    Some(c_int::try_from(milliseconds).unwrap_or(c_int::MAX))
}

/// -1: none; `None` if invalid.
unsafe fn of_timespec(time: *const timespec) -> Option<c_int> {
    let Some(time) = time.as_ref() else { return Some(-1) };
    milliseconds(time.tv_sec, time.tv_nsec).filter(|_| time.tv_nsec < 1_000_000_000)
}

/// Like the C library, accepts over a second of microseconds.
unsafe fn of_timeval(time: *const timeval) -> Option<c_int> {
    let Some(time) = time.as_ref() else { return Some(-1) };
    milliseconds(time.tv_sec, time.tv_usec.saturating_mul(1000))
}

fn invalid() -> c_int {
    next::set_errno(libc::EINVAL);
    -1
}

pub(crate) unsafe fn masked(mask: *const sigset_t, wait: impl FnOnce() -> c_int) -> c_int {
    if mask.is_null() {
        return wait();
    }
    let mut before = std::mem::zeroed();
    libc::pthread_sigmask(libc::SIG_SETMASK, mask, &raw mut before);
    let ready = wait();
    let errno = next::errno();
    libc::pthread_sigmask(libc::SIG_SETMASK, &raw const before, ptr::null_mut());
    next::set_errno(errno);
    ready
}

const ASKED: [i16; 3] = [libc::POLLIN, libc::POLLOUT, libc::POLLPRI];
const FOUND: [i16; 3] =
    [libc::POLLIN | libc::POLLHUP | libc::POLLERR, libc::POLLOUT | libc::POLLERR, libc::POLLPRI];

/// `None` without an rsocket.
unsafe fn selected(count: c_int, sets: [*mut fd_set; 3]) -> Option<(*mut pollfd, usize)> {
    SELECTED.with_borrow_mut(|list| {
        list.clear();
        for fd in 0..count.min(libc::FD_SETSIZE as c_int) {
            let is_in = |set: &*mut fd_set| !set.is_null() && libc::FD_ISSET(fd, *set);
            let events = sets.iter().zip(ASKED).filter(|(set, _)| is_in(set));
            let events = events.fold(0, |all, (_, bits)| all | bits);
            if events != 0 {
                list.push(pollfd { fd, events, revents: 0 });
            }
        }
        has_rsockets(list).then_some((list.as_mut_ptr(), list.len()))
    })
}

unsafe fn keep_ready(sets: [*mut fd_set; 3]) -> c_int {
    SELECTED.with_borrow(|list| {
        let mut count = 0;
        for one in list {
            for ((set, asked), found) in sets.into_iter().zip(ASKED).zip(FOUND) {
                if one.events & asked == 0 {
                    continue;
                }
                if one.revents & found == 0 {
                    libc::FD_CLR(one.fd, set);
                } else {
                    count += 1;
                }
            }
        }
        count
    })
}
