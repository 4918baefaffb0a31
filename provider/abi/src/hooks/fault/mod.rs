//! Calls that fail, or wait, on request (`ROCE_FAULT`): the rules of this process, and what becomes
//! of a call.
//!
//! Every exported function and every operation of a context begins with a gate (`export`), which
//! looks at [`ARMED`] and does nothing else as long as there are no rules. Calls that move data
//! have other functions instead (`faulted`), which contexts get only where rules are possible at
//! all.

mod counts;
mod rules;

use std::time::Duration;

use libc::c_int;
use roce_provider::{
    calls::Call,
    explain_call,
    faults::{CallEffect, CallId, error_of},
    transport::explain::Reason,
};
use rustix::thread::{Timespec, nanosleep};

pub(crate) use rules::{ARMED, are_possible};

/// To be called when the library is loaded.
pub(crate) fn at_load() {
    rules::at_load();
    if are_possible() {
        // SAFETY: The function is there as long as the process is: the library is never unloaded.
        unsafe { libc::atexit(end) };
    }
}

extern "C" fn end() {
    let _call = Call::begin();
    rules::at_end();
}

/// What a gate has in the place of a call's number, for one that cannot fail.
pub(crate) const CANNOT_FAIL: u16 = u16::MAX;
/// Time between two looks whether a call still has to wait.
const LOOK: Duration = Duration::from_millis(5);

/// What becomes of a call, in the registers in which functions return.
#[repr(C)]
pub(crate) struct Verdict {
    /// What the call returns if it fails.
    value: isize,
    /// Not 0 if it does.
    fails: usize,
}

impl Verdict {
    /// The call does what it does.
    pub(crate) const GOES_ON: Self = Self { value: 0, fails: 0 };
}

/// What becomes of a call: for one that fails, `errno` is set.
pub(crate) fn decide(call: CallId) -> Verdict {
    errno(call).map_or(Verdict::GOES_ON, |errno| Verdict {
        value: call.failing().failure.value(errno),
        fails: 1,
    })
}

/// The error with which a call fails now, if it does; `errno` is set to it.
pub(crate) fn errno(call: CallId) -> Option<c_int> {
    let decided = {
        let _call = Call::begin();
        rules::decide(call)
    };
    let failed = match decided {
        None => None,
        Some((number, CallEffect::Wait(length))) => {
            wait(number, length);
            None
        }
        Some((number, CallEffect::Fail(errno))) => {
            let _call = Call::begin();
            let (errno, name) = error_of(call, errno);
            explain_call(call.failing().name, || {
                let rule = rules::text(number);
                Reason::new("fault", &format!("the rule \"{rule}\" has it fail"), ADVICE)
                    .with_errno(name)
            });
            Some(errno)
        }
    };
    let errno = failed?;
    // SAFETY: The place is this thread's own.
    unsafe { *libc::__errno_location() = errno };
    Some(errno)
}

const ADVICE: &str = "ROCE_FAULT, `roce run --fault` and `roce fault` give such rules";

/// Waits so long, or as long as there is this rule. The thread holds nothing.
fn wait(rule: u64, length: Option<Duration>) {
    let mut left = length.unwrap_or(Duration::MAX);
    while !left.is_zero() && rules::has(rule) {
        let part = left.min(LOOK);
        left -= part;
        // that a signal ends it early does not matter
        let _ = nanosleep(&Timespec { tv_sec: 0, tv_nsec: i64::from(part.subsec_nanos()) });
    }
}
