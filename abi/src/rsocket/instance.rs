//! `repoll`: instances for rsockets, beside the kernel's `epoll` for other descriptors.

use std::{collections::BTreeMap, time::Duration};

use libc::epoll_event;
use roce_provider::calls::Call;
use roce_rsocket::{Deadline, polling_time, wakeup_descriptor};

use super::{poll, table};
use crate::{
    prelude::*,
    sync::Mutex,
    wait::{milliseconds, test_cancel, wait_for},
};

static INSTANCES: Mutex<BTreeMap<c_int, BTreeMap<c_int, Watched>>> = Mutex::new(BTreeMap::new());

struct Watched {
    events: u32,
    data: u64,
    /// Event count at the last report.
    reported: Option<u64>,
}

const ALWAYS: u32 = (libc::EPOLLERR | libc::EPOLLHUP).cast_unsigned();
const EDGE: u32 = libc::EPOLLET.cast_unsigned();
const ONCE: u32 = libc::EPOLLONESHOT.cast_unsigned();

impl Watched {
    fn take_event(&mut self, fd: c_int) -> Option<epoll_event> {
        let entry = table::find(fd).ok()?;
        // same bits
        let ready = poll::events(entry.socket.readiness().ok()?).cast_unsigned();
        let found = u32::from(ready) & (self.events | ALWAYS);
        let count = Some(entry.socket.event_count());
        if found == 0 || self.events == 0 || self.events & EDGE != 0 && self.reported == count {
            return None;
        }
        self.reported = count;
        if self.events & ONCE != 0 {
            self.events = 0;
        }
        Some(epoll_event { events: found, u64: self.data })
    }
}

calls!(
    /// Ignores flags that `epoll` lacks.
    fn repoll_create(flags: c_int) -> c_int {
        let epoll = libc::epoll_create1(flags & libc::EPOLL_CLOEXEC);
        if epoll >= 0 {
            INSTANCES.lock().insert(epoll, BTreeMap::new());
        }
        Ok(epoll)
    }

    fn repoll_ctl(instance: c_int, op: c_int, descriptor: c_int, event: *mut epoll_event) -> c_int {
        if table::is_one(descriptor) {
            return watch(instance, op, descriptor, event.as_ref());
        }
        match libc::epoll_ctl(instance, op, descriptor, event) {
            0 => Ok(()),
            _ => Err(Errno::last()),
        }
    }
);

fn watch(instance: c_int, op: c_int, fd: c_int, event: Option<&epoll_event>) -> Result<()> {
    let mut instances = INSTANCES.lock();
    let watched = instances.get_mut(&instance).ok_or(Rule::SocketArgument)?;
    let known = watched.contains_key(&fd);
    match (op, known, event) {
        (libc::EPOLL_CTL_ADD, true, _) => Err(Errno::of(Rule::Watched)),
        (libc::EPOLL_CTL_MOD | libc::EPOLL_CTL_DEL, false, _) => Err(Errno::of(Rule::NotWatched)),
        (libc::EPOLL_CTL_DEL, true, _) => {
            watched.remove(&fd);
            Ok(())
        }
        (
            libc::EPOLL_CTL_ADD | libc::EPOLL_CTL_MOD,
            _,
            Some(&epoll_event { events, u64: data }),
        ) => {
            watched.insert(fd, Watched { events, data, reported: None });
            Ok(())
        }
        (libc::EPOLL_CTL_ADD | libc::EPOLL_CTL_MOD, _, None) => Err(Errno::of(Rule::SocketPointer)),
        _ => Err(Errno::of(Rule::SocketArgument)),
    }
}

