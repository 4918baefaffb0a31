//! The devices that this process has open.

use crate::{
    calls::ProcessMutex,
    verbs::{Context, WeakContext},
};

/// Every open device of the process, for those who look for one by its address.
static OPEN: ProcessMutex<Vec<WeakContext>> = ProcessMutex::new(Vec::new());

/// Devices that are open, the oldest first.
pub(crate) fn open_contexts() -> Vec<Context> {
    let open = OPEN.lock();
    open.iter().filter_map(WeakContext::upgrade).filter(Context::is_of_this_process).collect()
}

/// Adds one.
pub(super) fn add(context: &Context) {
    let mut open = OPEN.lock();
    open.retain(WeakContext::is_open);
    open.push(context.downgrade());
}

/// Has every device look at rules that have come or gone.
pub fn attend_rules() {
    for context in open_contexts() {
        for engine in context.inner.shards.engines() {
            engine.command_shard(|shard, now| shard.attend_rules(now));
        }
    }
}
