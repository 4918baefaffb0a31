//! `epoll` with rsockets: an instance of `repoll_create` beside that of the kernel, which it watches,
//! too.

use std::{
    collections::{BTreeMap, btree_map::Entry},
    ffi::c_int,
    ptr,
    sync::{Mutex, MutexGuard, PoisonError},
};

use libc::{epoll_event, sigset_t};

use crate::{
    next,
    poll::masked,
    rdma,
    table::{self, State},
};

/// What a program watches by one instance of the kernel's.
struct Instance {
    /// That of rsockets.
    beside: c_int,
    /// The program's sockets with an rsocket, each with what it wants to know.
    watched: BTreeMap<c_int, (u32, u64)>,
}

static INSTANCES: Mutex<BTreeMap<c_int, Instance>> = Mutex::new(BTreeMap::new());

fn instances() -> MutexGuard<'static, BTreeMap<c_int, Instance>> {
    INSTANCES.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Stands for the kernel's instance in that beside it.
const KERNELS: u64 = 0x726f_6365_6570_6f6c;

/// The instance beside one of the kernel's, made if there is none.
unsafe fn beside(all: &mut BTreeMap<c_int, Instance>, epoll: c_int) -> Option<&mut Instance> {
    let vacant = match all.entry(epoll) {
        Entry::Occupied(there) => return Some(there.into_mut()),
        Entry::Vacant(vacant) => vacant,
    };
    let made = rdma::repoll_create(libc::EPOLL_CLOEXEC);
    let mut event = epoll_event { events: libc::EPOLLIN as u32, u64: KERNELS };
    if made < 0 || rdma::repoll_ctl(made, libc::EPOLL_CTL_ADD, epoll, &raw mut event) != 0 {
        return None;
    }
    Some(vacant.insert(Instance { beside: made, watched: BTreeMap::new() }))
}

#[unsafe(no_mangle)]
unsafe extern "C-unwind" fn epoll_ctl(
    epoll: c_int,
    op: c_int,
    fd: c_int,
    event: *mut epoll_event,
) -> c_int {
    let Some((rsocket, state)) = table::find(fd) else {
        return next::epoll_ctl(epoll, op, fd, event);
    };
    let mut all = instances();
    let Some(instance) = beside(&mut all, epoll) else {
        return next::epoll_ctl(epoll, op, fd, event);
    };
    let done = rdma::repoll_ctl(instance.beside, op, rsocket, event);
    if done == 0 {
        if op == libc::EPOLL_CTL_DEL {
            instance.watched.remove(&fd);
        } else {
            // not null, or it would have been refused
            let epoll_event { events, u64: data } = *event;
            instance.watched.insert(fd, (events, data));
        }
    }
    // TCP's listener, too
    if state == State::Listens { next::epoll_ctl(epoll, op, fd, event) } else { done }
}

/// A socket is TCP from now on.
pub(crate) unsafe fn move_to_kernel(fd: c_int, rsocket: c_int) {
    for (epoll, instance) in instances().iter_mut() {
        if let Some((events, data)) = instance.watched.remove(&fd) {
            rdma::repoll_ctl(instance.beside, libc::EPOLL_CTL_DEL, rsocket, ptr::null_mut());
            let mut event = epoll_event { events, u64: data };
            next::epoll_ctl(*epoll, libc::EPOLL_CTL_ADD, fd, &raw mut event);
        }
    }
}

/// A socket's number goes.
pub(crate) unsafe fn forget(fd: c_int, rsocket: c_int) {
    for instance in instances().values_mut() {
        if instance.watched.remove(&fd).is_some() {
            rdma::repoll_ctl(instance.beside, libc::EPOLL_CTL_DEL, rsocket, ptr::null_mut());
        }
    }
}

/// A descriptor is closed, which may be an instance.
pub(crate) unsafe fn closed(fd: c_int) {
    let Ok(mut all) = INSTANCES.try_lock() else { return };
    let removed = all.remove(&fd);
    drop(all);
    if let Some(instance) = removed {
        rdma::rclose(instance.beside);
    }
}

/// Where the events of the kernel's instance are asked for, puts them in place of the one that stands
/// for it.
unsafe fn expand(epoll: c_int, events: *mut epoll_event, found: usize, most: usize) -> c_int {
    let marked = (0..found).find(|index| (*events.add(*index)).u64 == KERNELS);
    let Some(marked) = marked else { return found as c_int };
    let last = found - 1;
    *events.add(marked) = *events.add(last);
    let rest = (most - last) as c_int;
    let more = next::epoll_pwait(epoll, events.add(last), rest, 0, ptr::null());
    last as c_int + more.max(0)
}

#[unsafe(no_mangle)]
unsafe extern "C-unwind" fn epoll_pwait(
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
            let found = rdma::repoll_wait(beside, events, most, timeout);
            if found <= 0 {
                return found;
            }
            let count = expand(epoll, events, found as usize, most as usize);
            if count > 0 || timeout == 0 {
                return count;
            }
        }
    })
}

#[unsafe(no_mangle)]
unsafe extern "C-unwind" fn epoll_wait(
    epoll: c_int,
    events: *mut epoll_event,
    most: c_int,
    timeout: c_int,
) -> c_int {
    epoll_pwait(epoll, events, most, timeout, ptr::null())
}
