//! A bounded queue, resizable under concurrent pops.

use alloc::boxed::Box;

use super::parts::{ArrayQueue, AtomicUsize, OnceBox, Ordering};

/// Growth doubles: enough from 1 to 2^31 elements.
const GROWN: usize = 31;

/// One owner pushes and resizes; any thread pops without a lock.
///
/// An array in use cannot be replaced: growth appends a larger array for pushes, while pops empty
/// older arrays first. Shrinking only lowers the limit. Arrays stay, with less than twice the
/// newest's elements.
#[derive(Debug)]
pub(super) struct Ring<T> {
    first: ArrayQueue<T>,
    grown: [OnceBox<ArrayQueue<T>>; GROWN],
    /// For pushes; set after its creation.
    newest: AtomicUsize,
    /// May hold elements.
    oldest: AtomicUsize,
    limit: AtomicUsize,
}

impl<T> Ring<T> {
    #[cfg(test)]
    pub(super) fn new(limit: usize) -> Self {
        Self::of(ArrayQueue::new(limit))
    }

    pub(super) fn of(first: ArrayQueue<T>) -> Self {
        let limit = first.capacity();
        Self {
            first,
            grown: [const { OnceBox::new() }; GROWN],
            newest: AtomicUsize::new(0),
            oldest: AtomicUsize::new(0),
            limit: AtomicUsize::new(limit),
        }
    }

    fn array(&self, index: usize) -> Option<&ArrayQueue<T>> {
        match index.checked_sub(1) {
            None => Some(&self.first),
            Some(index) => self.grown.get(index)?.get(),
        }
    }

    pub(super) fn limit(&self) -> usize {
        self.limit.load(Ordering::Relaxed)
    }

    /// Concurrent pops may leave fewer.
    pub(super) fn len(&self) -> usize {
        let newest = self.newest.load(Ordering::Acquire);
        let oldest = self.oldest.load(Ordering::Acquire).min(newest);
        (oldest..=newest).filter_map(|index| self.array(index)).map(ArrayQueue::len).sum()
    }

    pub(super) fn pop(&self) -> Option<T> {
        loop {
            let oldest = self.oldest.load(Ordering::Acquire);
            // first: with a newer array nothing is added here
            let is_newest = oldest == self.newest.load(Ordering::Acquire);
            let taken = self.array(oldest)?.pop();
            if taken.is_some() || is_newest {
                return taken;
            }
            // another thread may have
            let _ = self.oldest.compare_exchange(
                oldest,
                oldest + 1,
                Ordering::AcqRel,
                Ordering::Acquire,
            );
        }
    }

    /// Owner only.
    pub(super) fn push(&self, value: T) -> Result<(), T> {
        let newest = self.newest.load(Ordering::Relaxed);
        match self.array(newest) {
            // full at the limit, unless that was lowered
            Some(array) if newest == 0 && array.capacity() == self.limit() => array.push(value),
            Some(array) if self.len() < self.limit() => array.push(value),
            _ => Err(value),
        }
    }

    /// Array size needed for `limit`, if larger.
    pub(super) fn lacks(&self, limit: usize) -> Option<usize> {
        let newest = self.newest.load(Ordering::Acquire);
        let allocated = self.array(newest).map_or(0, ArrayQueue::capacity);
        (limit > allocated).then(|| limit.max(allocated.saturating_mul(2)))
    }

    /// Owner only; `limit` is at least 1. `Err`: more elements are held.
    pub(super) fn resize(&self, limit: usize, array: Option<ArrayQueue<T>>) -> Result<(), usize> {
        let held = self.len();
        if held > limit {
            return Err(held);
        }
        if let Some(lacking) = self.lacks(limit) {
            let newest = self.newest.load(Ordering::Relaxed);
            // never full: more slots than doublings
            let place = self.grown.get(newest).ok_or(held)?;
            let array = array.filter(|array| array.capacity() >= lacking);
            let _ = place.set(Box::new(array.unwrap_or_else(|| ArrayQueue::new(lacking))));
            self.newest.store(newest + 1, Ordering::Release);
        }
        self.limit.store(limit, Ordering::Relaxed);
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use std::{
        sync::atomic::{AtomicBool, Ordering},
        thread,
        vec::Vec,
    };

    use super::*;

    #[test]
    fn order_survives_growing_and_shrinking() {
        let ring = Ring::new(2);
        assert_eq!([1, 2, 3].map(|value| ring.push(value)), [Ok(()), Ok(()), Err(3)]);
        assert_eq!(ring.resize(1, None), Err(2));
        assert_eq!(ring.limit(), 2, "a refused resize changes nothing");
        ring.resize(4, None).unwrap();
        assert_eq!(
            [3, 4, 5].map(|value| ring.push(value)),
            [Ok(()), Ok(()), Err(5)],
            "what is in the old array counts"
        );
        ring.resize(5, None).unwrap();
        assert_eq!((ring.push(5), ring.len()), (Ok(()), 5));
        assert_eq!([ring.pop(), ring.pop()], [Some(1), Some(2)]);
        ring.resize(3, None).unwrap();
        assert_eq!(ring.push(6), Err(6));
        assert_eq!(
            [ring.pop(), ring.pop(), ring.pop(), ring.pop()],
            [Some(3), Some(4), Some(5), None]
        );
        assert_eq!([6, 7, 8, 9].map(|value| ring.push(value)), [Ok(()), Ok(()), Ok(()), Err(9)]);
    }

    #[test]
    fn resizing_back_and_forth_takes_no_more_places() {
        let ring = Ring::new(1);
        for round in 0..1000 {
            ring.resize(1 + round * 37 % 1024, None).unwrap();
            assert_eq!((ring.push(round), ring.pop()), (Ok(()), Some(round)));
        }
        assert!(ring.newest.load(Ordering::Relaxed) <= 11);
    }

    #[test]
    fn takers_do_not_notice_a_resize() {
        const COUNT: usize = if cfg!(miri) { 500 } else { 200_000 };
        let (ring, done) = (Ring::new(1), AtomicBool::new(false));
        let take = || {
            let mut taken = Vec::new();
            loop {
                let last = done.load(Ordering::Acquire);
                while let Some(value) = ring.pop() {
                    taken.push(value);
                }
                if last {
                    return taken;
                }
                thread::yield_now();
            }
        };
        let mut all = thread::scope(|scope| {
            let takers = [scope.spawn(take), scope.spawn(take)];
            for value in 0..COUNT {
                while ring.push(value).is_err() {
                    let limit = ring.limit();
                    let _ = ring.resize(
                        if value % 3 == 0 {
                            limit * 2 % 5000 + 1
                        } else {
                            limit.saturating_sub(3).max(1)
                        },
                        None,
                    );
                    thread::yield_now();
                }
            }
            done.store(true, Ordering::Release);
            let taken = takers.map(|taker| taker.join().unwrap());
            assert!(taken.iter().all(|values| values.is_sorted()));
            taken.concat()
        });
        all.sort_unstable();
        assert!(all.into_iter().eq(0..COUNT));
    }
}
