//! Waits that cannot end: for acknowledgements that the program does not make, and for events that
//! nothing can bring.

use std::time::Duration;

use roce_provider::calls::Call;

use super::{
    alone,
    finding::{Finding, Kind},
    form::is_on,
    report,
    stack::Stack,
};
use crate::sync::Changes;

/// Time after which it is said: events are acknowledged sooner by programs that do so at all.
pub(crate) const SOON: Duration = Duration::from_secs(1);

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

/// Tells why nothing can end a wait, if that is so.
pub(crate) fn tell(endless: &dyn Fn() -> Option<String>) -> bool {
    let _call = Call::begin();
    if !alone::is_alone() {
        return false;
    }
    let Some(what) = endless() else { return false };
    let stacks = vec![("waits", Stack::here())];
    report::tell(&Finding { kind: Kind::EndlessWait, what, stacks });
    true
}
