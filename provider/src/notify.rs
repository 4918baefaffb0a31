//! Queues with a descriptor.

use std::{
    collections::VecDeque,
    io,
    os::fd::{AsFd, BorrowedFd, OwnedFd},
};

use rustix::event::{EventfdFlags, eventfd};

use crate::sync::Mutex;

const MAX_VALUES: usize = 4096;

/// Queue with a descriptor, readable while it holds values.
#[derive(Debug)]
pub(crate) struct Notifier<T> {
    queue: Mutex<Queue<T>>,
    /// Further values displace the oldest.
    capacity: usize,
    descriptor: OwnedFd,
}

#[derive(Debug)]
struct Queue<T> {
    values: VecDeque<T>,
    is_readable: bool,
    /// The descriptor stays unchanged.
    is_quiet: bool,
}

impl<T> Notifier<T> {
    pub(crate) fn new() -> io::Result<Self> {
        Self::with_capacity(MAX_VALUES)
    }

    pub(crate) fn with_capacity(capacity: usize) -> io::Result<Self> {
        let flags = EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK;
        let queue = Queue { values: VecDeque::new(), is_readable: false, is_quiet: false };
        Ok(Self { queue: Mutex::new(queue), capacity, descriptor: eventfd(0, flags)? })
    }

    fn change<R>(&self, change: impl FnOnce(&mut Queue<T>) -> R) -> R {
        let mut queue = self.queue.lock();
        let result = change(&mut queue);
        let is_readable = !queue.values.is_empty();
        if !queue.is_quiet && queue.is_readable != is_readable {
            queue.is_readable = is_readable;
            let _ = match is_readable {
                true => rustix::io::write(&self.descriptor, &1u64.to_ne_bytes()),
                false => rustix::io::read(&self.descriptor, &mut [0; 8]),
            };
        }
        result
    }

    /// True if the queue grew.
    pub(crate) fn push(&self, value: T) -> bool {
        self.push_if(value, |_| true)
    }

    /// Adds a value if `keep` holds, atomically with [`retain`](Self::retain).
    pub(crate) fn push_if(&self, value: T, keep: impl FnOnce(&T) -> bool) -> bool {
        self.change(|queue| {
            if !keep(&value) {
                return false;
            }
            let grows = queue.values.len() < self.capacity;
            if !grows {
                queue.values.pop_front();
            }
            queue.values.push_back(value);
            grows
        })
    }

    pub(crate) fn pop(&self) -> Option<T> {
        self.change(|queue| queue.values.pop_front())
    }

    /// Number of dropped values.
    pub(crate) fn retain(&self, keep: impl FnMut(&T) -> bool) -> usize {
        self.change(|queue| {
            let before = queue.values.len();
            queue.values.retain(keep);
            before - queue.values.len()
        })
    }

    pub(crate) fn extract(&self, wanted: impl Fn(&T) -> bool) -> Vec<T> {
        self.change(|queue| {
            let (taken, left): (VecDeque<T>, _) = queue.values.drain(..).partition(wanted);
            queue.values = left;
            taken.into()
        })
    }

    pub(crate) fn first_is(&self, is: impl Fn(&T) -> bool) -> bool {
        self.queue.lock().values.front().is_some_and(is)
    }

    /// Takes the oldest value with a result of `find`.
    pub(crate) fn take_first<R>(&self, find: impl Fn(&T) -> Option<R>) -> Option<(T, R)> {
        self.change(|queue| {
            let mut values = queue.values.iter().enumerate();
            let (index, found) = values.find_map(|(index, value)| Some((index, find(value)?)))?;
            Some((queue.values.remove(index)?, found))
        })
    }

    /// Takes the oldest value after `make`, without signalling the descriptor.
    pub(crate) fn pop_made<R>(&self, make: impl FnOnce() -> R) -> (R, Option<T>) {
        self.change(|queue| queue.is_quiet = true);
        let made = make();
        let value = self.change(|queue| {
            queue.is_quiet = false;
            queue.values.pop_front()
        });
        (made, value)
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.queue.lock().values.is_empty()
    }

    pub(crate) fn descriptor(&self) -> BorrowedFd<'_> {
        self.descriptor.as_fd()
    }
}

#[cfg(test)]
mod tests {
    use rustix::event::{PollFd, PollFlags, Timespec, poll};

    use super::*;

    fn is_readable(notifier: &Notifier<u32>) -> bool {
        let descriptor = notifier.descriptor();
        let mut wanted = [PollFd::new(&descriptor, PollFlags::IN)];
        poll(&mut wanted, Some(&Timespec::default())).unwrap() == 1
    }

    #[test]
    fn the_descriptor_is_readable_while_there_are_values() {
        let notifier = Notifier::new().unwrap();
        assert!(!is_readable(&notifier) && notifier.pop().is_none());
        (0..3).for_each(|value| assert!(notifier.push(value)));
        assert_eq!(notifier.retain(|value| *value != 1), 1);
        assert_eq!((notifier.pop(), is_readable(&notifier)), (Some(0), true));
        assert_eq!((notifier.pop(), is_readable(&notifier)), (Some(2), false));
        assert!(!notifier.push_if(7, |_| false) && !is_readable(&notifier));
        let grew: usize = (0..5000).map(|value| usize::from(notifier.push(value))).sum();
        assert_eq!((grew, notifier.pop()), (MAX_VALUES, Some(5000 - MAX_VALUES as u32)));
        assert_eq!(notifier.retain(|_| false), MAX_VALUES - 1);
        assert!(!is_readable(&notifier));
    }

    #[test]
    fn a_value_that_is_taken_where_it_is_made_does_not_show() {
        let notifier = Notifier::new().unwrap();
        let make = |count: u32| (0..count).for_each(|value| _ = notifier.push(value));
        for count in 0..3 {
            let (was_readable, value) = notifier.pop_made(|| {
                make(count);
                is_readable(&notifier)
            });
            assert_eq!((was_readable, value), (false, (count > 0).then_some(0)));
            assert_eq!(is_readable(&notifier), count > 1, "of {count}");
            notifier.retain(|_| false);
        }
        make(1);
        assert_eq!((notifier.pop_made(|| ()).1, is_readable(&notifier)), (Some(0), false));
    }
}
