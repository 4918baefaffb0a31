//! Open devices of this process.

use crate::{
    calls::ProcessMutex,
    verbs::{Context, WeakContext},
};

static OPEN: ProcessMutex<Vec<WeakContext>> = ProcessMutex::new(Vec::new());

/// Oldest first.
pub(crate) fn open_contexts() -> Vec<Context> {
    let open = OPEN.lock();
    open.iter().filter_map(WeakContext::upgrade).filter(Context::is_of_this_process).collect()
}

pub(super) fn add(context: &Context) {
    let mut open = OPEN.lock();
    open.retain(WeakContext::is_open);
    open.push(context.downgrade());
}

/// Applies changed rules on every device.
pub fn attend_rules() {
    for context in open_contexts() {
        for engine in context.inner.shards.engines() {
            engine.command_shard(|shard, now| shard.attend_rules(now));
        }
    }
}
