//! Access to foreign memory: [`routines`] where faults are survived, else the [`kernel`].
//!
//! A fault whose signal is blocked kills at once, so a [`Section`] unblocks the signals of its
//! thread. The system call costs as much as a small message: the engine opens one section per hold
//! of its lock, and threads found unblocked are trusted for [`VALIDITY`].

#![allow(unsafe_code, reason = "calling the routines")]

use std::{
    cell::Cell,
    ffi::c_int,
    marker::PhantomData,
    time::{Duration, Instant},
};

use roce_transport::mem::MemoryFault;

use super::{faults, kernel, routines};
use crate::signals::{change_mask, contains, set_of};

/// Period in which the thread runs only our code. Nested sections have no effect.
pub(crate) struct Section {
    outermost: bool,
    of_this_thread: PhantomData<*const ()>,
}

const VALIDITY: Duration = Duration::from_micros(100);

#[derive(Clone, Copy)]
enum State {
    Outside,
    /// Before any foreign access.
    Untried,
    /// Faults are survived.
    Safe,
    /// As `Safe`; the end of the section blocks these signals.
    Unblocked(libc::sigset_t),
    /// A fault would kill the process.
    Unsafe,
}

thread_local! {
    static STATE: Cell<State> = const { Cell::new(State::Outside) };
    /// Time at which the signals were last found unblocked.
    static FOUND_FREE: Cell<Option<Instant>> = const { Cell::new(None) };
}

impl Section {
    pub(crate) fn enter() -> Self {
        let outermost = matches!(STATE.get(), State::Outside);
        if outermost {
            STATE.set(State::Untried);
        }
        Self { outermost, of_this_thread: PhantomData }
    }

    /// True if faults are survived while this value lives.
    fn is_safe(&self) -> bool {
        match STATE.get() {
            State::Safe | State::Unblocked(_) => true,
            State::Unsafe | State::Outside => false,
            State::Untried => {
                let state = if faults::are_in_front(false) { unblock() } else { State::Unsafe };
                STATE.set(state);
                !matches!(state, State::Unsafe)
            }
        }
    }
}

impl Drop for Section {
    fn drop(&mut self) {
        if !self.outermost {
            return;
        }
        if let State::Unblocked(signals) = STATE.replace(State::Outside) {
            change_mask(libc::SIG_BLOCK, &signals);
        }
    }
}

fn unblock() -> State {
    let now = Instant::now();
    if FOUND_FREE.get().is_some_and(|found| now.duration_since(found) < VALIDITY) {
        return State::Safe;
    }
    let Some(before) = change_mask(libc::SIG_UNBLOCK, &set_of(faults::SIGNALS)) else {
        return State::Unsafe;
    };
    let is_blocked = |signal: &c_int| contains(&before, *signal);
    if !faults::SIGNALS.iter().any(is_blocked) {
        FOUND_FREE.set(Some(now));
        return State::Safe;
    }
    FOUND_FREE.set(None);
    State::Unblocked(set_of(faults::SIGNALS.into_iter().filter(is_blocked)))
}

pub(super) fn read(address: usize, to: &mut [u8]) -> Result<(), MemoryFault> {
    let section = Section::enter();
    if !section.is_safe() {
        return kernel::read(address, to);
    }
    // SAFETY: writes `to` only; a fault at `address` is survived
    done(unsafe { routines::copy_in(to.as_mut_ptr(), address, to.len()) })
}

/// # Safety
/// Memory at `address`, if any, may be written.
pub(super) unsafe fn write(address: usize, from: &[u8]) -> Result<(), MemoryFault> {
    let section = Section::enter();
    if !section.is_safe() {
        // SAFETY: the caller promises the same
        return unsafe { kernel::write(address, from) };
    }
    // SAFETY: the caller promises writability; a fault is survived
    done(unsafe { routines::copy_out(address, from.as_ptr(), from.len()) })
}

/// Calls a routine with a word and the place of its old value, which this returns. Fails without
/// the routines: the kernel has no atomic access.
pub(super) fn word(
    address: usize,
    routine: impl FnOnce(usize, &mut u64) -> usize,
) -> Result<u64, MemoryFault> {
    let section = Section::enter();
    if !address.is_multiple_of(8) || !section.is_safe() {
        return Err(MemoryFault);
    }
    let mut found = 0;
    done(routine(address, &mut found)).map(|()| found)
}

pub(super) const fn done(status: usize) -> Result<(), MemoryFault> {
    if status == 0 { Ok(()) } else { Err(MemoryFault) }
}
