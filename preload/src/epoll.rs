//! `epoll` with rsockets.

use std::{ffi::c_int, ptr};

use libc::{epoll_event, sigset_t};

use crate::{
    fork,
    function::replaced,
    next,
    poll::masked,
    rdma,
    table::{self, State},
    watched::{KERNELS, beside, instances},
};

replaced!(
    fn epoll_ctl(epoll: c_int, op: c_int, fd: c_int, event: *mut epoll_event) -> c_int {
        fork::progress(fd);
        let Some((rsocket, state)) = table::entry(fd) else {
            return next::epoll_ctl(epoll, op, fd, event);
        };
        let mut all = instances();
        let Some(instance) = beside(&mut all, epoll) else {
            return next::epoll_ctl(epoll, op, fd, event);
        };
        let wanted = event.as_ref().copied();
        let mut adapted =
            wanted.map(|event| epoll_event { events: asked(state, event.events), ..event });
        let event = adapted.as_mut().map_or(ptr::null_mut(), ptr::from_mut);
        let (beside, has_rsocket) = (instance.beside, state.has_rsocket());
        let done = if has_rsocket { rdma::repoll_ctl(beside, op, rsocket, event) } else { 0 };
        // also TCP's listeners, and undecided sockets
        let is_tcp = done == 0 && (state == State::Listens || state.is_pending());
        let done = if is_tcp { next::epoll_ctl(epoll, op, fd, event) } else { done };
        match wanted {
            _ if done != 0 => {}
            Some(event) if op != libc::EPOLL_CTL_DEL => {
                instance.watched.insert(fd, (event.events, event.u64));
            }
            _ => drop(instance.watched.remove(&fd)),
        }
        done
    }

    fn epoll_pwait(
        epoll: c_int,
        events: *mut epoll_event,
        most: c_int,
        timeout: c_int,
        mask: *const sigset_t,
    ) -> c_int {
        let beside = instances().get(&epoll).map(|instance| instance.beside);
        let Some(beside) = beside.filter(|_| most > 0) else {
            return next::epoll_pwait(epoll, events, most, timeout, mask);
        };
        masked(mask, || {
            loop {
                look_at_all(epoll);
                let found = rdma::repoll_wait(beside, events, most, timeout);
                if found <= 0 {
                    return found;
                }
                look_at_all(epoll);
                let count = expand(epoll, events, found as usize, most as usize);
                if count > 0 || timeout == 0 {
                    return count;
                }
            }
        })
    }

    fn epoll_wait(epoll: c_int, events: *mut epoll_event, most: c_int, timeout: c_int) -> c_int {
        epoll_pwait(epoll, events, most, timeout, ptr::null())
    }
);

/// With an offer, any event decides, and nothing can be sent before.
fn asked(state: State, events: u32) -> u32 {
    if state == State::Offered {
        // same bits as `poll`
        events & !(libc::EPOLLOUT as u32) | fork::ANYTHING as u32
    } else {
        events
    }
}

unsafe fn look_at_all(epoll: c_int) {
    if !fork::is_on() {
        return;
    }
    let pending: Vec<c_int> = {
        let all = instances();
        let watched = all.get(&epoll).into_iter().flat_map(|instance| instance.watched.keys());
        watched.copied().filter(|fd| table::pending(*fd).is_some()).collect()
    };
    for fd in pending {
        fork::progress(fd);
    }
}

/// Replaces the marker by the kernel's events.
unsafe fn expand(epoll: c_int, events: *mut epoll_event, found: usize, most: usize) -> c_int {
    let marked = (0..found).find(|index| (*events.add(*index)).u64 == KERNELS);
    let Some(marked) = marked else { return found as c_int };
    let last = found - 1;
    *events.add(marked) = *events.add(last);
    let rest = (most - last) as c_int;
    let more = next::epoll_pwait(epoll, events.add(last), rest, 0, ptr::null());
    last as c_int + more.max(0)
}
