//! Waits that cannot end: for acknowledgements that the program does not make, and for events that
//! nothing can bring.

use std::{
    ffi::c_int,
    time::{Duration, Instant},
};

use roce_provider::calls::Call;

use super::{
    alone,
    finding::{Finding, Kind},
    form::is_on,
    report,
    stack::Stack,
};
use crate::{
    errno::{Errno, Result},
    sync::Changes,
    wait::{wait_for, wait_readable},
};

/// Time after which it is said: events are acknowledged sooner by programs that do so at all.
const SOON: Duration = Duration::from_secs(1);

/// First result of `attempt`, which is made now and after each change. If it takes longer than
/// events are left unacknowledged, `what` is told as a finding of this kind.
pub(crate) fn for_acknowledgement<R>(
    changes: &Changes,
    attempt: impl Fn() -> Option<R>,
    kind: Kind,
    what: impl FnOnce() -> String,
) -> R {
    if is_on() {
        if let Some(result) = changes.wait_within(SOON, &attempt) {
            return result;
        }
        report::tell(&Finding { kind, what: what(), stacks: vec![("called", Stack::here())] });
    }
    changes.wait_for(attempt)
}

/// Waits until a descriptor may be readable, as [`wait_readable`]. From time to time `endless` is
/// asked why that cannot be, which is told once.
///
/// A cancellation point: nothing may need to be dropped in its callers.
pub(crate) unsafe fn for_event(
    descriptor: c_int,
    endless: impl Fn() -> Option<String>,
) -> Result<()> {
    let mut wanted = libc::pollfd { fd: descriptor, events: libc::POLLIN, revents: 0 };
    loop {
        let began = Instant::now();
        let done = wait_for(&raw mut wanted, 1, SOON.as_millis() as c_int);
        if done < 0 {
            return Err(Errno::told(Errno::last().number()));
        }
        // a signal may have ended it before
        if done > 0 || began.elapsed() < SOON {
            return Ok(());
        }
        if tell(&endless) {
            return wait_readable(descriptor);
        }
    }
}

/// Tells why nothing can end a wait, if that is so.
fn tell(endless: &dyn Fn() -> Option<String>) -> bool {
    let _call = Call::begin();
    if !alone::is_alone() {
        return false;
    }
    let Some(what) = endless() else { return false };
    let stacks = vec![("waits", Stack::here())];
    report::tell(&Finding { kind: Kind::EndlessWait, what, stacks });
    true
}
