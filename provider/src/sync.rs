//! A mutex without poisoning.
//!
//! It is the standard library's, not `parking_lot`'s. The state of the former lies in the mutex
//! alone, so the child of a `fork` can release what the forking thread held, and take locks
//! afterwards. `parking_lot` keeps the waiting threads of all mutexes in one table of the process,
//! whose own locks another thread may hold at the moment of the `fork`: in the child no thread
//! releases them, and a later `lock` or `unlock` hangs (Amanieu/parking_lot#515). Programs that
//! load the C library fork, and open devices in the child.

use std::sync::{self, MutexGuard, PoisonError, TryLockError};

/// A mutex whose `lock` cannot fail. A panic under the lock is a bug of ours; the state behind it
/// is as good as it was.
#[derive(Debug, Default)]
pub struct Mutex<T: ?Sized>(sync::Mutex<T>);

impl<T> Mutex<T> {
    /// A mutex around this value.
    pub const fn new(value: T) -> Self {
        Self(sync::Mutex::new(value))
    }
}

impl<T: ?Sized> Mutex<T> {
    /// The lock, as soon as no other thread holds it.
    pub fn lock(&self) -> MutexGuard<'_, T> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The lock, unless a thread holds it.
    pub fn try_lock(&self) -> Option<MutexGuard<'_, T>> {
        match self.0.try_lock() {
            Ok(guard) => Some(guard),
            Err(TryLockError::Poisoned(poisoned)) => Some(poisoned.into_inner()),
            Err(TryLockError::WouldBlock) => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use std::{panic, sync::Arc, thread};

    use super::*;

    #[test]
    fn a_panic_under_the_lock_leaves_it_usable() {
        let mutex = Arc::new(Mutex::new(1));
        let other = mutex.clone();
        let panicked = thread::spawn(move || {
            let _guard = other.lock();
            panic::resume_unwind(Box::new("on purpose")); // without a message on stderr
        });
        assert!(panicked.join().is_err());
        *mutex.lock() += 1;
        let guard = mutex.try_lock().unwrap();
        assert_eq!((*guard, mutex.try_lock().is_none()), (2, true));
    }
}
