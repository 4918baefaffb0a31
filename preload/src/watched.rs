//! Beside each `epoll` instance, a `repoll_create` instance watches it.

use std::{
    collections::{BTreeMap, btree_map::Entry},
    ffi::c_int,
    ptr,
    sync::{Mutex, MutexGuard, PoisonError},
};

use libc::epoll_event;

use crate::{next, rdma, table::State};

pub(crate) struct Instance {
    /// For rsockets.
    pub(crate) beside: c_int,
    /// Watched sockets, with events and data.
    pub(crate) watched: BTreeMap<c_int, (u32, u64)>,
}

static INSTANCES: Mutex<BTreeMap<c_int, Instance>> = Mutex::new(BTreeMap::new());

pub(crate) fn instances() -> MutexGuard<'static, BTreeMap<c_int, Instance>> {
    INSTANCES.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Marks the kernel's instance in the one beside it.
pub(crate) const KERNELS: u64 = 0x726f_6365_6570_6f6c;

/// Creates the instance on demand.
pub(crate) unsafe fn beside(
    all: &mut BTreeMap<c_int, Instance>,
    epoll: c_int,
) -> Option<&mut Instance> {
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

/// Updates watches of a socket; `None`: TCP.
pub(crate) unsafe fn moved(fd: c_int, from: (c_int, State), to: Option<(c_int, State)>) {
    use libc::{EPOLL_CTL_ADD, EPOLL_CTL_DEL, EPOLL_CTL_MOD};
    for (epoll, instance) in instances().iter_mut() {
        let Some(&(events, data)) = instance.watched.get(&fd) else { continue };
        let mut event = epoll_event { events, u64: data };
        let none = ptr::null_mut();
        if from.1.has_rsocket() {
            rdma::repoll_ctl(instance.beside, EPOLL_CTL_DEL, from.0, none);
        }
        match to {
            Some((rsocket, State::Connected)) => {
                next::epoll_ctl(*epoll, EPOLL_CTL_DEL, fd, none);
                rdma::repoll_ctl(instance.beside, EPOLL_CTL_ADD, rsocket, &raw mut event);
            }
            Some(_) => {}
            None => {
                let op = if from.1 == State::New { EPOLL_CTL_ADD } else { EPOLL_CTL_MOD };
                next::epoll_ctl(*epoll, op, fd, &raw mut event);
                instance.watched.remove(&fd);
            }
        }
    }
}

pub(crate) unsafe fn forget(fd: c_int, rsocket: c_int) {
    for instance in instances().values_mut() {
        if instance.watched.remove(&fd).is_some() {
            rdma::repoll_ctl(instance.beside, libc::EPOLL_CTL_DEL, rsocket, ptr::null_mut());
        }
    }
}

/// `fd` may be an instance.
pub(crate) unsafe fn closed(fd: c_int) {
    let Ok(mut all) = INSTANCES.try_lock() else { return };
    let removed = all.remove(&fd);
    drop(all);
    if let Some(instance) = removed {
        rdma::rclose(instance.beside);
    }
}
