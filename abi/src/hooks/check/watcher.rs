//! Finds endless waits in system calls. Reports findings when a signal ends the program.

use std::{
    ffi::c_int,
    mem, process, ptr,
    sync::atomic::{AtomicU32, Ordering},
    thread::Builder,
    time::Duration,
};

use roce_provider::{calls::Call, signals};
use rustix::{event::Timespec, thread::futex};

use super::{
    at_exit, report, requests,
    threads::{self, Activity, Thread},
    waits, wake_ups,
};

/// Process that last tried to start the thread: a forked child has none.
static TRIED: AtomicU32 = AtomicU32::new(0);
/// Process of the thread.
static PROCESS: AtomicU32 = AtomicU32::new(0);
/// 1: a signal ends the program.
static ENDS: AtomicU32 = AtomicU32::new(0);
/// 1: reported.
static IS_REPORTED: AtomicU32 = AtomicU32::new(0);

/// Once per process.
pub(crate) fn start() {
    let this = process::id();
    if TRIED.swap(this, Ordering::SeqCst) == this {
        return;
    }
    // a parent's signal is not the child's
    [&ENDS, &IS_REPORTED].into_iter().for_each(|word| word.store(0, Ordering::SeqCst));
    let started = signals::blocked(|| Builder::new().name("roce check".into()).spawn(look_on));
    // else such waits are not found
    if started.is_ok() {
        PROCESS.store(this, Ordering::SeqCst);
        [libc::SIGINT, libc::SIGTERM].into_iter().for_each(take);
    }
}

fn look_on() {
    let mut seen = Vec::new();
    loop {
        if wait(&ENDS, waits::SUSPICION) {
            wake_ups::report_unsolicited();
            at_exit::report_rest(true);
            IS_REPORTED.store(1, Ordering::SeqCst);
            let _ = futex::wake(&IS_REPORTED, futex::Flags::PRIVATE, 1);
            return;
        }
        look(seen);
        seen = threads::all().unwrap_or_default();
    }
}

/// Looks at threads seen before. A fork waits: a child could inherit a held lock.
fn look(seen: Vec<Thread>) {
    let _call = Call::begin();
    let still = threads::still(seen);
    wake_ups::look_at_waits(&still, requests::outstanding);
    for thread in &still {
        let found = match thread.doing() {
            Activity::WaitsFor { descriptors, once, is_limited: false } => {
                wake_ups::endless_for(thread.id, &descriptors, &once)
            }
            Activity::WaitsForThread => waits::batch_of(thread.id),
            _ => None,
        };
        let Some(finding) = found else { continue };
        if waits::nobody_acts(thread.id) && !threads::still(vec![thread.clone()]).is_empty() {
            report::emit(&finding);
        }
    }
    report::report_postponed();
}

/// Handles a fatal signal, unless the program does.
fn take(signal: c_int) {
    // SAFETY: Zeros are valid, `action` is writable, and the library is never unloaded.
    unsafe {
        let mut action: libc::sigaction = mem::zeroed();
        let known = libc::sigaction(signal, ptr::null(), &raw mut action) == 0;
        if known && action.sa_sigaction == libc::SIG_DFL {
            action.sa_sigaction = on_signal as extern "C" fn(c_int) as libc::sighandler_t;
            action.sa_flags = libc::SA_RESTART;
            libc::sigaction(signal, &raw const action, ptr::null_mut());
        }
    }
}

/// Has the thread report, then ends the program. Takes no lock and allocates nothing: the
/// interrupted thread may be inside either.
extern "C" fn on_signal(signal: c_int) {
    if PROCESS.load(Ordering::SeqCst) == process::id() {
        ENDS.store(1, Ordering::SeqCst);
        let _ = futex::wake(&ENDS, futex::Flags::PRIVATE, 1);
        wait(&IS_REPORTED, at_exit::LIMIT);
    }
    // SAFETY: Both are async-signal-safe.
    unsafe {
        libc::signal(signal, libc::SIG_DFL);
        libc::raise(signal);
    }
}

/// False after `limit`.
fn wait(word: &AtomicU32, limit: Duration) -> bool {
    if word.load(Ordering::SeqCst) == 0 {
        let limit = Timespec { tv_sec: limit.as_secs().cast_signed(), tv_nsec: 0 };
        let _ = futex::wait(word, futex::Flags::PRIVATE, 0, Some(&limit));
    }
    word.load(Ordering::SeqCst) == 1
}
