use std::{
    os::fd::{BorrowedFd, OwnedFd},
    sync::Arc,
    time::Duration,
};

use roce_transport::time::Instant;
use rustix::event::epoll;

use crate::cancel::Uncancelled;

/// Retry interval of a link that does not signal room.
pub(super) const RETRY: Duration = Duration::from_millis(1);

pub(super) struct Room {
    blocked: Option<Blocked>,
    /// Epoll descriptor of sleeping threads.
    sockets: Arc<OwnedFd>,
}

enum Blocked {
    /// A copy of the link's descriptor in epoll until writable: the original may be read there, or
    /// be closed.
    Writable(OwnedFd),
    Until(Instant),
}

impl Room {
    pub(super) const fn new(sockets: Arc<OwnedFd>) -> Self {
        Self { blocked: None, sockets }
    }

    pub(super) const fn is_blocked(&self) -> bool {
        self.blocked.is_some()
    }

    /// Time to send without a readable descriptor; `is_due`: packets exist.
    pub(super) fn deadline(&self, is_due: bool) -> Option<Instant> {
        match self.blocked {
            Some(Blocked::Until(due)) => Some(due),
            Some(Blocked::Writable(_)) => None,
            None => is_due.then_some(Instant::ZERO),
        }
    }

    pub(super) fn unblock(&mut self) {
        if let Some(Blocked::Writable(descriptor)) = self.blocked.take() {
            let _uncancelled = Uncancelled::begin(); // the drop closes it
            let _ = epoll::delete(&self.sockets, &descriptor);
        }
    }

    /// Waits until `descriptor` is writable, else for [`RETRY`].
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

    /// Ends the wait. The epoll descriptor stays as it is: a forked child shares it with its
    /// parent.
    pub(super) fn abandon(&mut self) {
        self.blocked = None;
    }
}
