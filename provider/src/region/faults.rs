//! SIGSEGV and SIGBUS handlers that let the [`routines`](super::routines) survive faults.
//!
//! Installed at the first registration of foreign memory, and again in front of handlers that the
//! program sets later. Other faults go to the replaced handlers, then to the default action. Each
//! delivery carries the number of handlers left, which ends loops among handlers.

#![allow(unsafe_code, reason = "signal handlers")]

use std::{
    ffi::{c_int, c_void},
    mem, process,
    ptr::{self, null_mut},
    sync::{
        OnceLock,
        atomic::{AtomicBool, AtomicPtr, AtomicU32, AtomicU64, AtomicUsize, Ordering},
    },
    thread,
    time::Duration,
};

use super::routines;
use crate::clock;

/// Validity of a check.
const TRUSTED: Duration = Duration::from_millis(10);

const SEGV_MAPERR: c_int = 1;

/// Maximum replaced handlers.
const MOST: usize = 8;

pub(super) const SIGNALS: [c_int; 2] = [libc::SIGSEGV, libc::SIGBUS];

static BEHIND: [HandlerChain; 2] = [const { HandlerChain::new() }; 2];

/// Result of the latest check.
static IN_FRONT: AtomicBool = AtomicBool::new(false);

/// Set once a [`HandlerChain`] is full: no more moves to the front.
static GIVEN_UP: AtomicBool = AtomicBool::new(false);

static UNMAPPED: OnceLock<fn(usize)> = OnceLock::new();

/// Time of the latest check, in clock ns.
static LOOKED: AtomicU64 = AtomicU64::new(0);

/// Replaced handlers of a signal, latest last. Never freed: a signal may be on its way to one.
struct HandlerChain {
    count: AtomicUsize,
    actions: [AtomicPtr<libc::sigaction>; MOST],
}

impl HandlerChain {
    const fn new() -> Self {
        Self { count: AtomicUsize::new(0), actions: [const { AtomicPtr::new(null_mut()) }; MOST] }
    }

    fn of(signal: c_int) -> &'static Self {
        &BEHIND[usize::from(signal != libc::SIGSEGV)]
    }

    /// False if full.
    fn push(&self, action: libc::sigaction) -> bool {
        let count = self.count.load(Ordering::Relaxed);
        let Some(slot) = self.actions.get(count) else { return false };
        slot.store(Box::into_raw(Box::new(action)), Ordering::Release);
        self.count.store(count + 1, Ordering::Release);
        true
    }

    fn ends_with(&self, handler: usize) -> bool {
        let last = self
            .count
            .load(Ordering::Relaxed)
            .checked_sub(1)
            .map(|last| self.actions[last].load(Ordering::Acquire));
        // SAFETY: entries are never freed
        last.is_some_and(|last| unsafe { (*last).sa_sigaction } == handler)
    }
}

/// Moves the handlers to the front if needed; true if they are there. `now` forces a check.
pub(super) fn are_in_front(now: bool) -> bool {
    if !routines::EXIST {
        return false;
    }
    let time = clock::now().as_nanos();
    let fresh = time.saturating_sub(LOOKED.load(Ordering::Relaxed)) < TRUSTED.as_nanos() as u64;
    if !now && fresh || GIVEN_UP.load(Ordering::Relaxed) {
        return IN_FRONT.load(Ordering::Relaxed);
    }
    let lock = loop {
        match CheckLock::take() {
            Some(lock) => break lock,
            None if now => thread::yield_now(),
            None => return IN_FRONT.load(Ordering::Relaxed),
        }
    };
    LOOKED.store(time, Ordering::Relaxed);
    let in_front = SIGNALS.into_iter().all(install_first);
    IN_FRONT.store(in_front, Ordering::Relaxed);
    drop(lock);
    in_front
}

/// Calls `tell` with the address of a fatal access to unmapped memory, in the signal handler.
pub fn on_unmapped_access(tell: fn(usize)) {
    let _ = UNMAPPED.set(tell);
}

/// Holds the process id, so a fork's child does not inherit the lock.
struct CheckLock;

static CHECKER: AtomicU32 = AtomicU32::new(0);

impl CheckLock {
    fn take() -> Option<Self> {
        let own = process::id();
        let free_or_the_parents = |taken: u32| (taken != own).then_some(own);
        CHECKER
            .fetch_update(Ordering::Acquire, Ordering::Relaxed, free_or_the_parents)
            .ok()
            .map(|_| Self)
    }
}

impl Drop for CheckLock {
    fn drop(&mut self) {
        CHECKER.store(0, Ordering::Release);
    }
}

fn install_first(signal: c_int) -> bool {
    let own = on_fault as *const () as usize;
    let Some(present) = swap_action(signal, None) else { return false };
    if present.sa_sigaction == own {
        return true;
    }
    let chain = HandlerChain::of(signal);
    if !chain.ends_with(present.sa_sigaction) && !chain.push(present) {
        GIVEN_UP.store(true, Ordering::Relaxed);
        return false;
    }
    // SAFETY: all zero is valid
    let mut action: libc::sigaction = unsafe { mem::zeroed() };
    action.sa_sigaction = own;
    action.sa_flags = libc::SA_SIGINFO | libc::SA_ONSTACK;
    match swap_action(signal, Some(&action)) {
        // another thread was faster
        Some(replaced)
            if replaced.sa_sigaction != present.sa_sigaction && replaced.sa_sigaction != own =>
        {
            chain.push(replaced)
        }
        replaced => replaced.is_some(),
    }
}

