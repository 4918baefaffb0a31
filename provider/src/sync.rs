//! Mutex without poisoning, usable in a forked child.
//!
//! `parking_lot` keeps waiters in a process-wide table. If another thread holds the table's lock at
//! `fork`, the child hangs (Amanieu/parking_lot#515). A standard mutex contains all its state.

use std::sync::{self, MutexGuard, PoisonError, TryLockError};

/// Mutex whose `lock` cannot fail: a panic under the lock leaves the state usable.
#[derive(Debug, Default)]
pub struct Mutex<T: ?Sized>(sync::Mutex<T>);

impl<T> Mutex<T> {
    /// Creates a mutex.
    pub const fn new(value: T) -> Self {
        Self(sync::Mutex::new(value))
    }
}

impl<T: ?Sized> Mutex<T> {
    /// Locks the mutex.
    pub fn lock(&self) -> MutexGuard<'_, T> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Locks the mutex if it is free.
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
