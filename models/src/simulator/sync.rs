//! Locks, for which a thread spins, then yields.

use std::sync::{self, MutexGuard, TryLockError};

use super::machine::{spend, yield_now};

/// Turns before a yield.
const SPINS: u32 = 100;

#[derive(Debug, Default)]
pub(crate) struct Mutex<T>(sync::Mutex<T>);

impl<T> Mutex<T> {
    pub(crate) fn new(value: T) -> Self {
        Self(sync::Mutex::new(value))
    }

    pub(crate) fn try_lock(&self) -> Option<MutexGuard<'_, T>> {
        spend(|costs| costs.lock);
        match self.0.try_lock() {
            Ok(guard) => Some(guard),
            Err(TryLockError::Poisoned(poisoned)) => Some(poisoned.into_inner()),
            Err(TryLockError::WouldBlock) => None,
        }
    }

    pub(crate) fn lock(&self) -> MutexGuard<'_, T> {
        let mut turns = 0..SPINS;
        loop {
            if let Some(guard) = self.try_lock() {
                return guard;
            }
            if turns.next().is_none() {
                yield_now();
            }
        }
    }
}
