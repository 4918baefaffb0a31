//! The engine's state of a program's [event loop](super::event_loop).
//!
//! The models of concurrency (`models/`) run this file.

use super::atomics::{AtomicBool, AtomicU32, AtomicU64};

/// The engine's state of a program's event loop, and of the events that the program takes there.
pub(super) struct LoopState {
    /// A [`LoopWait`].
    pub(super) place: AtomicU32,
    /// The program may have been woken by something that was received.
    pub(super) stirred: AtomicBool,
    /// Number of times in a row that it was woken for nothing.
    pub(super) in_vain: AtomicU64,
    /// Until when it does not wait on the sockets, in nanoseconds of the clock.
    pub(super) not_before: AtomicU64,
    /// Number of events of channels that it has not taken.
    pub(super) untaken: AtomicU64,
    /// It has taken one, and has not served since.
    pub(super) takes: AtomicBool,
    /// Until when nothing waits for those, in nanoseconds of the clock.
    pub(super) untaken_not_before: AtomicU64,
}

impl LoopState {
    pub(super) fn new() -> Self {
        Self {
            place: AtomicU32::new(LoopWait::Out as u32),
            stirred: AtomicBool::new(false),
            in_vain: AtomicU64::new(0),
            not_before: AtomicU64::new(0),
            untaken: AtomicU64::new(0),
            takes: AtomicBool::new(false),
            untaken_not_before: AtomicU64::new(0),
        }
    }
}

/// Where the program waits.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(u32)]
pub(super) enum LoopWait {
    /// The program does not wait on the sockets.
    Out,
    /// A thread is about to change that.
    Between,
    /// It does.
    In,
}
