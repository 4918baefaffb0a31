//! The devices that this process has open.

use std::sync::{Arc, Weak};

use crate::{
    calls::ProcessMutex,
    verbs::{Context, ContextInner},
};

/// Every open device of the process, for those who look for one by its address.
static OPEN: ProcessMutex<Vec<Weak<ContextInner>>> = ProcessMutex::new(Vec::new());

/// Devices that are open, the oldest first.
pub(crate) fn open_contexts() -> Vec<Context> {
    let open = OPEN.lock();
    let contexts = open.iter().filter_map(Weak::upgrade).map(|inner| Context { inner });
    contexts.filter(Context::is_of_this_process).collect()
}

/// Adds one.
pub(super) fn add(context: &Context) {
    let mut open = OPEN.lock();
    open.retain(|other| other.strong_count() > 0);
    open.push(Arc::downgrade(&context.inner));
}

/// Has every device look at rules that have come or gone.
pub fn attend_rules() {
    for context in open_contexts() {
        context.inner.engine.command_shard(|shard, now| shard.attend_rules(now));
    }
}
