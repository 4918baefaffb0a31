//! Failures and delays injected (`ROCE_FAULT`) before a [`call`](crate::call) runs.

mod counts;
mod rules;

use std::time::Duration;

use libc::c_int;
use roce_provider::{
    calls::{self, Call},
    faults::{CallEffect, CallId, error_of},
    transport::explain::Reason,
};
use rustix::thread::{Timespec, nanosleep};

use super::switch::Hook;

pub(crate) fn at_load() {
    if rules::at_load() {
        Hook::Faults.switch_on();
        // SAFETY: The library is never unloaded.
        unsafe { libc::atexit(end) };
    }
}

extern "C" fn end() {
    let _call = Call::begin();
    rules::at_end();
}

const LOOK: Duration = Duration::from_millis(5);

/// Decides about a program's call, not the library's nested ones.
pub(crate) fn decide(call: CallId) -> Option<(c_int, Reason)> {
    if !Hook::Faults.is_on() || calls::is_inside() {
        return None;
    }
    let decided = {
        let _call = Call::begin();
        rules::decide(call)
    };
    match decided? {
        (number, CallEffect::Wait(length)) => {
            wait(number, length);
            None
        }
        (number, CallEffect::Fail(errno)) => {
            let _call = Call::begin();
            let ((errno, name), rule) = (error_of(call, errno), rules::text(number));
            let what = format!("the rule \"{rule}\" fails the call");
            Some((errno, Reason::new("fault", &what, ADVICE).with_errno(name)))
        }
    }
}

const ADVICE: &str = "the rule comes from ROCE_FAULT, `roce run --fault` or `roce fault`";

/// Waits for `length` or until the rule is removed. Call without locks.
fn wait(rule: u64, length: Option<Duration>) {
    let mut left = length.unwrap_or(Duration::MAX);
    while !left.is_zero() && rules::has(rule) {
        let part = left.min(LOOK);
        left -= part;
        // ends early on a signal
        let _ = nanosleep(&Timespec { tv_sec: 0, tv_nsec: i64::from(part.subsec_nanos()) });
    }
}
