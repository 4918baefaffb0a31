//! State of a program's [event loop](super::event_loop); `models/` checks it.

use super::atomics::{AtomicBool, AtomicU32, AtomicU64};

#[derive(Default)]
pub(super) struct LoopState {
    /// A [`LoopMode`], at first [`Detached`](LoopMode::Detached).
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

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(u32)]
pub(super) enum LoopMode {
    /// Not on the sockets.
    Detached = 0,
    /// Changing, by a thread.
    Changing,
    /// On the sockets.
    Attached,
}
