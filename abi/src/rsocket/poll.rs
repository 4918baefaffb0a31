use std::{
    cell::RefCell,
    ffi::{c_short, c_ulong},
    time::Duration,
};

use libc::pollfd;
use roce_provider::calls::Call;
use roce_rsocket::{Deadline, Readiness, polling_time, wakeup_descriptor};

use super::table;
use crate::{
    prelude::*,
    wait::{milliseconds, poll_once, test_cancel},
};

thread_local! {
    /// Thread-local: a cancelled thread would leak a list on its stack.
    static SLEPT_ON: RefCell<Vec<pollfd>> = const { RefCell::new(Vec::new()) };
}

pub(super) fn slept_on(wanted: impl IntoIterator<Item = pollfd>) -> (*mut pollfd, c_ulong) {
    SLEPT_ON.with_borrow_mut(|list| {
        list.clear();
        list.extend(wanted);
        (list.as_mut_ptr(), list.len() as c_ulong)
    })
}

fn found(at: usize) -> c_short {
    SLEPT_ON.with_borrow(|list| list.get(at).map_or(0, |one| one.revents))
}

pub(super) const fn wanted(fd: c_int) -> pollfd {
    pollfd { fd, events: libc::POLLIN, revents: 0 }
}

pub(super) fn events(readiness: Readiness) -> c_short {
    let Readiness { readable, writable, failed, hung_up, finished } = readiness;
    [
        (readable, libc::POLLIN | libc::POLLRDNORM),
        (writable, libc::POLLOUT | libc::POLLWRNORM),
        (finished, libc::POLLRDHUP),
        (failed, libc::POLLERR),
        (hung_up, libc::POLLHUP),
    ]
    .into_iter()
    .filter(|(is_so, _)| *is_so)
    .fold(0, |all, (_, bits)| all | bits)
}

/// Wanted and unconditional events.
fn of_rsocket(one: &pollfd) -> c_short {
    match table::find(one.fd).map(|entry| entry.socket.readiness()) {
        Ok(Ok(readiness)) => events(readiness) & (one.events | libc::POLLERR | libc::POLLHUP),
        _ => libc::POLLNVAL,
    }
}

/// `poll` with rsockets. Cancellation point.
pub(super) unsafe fn poll_all(
    all: *mut pollfd,
    count: usize,
    limit: Option<Duration>,
) -> Result<c_int> {
    test_cancel();
    let (end, polling) = (Deadline::after(limit), Deadline::after(Some(polling_time())));
    let each = || (0..count).map(|index| all.add(index));
    let mut own = None;
    loop {
        let sleep = {
            let _call = Call::begin();
            // others first: the sleep reuses the list
            let others = each().map(|one| if table::is_one((*one).fd) { wanted(-1) } else { *one });
            let (list, length) = slept_on(others);
            if libc::poll(list, length, 0) < 0 {
                return Err(Errno::last());
            }
            let mut ready = 0;
            for (index, one) in each().enumerate() {
                let is_one = table::is_one((*one).fd);
                (*one).revents = if is_one { of_rsocket(&*one) } else { found(index) };
                ready += c_int::from((*one).revents != 0);
            }
            if ready > 0 || end.is_over() {
                return Ok(ready);
            }
            match own.take() {
                _ if !polling.is_over() => None,
                Some(own) => {
                    let sleeping = each()
                        .map(|one| if table::is_one((*one).fd) { wanted((*one).fd) } else { *one });
                    Some(slept_on(sleeping.chain([wanted(own)])))
                }
                None => {
                    own = Some(wakeup_descriptor()?);
                    each()
                        .filter_map(|one| table::find((*one).fd).ok())
                        .try_for_each(|entry| entry.socket.prepare_to_wait())?;
                    None
                }
            }
        };
        if let Some((list, length)) = sleep
            && poll_once(list, length, milliseconds(end.left())) < 0
        {
            return Err(Errno::last());
        }
    }
}

unsafe fn has_rsockets(all: *const pollfd, count: usize) -> bool {
    let _call = Call::begin();
    !all.is_null()
        && !table::is_empty()
        && (0..count).any(|index| table::is_one((*all.add(index)).fd))
}

waiting_calls!(
    fn rpoll(all: *mut pollfd, count: c_ulong, timeout: c_int) -> c_int {
        if !has_rsockets(all, count as usize) {
            return Ok(poll_once(all, count, timeout));
        }
        poll_all(all, count as usize, u64::try_from(timeout).ok().map(Duration::from_millis))
    }
);
