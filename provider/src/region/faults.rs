//! SIGSEGV and SIGBUS handlers that let the [`routines`](super::routines) survive faults.
//!
//! The first registration of foreign memory puts them in front of the program's handlers. Other
//! faults go to those, or to the default action, which kills. A periodic check moves ours back in
//! front of later handlers. Such a handler may pass unknown faults back to ours: each delivery
//! carries the number of earlier handlers left, which ends the loop.

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

/// Time for which handlers seen in front count as in front.
const TRUSTED: Duration = Duration::from_millis(10);

/// Code of an address without a mapping.
const SEGV_MAPERR: c_int = 1;

/// Maximum replaced handlers remembered; a program that installs more stays in front.
const MOST: usize = 8;

pub(super) const SIGNALS: [c_int; 2] = [libc::SIGSEGV, libc::SIGBUS];

/// Handlers behind ours, for each signal.
static BEHIND: [Row; 2] = [const { Row::new() }; 2];

/// True if our handlers were in front at the latest check.
static IN_FRONT: AtomicBool = AtomicBool::new(false);

/// True once our handlers no longer move to the front.
static GIVEN_UP: AtomicBool = AtomicBool::new(false);

/// Hears of an address without a mapping before the fault ends the process.
static UNMAPPED: OnceLock<fn(usize)> = OnceLock::new();

/// Time of the latest check, in clock nanoseconds.
static LOOKED: AtomicU64 = AtomicU64::new(0);

/// Replaced handlers, latest last; never freed, as a signal may be on its way to one.
struct Row {
    count: AtomicUsize,
    actions: [AtomicPtr<libc::sigaction>; MOST],
}

impl Row {
    const fn new() -> Self {
        Self { count: AtomicUsize::new(0), actions: [const { AtomicPtr::new(null_mut()) }; MOST] }
    }

    fn of(signal: c_int) -> &'static Self {
        &BEHIND[usize::from(signal != libc::SIGSEGV)]
    }

    /// Appends a handler; false if the row is full.
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
        // SAFETY: what is in the row is never freed
        last.is_some_and(|last| unsafe { (*last).sa_sigaction } == handler)
    }
}

/// True if faults in the routines are survived; moves the handlers in front if needed. `now` forces
/// a check.
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
    let in_front = SIGNALS.into_iter().all(put_in_front);
    IN_FRONT.store(in_front, Ordering::Relaxed);
    drop(lock);
    in_front
}

/// Has `tell` called in the handler with an address without a mapping, before the fault ends the
/// process.
pub fn before_the_end(tell: fn(usize)) {
    let _ = UNMAPPED.set(tell);
}

/// Lock of the handler check: holds the process number, so a fork's child does not inherit it.
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

fn put_in_front(signal: c_int) -> bool {
    let own = on_fault as *const () as usize;
    let Some(present) = swap_action(signal, None) else { return false };
    if present.sa_sigaction == own {
        return true;
    }
    let row = Row::of(signal);
    if !row.ends_with(present.sa_sigaction) && !row.push(present) {
        GIVEN_UP.store(true, Ordering::Relaxed);
        return false;
    }
    // SAFETY: all zero is a valid value: no flags, an empty mask
    let mut action: libc::sigaction = unsafe { mem::zeroed() };
    action.sa_sigaction = own;
    action.sa_flags = libc::SA_SIGINFO | libc::SA_ONSTACK;
    match swap_action(signal, Some(&action)) {
        // another thread was faster
        Some(replaced)
            if replaced.sa_sigaction != present.sa_sigaction && replaced.sa_sigaction != own =>
        {
            row.push(replaced)
        }
        replaced => replaced.is_some(),
    }
}

/// Sets an action if given, and returns the old one.
fn swap_action(signal: c_int, action: Option<&libc::sigaction>) -> Option<libc::sigaction> {
    // SAFETY: all zero is a valid value
    let mut before = unsafe { mem::zeroed() };
    // SAFETY: both are borrowed for the call. The handler that is set can be called at any time and
    // on any thread: see `on_fault`; or it is the default.
    let result =
        unsafe { libc::sigaction(signal, action.map_or(ptr::null(), ptr::from_ref), &mut before) };
    (result == 0).then_some(before)
}

