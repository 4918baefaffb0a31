//! State of a program's [event loop](super::event_loop); `models/` checks it.

use super::atomics::{AtomicBool, AtomicU32, AtomicU64};

pub(super) struct LoopState {
    /// A [`LoopMode`].
    pub(super) mode: AtomicU32,
    /// Arrivals may have woken the program.
    pub(super) may_have_woken: AtomicBool,
    /// Consecutive needless wakeups.
    pub(super) empty_wakeups: AtomicU64,
    /// End of the pause, in clock ns.
    pub(super) not_before: AtomicU64,
    pub(super) untaken: AtomicU64,
    /// Set from taking an event until service.
    pub(super) takes: AtomicBool,
    /// Time from which packets wait for untaken events, in clock ns.
    pub(super) untaken_not_before: AtomicU64,
}

impl LoopState {
    pub(super) fn new() -> Self {
        Self {
            mode: AtomicU32::new(LoopMode::Detached as u32),
            may_have_woken: AtomicBool::new(false),
            empty_wakeups: AtomicU64::new(0),
            not_before: AtomicU64::new(0),
            untaken: AtomicU64::new(0),
            takes: AtomicBool::new(false),
            untaken_not_before: AtomicU64::new(0),
        }
    }
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(u32)]
pub(super) enum LoopMode {
    /// Not on the sockets.
    Detached,
    /// Changing, by a thread.
    Changing,
    /// On the sockets.
    Attached,
}
