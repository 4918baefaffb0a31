//! Epoll descriptors, through which threads see the events of many others.

use std::{
    io,
    mem::MaybeUninit,
    os::fd::{AsFd, OwnedFd},
};

use rustix::event::{Timespec, epoll};

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

/// Whether there is news, and whether something has arrived for another process.
pub(super) fn poll_events(epoll: &OwnedFd) -> (bool, bool) {
    let mut events = [const { MaybeUninit::uninit() }; EVENTS];
    let Ok((events, _)) = epoll::wait(epoll, &mut events, Some(&Timespec::default())) else {
        return (false, false);
    };
    let says = |it: Readable| events.iter().any(|event| event.data.u64() == it as u64);
    (says(Readable::News) || events.len() == EVENTS, says(Readable::OtherProcess))
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
