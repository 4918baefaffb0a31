//! A thread that looks at those of the program from time to time: at waits in calls of the system,
//! which this library has no part in.

use std::{
    mem,
    sync::Once,
    thread::{self, Builder},
};

use roce_provider::signals;

use super::{
    report,
    threads::{self, Doing},
    waits, wake_ups,
};

/// Has the program's waits looked at, if that is not so yet. A forked child has no objects to wait
/// for.
pub(super) fn start() {
    static START: Once = Once::new();
    START.call_once(|| {
        // without it such waits are not found
        let _ = signals::blocked(|| Builder::new().name("roce check".into()).spawn(look_on));
    });
}

fn look_on() {
    let mut seen = Vec::new();
    loop {
        thread::sleep(waits::SOON);
        let still = threads::still(mem::take(&mut seen));
        wake_ups::look_at_waits(&still);
        for thread in &still {
            let Doing::WaitsFor { descriptors, is_limited: false } = thread.doing() else {
                continue;
            };
            let Some((what, made)) = wake_ups::endless_for(&descriptors) else { continue };
            if waits::nobody_acts(thread.id) && !threads::still(vec![thread.clone()]).is_empty() {
                waits::tell(what, ("made", made));
            }
        }
        report::tell_postponed();
        seen = threads::all().unwrap_or_default();
    }
}