unsafe fn take_ready(instance: c_int, events: *mut epoll_event, most: usize) -> Result<usize> {
    let mut count = 0;
    if let Some(watched) = INSTANCES.lock().get_mut(&instance) {
        watched.retain(|fd, _| table::is_one(*fd)); // the others were closed
        for (fd, one) in watched.iter_mut() {
            if count == most {
                break;
            }
            if let Some(event) = one.take_event(*fd) {
                *events.add(count) = event;
                count += 1;
            }
        }
    }
    if count < most {
        let rest = c_int::try_from(most - count).unwrap_or(c_int::MAX);
        let found = libc::epoll_wait(instance, events.add(count), rest, 0);
        count += usize::try_from(found).map_err(|_| Errno::last())?;
    }
    Ok(count)
}

fn rsockets(instance: c_int) -> Vec<c_int> {
    INSTANCES
        .lock()
        .get(&instance)
        .map_or_else(Vec::new, |watched| watched.keys().copied().collect())
}

fn prepare(instance: c_int) -> Result<(*mut libc::pollfd, std::ffi::c_ulong)> {
    let fds = rsockets(instance);
    let own = wakeup_descriptor()?;
    fds.iter()
        .filter_map(|fd| table::find(*fd).ok())
        .try_for_each(|entry| entry.socket.prepare_to_wait())?;
    Ok(poll::slept_on([own, instance].into_iter().chain(fds).map(poll::wanted)))
}

waiting_calls!(
    fn repoll_wait(
        instance: c_int,
        events: *mut epoll_event,
        most: c_int,
        timeout: c_int,
    ) -> c_int {
        test_cancel();
        let most =
            usize::try_from(most).ok().filter(|most| *most > 0).ok_or(Rule::SocketArgument)?;
        let end = Deadline::after(u64::try_from(timeout).ok().map(Duration::from_millis));
        let polling = Deadline::after(Some(polling_time()));
        let mut list = None;
        loop {
            let sleep = {
                let _call = Call::begin();
                let count = take_ready(instance, events, most)?;
                if count > 0 || end.is_over() {
                    return Ok(count as c_int);
                }
                let sleep = list.take();
                if sleep.is_none() && polling.is_over() {
                    list = Some(prepare(instance)?);
                }
                sleep
            };
            if let Some((list, length)) = sleep
                && wait_for(list, length, milliseconds(end.left())) < 0
            {
                return Err(Errno::last());
            }
        }
    }
);

/// Closes an instance; `EBADF` otherwise.
pub(super) fn close(instance: c_int) -> Result<()> {
    let _call = Call::begin();
    INSTANCES.lock().remove(&instance).ok_or(Rule::NotARsocket)?;
    // SAFETY: `repoll_create` has made it.
    match unsafe { libc::close(instance) } {
        0 => Ok(()),
        _ => Err(Errno::last()),
    }
}

#[cfg(test)]
mod tests {
    use std::{io::Write as _, os::fd::AsRawFd};

    use super::*;

    #[test]
    fn descriptors_are_waited_for_until_the_instance_is_closed() {
        let (reader, mut writer) = std::io::pipe().unwrap();
        let nothing = epoll_event { events: 0, u64: 0 };
        // SAFETY: All pointers are valid.
        unsafe {
            let epoll = repoll_create(libc::O_CLOEXEC | libc::O_NONBLOCK);
            let mut event = epoll_event { events: libc::EPOLLIN as u32, u64: 77 };
            let added = repoll_ctl(epoll, libc::EPOLL_CTL_ADD, reader.as_raw_fd(), &raw mut event);
            assert_eq!(added, 0);
            let mut found = [nothing; 2];
            assert_eq!(repoll_wait(epoll, found.as_mut_ptr(), 2, 0), 0);
            writer.write_all(b"x").unwrap();
            assert_eq!(repoll_wait(epoll, found.as_mut_ptr(), 2, -1), 1);
            assert_eq!({ found[0].u64 }, 77);

            assert_eq!(close(reader.as_raw_fd()), Err(Errno::plain(libc::EBADF)));
            assert_eq!(close(epoll), Ok(()));
            assert_eq!(close(epoll), Err(Errno::plain(libc::EBADF)));
        }
    }
}
