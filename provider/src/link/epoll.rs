//! Epoll descriptors, through which threads see the events of many others.

#![allow(unsafe_code, reason = "rustix leaves an argument of epoll_pwait undefined")]

use std::{
    ffi::c_int,
    io,
    mem::MaybeUninit,
    os::fd::{AsFd, AsRawFd, OwnedFd},
    ptr, slice,
};

use rustix::event::epoll;

/// Meaning of a readable descriptor.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Readable {
    /// A process has connected, sent something, or ended.
    News = 0,
    /// Datagrams for this process have arrived.
    Datagrams = 1,
    /// Something has arrived for another process. Reported once for each [`watch`].
    OtherProcess = 2,
}

const EVENTS: usize = 16;

/// Data of the events present. Valgrind reports undefined arguments, also where the kernel ignores
/// them.
pub(super) fn ready<'a>(
    epoll: &OwnedFd,
    events: &'a mut [MaybeUninit<libc::epoll_event>],
) -> io::Result<impl ExactSizeIterator<Item = u64> + use<'a>> {
    let (start, room) = (events.as_mut_ptr(), events.len() as c_int);
    let no_signals = ptr::null::<libc::sigset_t>();
    // SAFETY: the kernel writes at most `room` events
    let count = unsafe {
        libc::syscall(libc::SYS_epoll_pwait, epoll.as_raw_fd(), start, room, 0, no_signals, 0_usize)
    };
    let count = usize::try_from(count).map_err(|_| io::Error::last_os_error())?;
    // SAFETY: the kernel has written `count` events
    let events = unsafe { slice::from_raw_parts(start.cast::<libc::epoll_event>(), count) };
    Ok(events.iter().map(|event| event.u64))
}

/// Whether there is news, and whether something has arrived for another process.
pub(super) fn poll_events(epoll: &OwnedFd) -> (bool, bool) {
    let mut events = [const { MaybeUninit::uninit() }; EVENTS];
    let Ok(events) = ready(epoll, &mut events) else { return (false, false) };
    let is_full = events.len() == EVENTS;
    let (mut news, mut other) = (is_full, false);
    for data in events {
        news |= data == Readable::News as u64;
        other |= data == Readable::OtherProcess as u64;
    }
    (news, other)
}

pub(super) fn watch(epoll: &OwnedFd, descriptor: impl AsFd, readable: Readable) -> io::Result<()> {
    let once = match readable {
        Readable::OtherProcess => epoll::EventFlags::ONESHOT,
        _ => epoll::EventFlags::empty(),
    };
    let (data, flags) = (epoll::EventData::new_u64(readable as u64), epoll::EventFlags::IN | once);
    match epoll::modify(epoll, &descriptor, data, flags) {
        Err(rustix::io::Errno::NOENT) => Ok(epoll::add(epoll, descriptor, data, flags)?),
        result => Ok(result?),
    }
}

/// Closing is not enough for a socket that other processes have.
pub(super) fn unwatch(epoll: &OwnedFd, descriptor: impl AsFd) {
    let _ = epoll::delete(epoll, descriptor);
}
