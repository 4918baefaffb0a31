//! Parts of completion queues.

use std::sync::{Mutex, OnceLock};

use crate::atomic::fence;
pub(super) use crate::atomic::{
    AtomicBool, AtomicU8, AtomicU16, AtomicU32, AtomicU64, AtomicUsize, Ordering,
};

/// crossbeam's queue with the same positions, stamps and orderings; elements lie in mutexes, which
/// loom need not explore. For at least two elements.
#[derive(Debug)]
pub(super) struct ArrayQueue<T> {
    head: AtomicUsize,
    tail: AtomicUsize,
    slots: Vec<Slot<T>>,
}

#[derive(Debug)]
struct Slot<T> {
    stamp: AtomicUsize,
    element: Mutex<Option<T>>,
}

impl<T> ArrayQueue<T> {
    pub(super) fn new(capacity: usize) -> Self {
        assert!(capacity > 1, "stamps would be ambiguous");
        let slot = |index| Slot { stamp: AtomicUsize::new(index), element: Mutex::new(None) };
        let slots = (0..capacity).map(slot).collect();
        Self { head: AtomicUsize::new(0), tail: AtomicUsize::new(0), slots }
    }

    pub(super) fn capacity(&self) -> usize {
        self.slots.len()
    }

    pub(super) fn len(&self) -> usize {
        // in this order, as only the owner asks
        let tail = self.tail.load(Ordering::Relaxed);
        tail - self.head.load(Ordering::Relaxed).min(tail)
    }

    /// By one thread.
    pub(super) fn push(&self, value: T) -> Result<(), T> {
        let tail = self.tail.load(Ordering::Relaxed);
        let slot = &self.slots[tail % self.capacity()];
        if slot.stamp.load(Ordering::Acquire) != tail {
            return Err(value);
        }
        // weaker than crossbeam's sequential consistency, which its documentation does not promise
        let _ = self.tail.compare_exchange(tail, tail + 1, Ordering::AcqRel, Ordering::Relaxed);
        *slot.element.lock().unwrap() = Some(value);
        slot.stamp.store(tail + 1, Ordering::Release);
        Ok(())
    }

    pub(super) fn pop(&self) -> Option<T> {
        loop {
            let head = self.head.load(Ordering::Relaxed);
            let slot = &self.slots[head % self.capacity()];
            let stamp = slot.stamp.load(Ordering::Acquire);
            if stamp == head + 1 {
                let next = head + 1;
                let (won, relaxed) = (Ordering::AcqRel, Ordering::Relaxed);
                if self.head.compare_exchange(head, next, won, relaxed).is_ok() {
                    let value = slot.element.lock().unwrap().take();
                    slot.stamp.store(head + self.capacity(), Ordering::Release);
                    return value;
                }
            } else if stamp == head {
                fence(Ordering::SeqCst);
                if self.tail.load(Ordering::Relaxed) == head {
                    return None;
                }
            }
            loom::thread::yield_now();
        }
    }
}

#[derive(Debug)]
pub(super) struct OnceBox<T>(OnceLock<Box<T>>);

impl<T> OnceBox<T> {
    pub(super) const fn new() -> Self {
        Self(OnceLock::new())
    }

    pub(super) fn get(&self) -> Option<&T> {
        self.0.get().map(|value| &**value)
    }

    pub(super) fn set(&self, value: Box<T>) -> Result<(), Box<T>> {
        self.0.set(value)
    }
}
