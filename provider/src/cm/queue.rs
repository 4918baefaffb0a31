//! Queue with a descriptor, readable while it holds items.

use std::{
    collections::VecDeque,
    fmt, io,
    os::fd::{AsFd, BorrowedFd, OwnedFd},
    sync::MutexGuard,
};

use rustix::event::{EventfdFlags, eventfd};

use crate::sync::Mutex;

pub(super) struct Queue<T> {
    items: Mutex<VecDeque<T>>,
    descriptor: OwnedFd,
}

impl<T> Queue<T> {
    pub(super) fn new() -> io::Result<Self> {
        let descriptor = eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)?;
        Ok(Self { items: Mutex::new(VecDeque::new()), descriptor })
    }

    fn lock(&self) -> MutexGuard<'_, VecDeque<T>> {
        self.items.lock()
    }

    pub(super) fn push(&self, item: T) {
        let mut items = self.lock();
        if items.is_empty() {
            let _ = rustix::io::write(&self.descriptor, &1u64.to_ne_bytes()); // counts to 2^64
        }
        items.push_back(item);
    }

    pub(super) fn extract(&self, wanted: impl Fn(&T) -> bool) -> Vec<T> {
        let mut items = self.lock();
        let had_some = !items.is_empty();
        let (taken, left): (VecDeque<T>, VecDeque<T>) =
            items.drain(..).partition(|item| wanted(item));
        *items = left;
        if had_some && items.is_empty() {
            self.clear();
        }
        taken.into()
    }

    pub(super) fn first_is(&self, is: impl Fn(&T) -> bool) -> bool {
        self.lock().front().is_some_and(is)
    }

    /// Removes the oldest item with a result of `find`.
    pub(super) fn take_first<R>(&self, find: impl Fn(&T) -> Option<R>) -> Option<(T, R)> {
        let mut items = self.lock();
        let (index, found) =
            items.iter().enumerate().find_map(|(index, item)| Some((index, find(item)?)))?;
        let item = items.remove(index)?;
        if items.is_empty() {
            self.clear();
        }
        Some((item, found))
    }

    fn clear(&self) {
        let _ = rustix::io::read(&self.descriptor, &mut [0; 8]);
    }
}

impl<T> AsFd for Queue<T> {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.descriptor.as_fd()
    }
}

impl<T> fmt::Debug for Queue<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Queue").field("descriptor", &self.descriptor).finish_non_exhaustive()
    }
}
