//! Waiting for many descriptors by an instance of its own, as with `epoll`. No descriptor is an
//! rsocket yet, so it is one of `epoll`.

use std::{collections::BTreeSet, ffi::c_int};

use libc::epoll_event;
use roce_provider::calls::Call;

use crate::{
    errno::{Errno, minus_one},
    export::export,
    sync::Mutex,
};

unsafe extern "C-unwind" {
    /// As in libc, but declared to unwind: it is a cancellation point.
    fn epoll_wait(epoll: c_int, events: *mut epoll_event, most: c_int, timeout: c_int) -> c_int;
}

/// Instances that have been made, which [`close`] closes and no other descriptor.
static INSTANCES: Mutex<BTreeSet<c_int>> = Mutex::new(BTreeSet::new());

/// Of the flags of a descriptor, those that `epoll` has no use for do nothing.
unsafe extern "C" fn repoll_create(flags: c_int) -> c_int {
    let _call = Call::begin();
    let epoll = libc::epoll_create1(flags & libc::EPOLL_CLOEXEC);
    if epoll >= 0 {
        INSTANCES.lock().insert(epoll);
    }
    epoll
}

unsafe extern "C" fn repoll_ctl(
    epoll: c_int,
    op: c_int,
    descriptor: c_int,
    event: *mut epoll_event,
) -> c_int {
    let _call = Call::begin();
    libc::epoll_ctl(epoll, op, descriptor, event)
}

unsafe extern "C-unwind" fn repoll_wait(
    epoll: c_int,
    events: *mut epoll_event,
    most: c_int,
    timeout: c_int,
) -> c_int {
    epoll_wait(epoll, events, most, timeout)
}

/// Closes an instance. `EBADF` for another descriptor.
unsafe extern "C" fn rclose(descriptor: c_int) -> c_int {
    let _call = Call::begin();
    if INSTANCES.lock().remove(&descriptor) {
        libc::close(descriptor)
    } else {
        minus_one(Err(Errno(libc::EBADF)))
    }
}

export!(repoll_create, repoll_ctl, repoll_wait, rclose);

#[cfg(test)]
mod tests {
    use std::{io::Write as _, os::fd::AsRawFd};

    use super::*;
    use crate::testing::errno;

    #[test]
    fn descriptors_are_waited_for_until_the_instance_is_closed() {
        let (reader, mut writer) = std::io::pipe().unwrap();
        let nothing = epoll_event { events: 0, u64: 0 };
        // SAFETY: Descriptors and places of our own.
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

            assert_eq!((rclose(reader.as_raw_fd()), errno()), (-1, libc::EBADF));
            assert_eq!(rclose(epoll), 0);
            assert_eq!((rclose(epoll), errno()), (-1, libc::EBADF));
        }
    }
}
