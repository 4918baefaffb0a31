//! Waiting for a link that is full.

use std::{
    os::fd::{BorrowedFd, OwnedFd},
    sync::Arc,
    time::Duration,
};

use roce_transport::time::Instant;
use rustix::event::epoll;

use crate::cancel::Uncancelled;

/// Time between two attempts to send to a link that does not show when it has room.
const RETRY: Duration = Duration::from_millis(1);

/// Whether a link is full, and what is waited for then.
pub(super) struct Room {
    /// Set while the link is full.
    blocked: Option<Blocked>,
    /// Epoll descriptor of those who sleep until there is something to do.
    sockets: Arc<OwnedFd>,
}

/// What a full link is waited for by.
enum Blocked {
    /// A copy of its descriptor, in the epoll descriptor until it is writable. A copy, because the
    /// original may be there to be read, and may be closed.
    Writable(OwnedFd),
    /// It is tried again at this time.
    Until(Instant),
}

impl Room {
    pub(super) const fn new(sockets: Arc<OwnedFd>) -> Self {
        Self { blocked: None, sockets }
    }

    /// True if the link is full.
    pub(super) const fn is_blocked(&self) -> bool {
        self.blocked.is_some()
    }

    /// Time at which it is to be sent although no descriptor says so; `is_due` says whether there
    /// is anything to send.
    pub(super) fn deadline(&self, is_due: bool) -> Option<Instant> {
        match self.blocked {
            Some(Blocked::Until(due)) => Some(due),
            Some(Blocked::Writable(_)) => None,
            None => is_due.then_some(Instant::ZERO),
        }
    }

    /// The link has taken something.
    pub(super) fn found(&mut self) {
        if let Some(Blocked::Writable(descriptor)) = self.blocked.take() {
            let _uncancelled = Uncancelled::begin(); // which closes it
            let _ = epoll::delete(&self.sockets, &descriptor);
        }
    }

    /// The link is full until this descriptor is writable; `None`: for some time.
    pub(super) fn wait(&mut self, now: Instant, descriptor: Option<BorrowedFd<'_>>) {
        if matches!(self.blocked, Some(Blocked::Writable(_))) {
            return;
        }
        let watched = descriptor.and_then(|descriptor| {
            let copy = descriptor.try_clone_to_owned().ok()?;
            let (data, flags) = (epoll::EventData::new_u64(0), epoll::EventFlags::OUT);
            epoll::add(&self.sockets, &copy, data, flags).ok()?;
            Some(Blocked::Writable(copy))
        });
        self.blocked = Some(watched.unwrap_or(Blocked::Until(now.plus(RETRY))));
    }

    /// Waits no more, without touching the epoll descriptor, which the child of a fork shares with
    /// its parent.
    pub(super) fn abandon(&mut self) {
        self.blocked = None;
    }
}