/// Handler; async-signal-safe: arguments, atomics and permitted calls only.
extern "C" fn on_fault(signal: c_int, info: *mut libc::siginfo_t, context: *mut c_void) {
    if info.is_null() || context.is_null() {
        return set_default(signal); // called by one who forgot what handlers are given
    }
    // SAFETY: the kernel, or who passes on what the kernel gave, points to a whole `siginfo_t`
    let code = unsafe { (*info).si_code };
    // signals sent by processes, and BUS_MCEERR_AO, are no faults of this thread
    let is_fault = code > 0 && !(signal == libc::SIGBUS && code == libc::BUS_MCEERR_AO);
    // SAFETY: as above
    if is_fault && unsafe { routines::recover(context) } {
        return;
    }
    // SAFETY: `__errno_location` points to this thread's
    let errno = unsafe { *libc::__errno_location() };
    // SAFETY: as above
    unsafe { pass_on(signal, info, context, is_fault) };
    // SAFETY: as above
    unsafe { *libc::__errno_location() = errno };
}

/// Mark of a passed-on delivery; the lower half counts the handlers left.
const MARK: u64 = 0x726f_6365_0000_0000;

/// Calls the next replaced handler.
///
/// # Safety
/// The arguments are those of a handler.
unsafe fn pass_on(signal: c_int, info: *mut libc::siginfo_t, context: *mut c_void, is_fault: bool) {
    // The kernel fills a `siginfo_t` up with zeros, so its end is free for a mark that goes with
    // the delivery. SAFETY: inside the structure, and aligned, as it is
    let mark = unsafe { info.cast::<u8>().add(size_of::<libc::siginfo_t>() - 8).cast::<u64>() };
    let row = Row::of(signal);
    let count = row.count.load(Ordering::Acquire);
    // SAFETY: as above
    let seen = unsafe { *mark };
    let left = if seen & !u64::from(u32::MAX) == MARK {
        ((seen & !MARK) as usize).min(count)
    } else {
        count
    };
    let Some(next) = left.checked_sub(1) else { return end(signal, info, is_fault) };
    // SAFETY: as above
    unsafe { *mark = MARK | next as u64 };
    // SAFETY: what is in the row is never freed
    let action = unsafe { &*row.actions[next].load(Ordering::Acquire) };
    match action.sa_sigaction {
        libc::SIG_DFL => return end(signal, info, is_fault),
        libc::SIG_IGN if is_fault => return end(signal, info, is_fault), // the kernel does not let a fault be ignored either
        libc::SIG_IGN => return,
        _ => {}
    }
    // SAFETY: all zero is an empty set; the calls change the mask of this thread, as the kernel
    // does for a handler, until the outermost handler returns
    unsafe {
        libc::pthread_sigmask(libc::SIG_BLOCK, &action.sa_mask, null_mut());
        if action.sa_flags & libc::SA_NODEFER != 0 {
            let mut own = mem::zeroed();
            libc::sigaddset(&mut own, signal);
            libc::pthread_sigmask(libc::SIG_UNBLOCK, &own, null_mut());
        }
    }
    if action.sa_flags & libc::SA_RESETHAND != 0 {
        row.actions[next].store((&raw const DEFAULT).cast_mut().cast(), Ordering::Release);
    }
    type Handler = extern "C" fn(c_int, *mut libc::siginfo_t, *mut c_void);
    // SAFETY: the code that set it said that it is a handler. The kernel passes all three arguments
    // to those that want one, too.
    let handler = unsafe { mem::transmute::<usize, Handler>(action.sa_sigaction) };
    handler(signal, info, context);
}

/// Takes the default action. A fault repeats with its instruction and kills; any other signal, and
/// a fault that was told, is sent again with its full `siginfo_t`.
fn end(signal: c_int, info: *mut libc::siginfo_t, is_fault: bool) {
    // SAFETY: the kernel, or who passes on what the kernel gave, points to a whole `siginfo_t`
    let (code, address) = unsafe { ((*info).si_code, (*info).si_addr()) };
    let told = UNMAPPED
        .get()
        .filter(|_| is_fault && signal == libc::SIGSEGV && code == SEGV_MAPERR)
        .inspect(|tell| tell(address.addr()));
    set_default(signal);
    // the address may have got a mapping meanwhile
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

/// `sigaction` has a pointer (`sa_restorer`), null here.
struct Shareable(#[allow(dead_code, reason = "read through pointers in a row")] libc::sigaction);

// SAFETY: it is never written
unsafe impl Sync for Shareable {}

/// Action that replaces a handler that wanted to be called once.
// SAFETY: all zero is a valid value: the default action
static DEFAULT: Shareable = Shareable(unsafe { mem::zeroed() });
