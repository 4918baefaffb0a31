use std::sync::atomic::{AtomicU8, Ordering};

#[derive(Clone, Copy)]
#[repr(u8)]
pub(super) enum Hook {
    Faults = 1,
    Checks = 2,
    /// Of Python programs, for explanations.
    Lines = 4,
}

/// Set at load.
static ON: AtomicU8 = AtomicU8::new(0);

impl Hook {
    pub(super) fn switch_on(self) {
        ON.fetch_or(self as u8, Ordering::Relaxed);
    }

    pub(super) fn is_on(self) -> bool {
        ON.load(Ordering::Relaxed) & self as u8 != 0
    }
}

#[inline]
pub(crate) fn are_on() -> bool {
    ON.load(Ordering::Relaxed) != 0
}