/// Returns the old action.
fn swap_action(signal: c_int, action: Option<&libc::sigaction>) -> Option<libc::sigaction> {
    // SAFETY: all zero is valid
    let mut before = unsafe { mem::zeroed() };
    // SAFETY: both are borrowed for the call; `on_fault` may run at any time on any thread
    let result =
        unsafe { libc::sigaction(signal, action.map_or(ptr::null(), ptr::from_ref), &mut before) };
    (result == 0).then_some(before)
}

/// Async-signal-safe: arguments, atomics and permitted calls only.
extern "C" fn on_fault(signal: c_int, info: *mut libc::siginfo_t, context: *mut c_void) {
    if info.is_null() || context.is_null() {
        return set_default(signal); // a handler passed the signal on without its arguments
    }
    // SAFETY: the kernel's whole `siginfo_t`, perhaps passed on by a handler
    let code = unsafe { (*info).si_code };
    // signals sent by processes, and BUS_MCEERR_AO, are no faults of this thread
    let is_fault = code > 0 && !(signal == libc::SIGBUS && code == libc::BUS_MCEERR_AO);
    // SAFETY: as above
    if is_fault && unsafe { routines::recover(context) } {
        return;
    }
    // SAFETY: this thread's `errno`
    let errno = unsafe { *libc::__errno_location() };
    // SAFETY: as above
    unsafe { pass_on(signal, info, context, is_fault) };
    // SAFETY: as above
    unsafe { *libc::__errno_location() = errno };
}

/// Mark of a passed-on delivery; the lower half counts the handlers left.
const MARK: u64 = 0x726f_6365_0000_0000;

/// # Safety
/// The arguments are those of a handler.
unsafe fn pass_on(signal: c_int, info: *mut libc::siginfo_t, context: *mut c_void, is_fault: bool) {
    // The kernel zero-fills the end of a `siginfo_t`: room for a mark. SAFETY: inside the structure
    // and aligned
    let mark = unsafe { info.cast::<u8>().add(size_of::<libc::siginfo_t>() - 8).cast::<u64>() };
    let chain = HandlerChain::of(signal);
    let count = chain.count.load(Ordering::Acquire);
    // SAFETY: as above
    let seen = unsafe { *mark };
    let left = if seen & !u64::from(u32::MAX) == MARK {
        ((seen & !MARK) as usize).min(count)
    } else {
        count
    };
    let Some(next) = left.checked_sub(1) else {
        return take_default_action(signal, info, is_fault);
    };
    // SAFETY: as above
    unsafe { *mark = MARK | next as u64 };
    // SAFETY: entries are never freed
    let action = unsafe { &*chain.actions[next].load(Ordering::Acquire) };
    match action.sa_sigaction {
        libc::SIG_DFL => return take_default_action(signal, info, is_fault),
        // faults cannot be ignored
        libc::SIG_IGN if is_fault => return take_default_action(signal, info, is_fault),
        libc::SIG_IGN => return,
        _ => {}
    }
    // SAFETY: all zero is an empty set; the kernel restores this thread's mask after the outermost
    // handler
    unsafe {
        libc::pthread_sigmask(libc::SIG_BLOCK, &action.sa_mask, null_mut());
        if action.sa_flags & libc::SA_NODEFER != 0 {
            let mut own = mem::zeroed();
            libc::sigaddset(&mut own, signal);
            libc::pthread_sigmask(libc::SIG_UNBLOCK, &own, null_mut());
        }
    }
    if action.sa_flags & libc::SA_RESETHAND != 0 {
        chain.actions[next].store((&raw const DEFAULT).cast_mut().cast(), Ordering::Release);
    }
    type Handler = extern "C" fn(c_int, *mut libc::siginfo_t, *mut c_void);
    // SAFETY: set as a handler; the kernel too passes three arguments to handlers of one
    let handler = unsafe { mem::transmute::<usize, Handler>(action.sa_sigaction) };
    handler(signal, info, context);
}

/// Takes the default action: a fault repeats with its instruction. Other signals, and faults
/// reported to [`UNMAPPED`], are sent again with their `siginfo_t`.
fn take_default_action(signal: c_int, info: *mut libc::siginfo_t, is_fault: bool) {
    // SAFETY: as in `on_fault`
    let (code, address) = unsafe { ((*info).si_code, (*info).si_addr()) };
    let told = UNMAPPED
        .get()
        .filter(|_| is_fault && signal == libc::SIGSEGV && code == SEGV_MAPERR)
        .inspect(|tell| tell(address.addr()));
    set_default(signal);
    // the address may be mapped by now
    if !is_fault || told.is_some() {
        // SAFETY: numbers, and a `siginfo_t` that the kernel reads
        unsafe {
            // glibc before 2.30 has no gettid
            let thread = libc::syscall(libc::SYS_gettid);
            libc::syscall(libc::SYS_rt_tgsigqueueinfo, libc::getpid(), thread, signal, info)
        };
    }
}

fn set_default(signal: c_int) {
    // SAFETY: all zero is the default action
    let action = unsafe { mem::zeroed() };
    swap_action(signal, Some(&action));
}

struct Shareable(#[allow(dead_code, reason = "read through pointers in a chain")] libc::sigaction);

// SAFETY: never written
unsafe impl Sync for Shareable {}

/// Replaces a handler with `SA_RESETHAND`.
// SAFETY: all zero is the default action
static DEFAULT: Shareable = Shareable(unsafe { mem::zeroed() });
