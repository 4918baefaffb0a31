//! Queues with a descriptor.

use std::{
    collections::VecDeque,
    io,
    os::fd::{AsFd, BorrowedFd, OwnedFd},
};

use rustix::event::{EventfdFlags, eventfd};

use crate::sync::Mutex;

/// Maximum values; more displace the oldest.
const MAX_VALUES: usize = 4096;

/// Queue with a descriptor, readable while it holds values.
#[derive(Debug)]
pub(crate) struct Notifier<T> {
    queue: Mutex<VecDeque<T>>,
    descriptor: OwnedFd,
}

impl<T> Notifier<T> {
    pub(crate) fn new() -> io::Result<Self> {
        let flags = EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK | EventfdFlags::SEMAPHORE;
        Ok(Self { queue: Mutex::default(), descriptor: eventfd(0, flags)? })
    }

    /// Adds a value; true if the number grew.
    pub(crate) fn push(&self, value: T) -> bool {
        self.push_if(value, |_| true)
    }

    /// Adds a value if `keep` holds, atomically with [`retain`](Self::retain).
    pub(crate) fn push_if(&self, value: T, keep: impl FnOnce(&T) -> bool) -> bool {
        let mut queue = self.queue.lock();
        if !keep(&value) {
            return false;
        }
        let grows = queue.len() < MAX_VALUES;
        if grows {
            let _ = rustix::io::write(&self.descriptor, &1u64.to_ne_bytes()); // counts to 2^64
        } else {
            queue.pop_front();
        }
        queue.push_back(value);
        grows
    }

    pub(crate) fn pop(&self) -> Option<T> {
        let mut queue = self.queue.lock();
        let value = queue.pop_front()?;
        let _ = rustix::io::read(&self.descriptor, &mut [0; 8]); // one for each value
        Some(value)
    }

    /// Drops values not to keep; returns their number.
    pub(crate) fn retain(&self, keep: impl FnMut(&T) -> bool) -> usize {
        let mut queue = self.queue.lock();
        let before = queue.len();
        queue.retain(keep);
        let gone = before - queue.len();
        for _ in 0..gone {
            let _ = rustix::io::read(&self.descriptor, &mut [0; 8]);
        }
        gone
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.queue.lock().is_empty()
    }

    pub(crate) fn descriptor(&self) -> BorrowedFd<'_> {
        self.descriptor.as_fd()
    }
}
