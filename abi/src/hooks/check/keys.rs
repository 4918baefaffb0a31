//! Keys that peers must not use: deregistered, or L_Keys.

use std::collections::{BTreeMap, VecDeque};

use roce_provider::{
    AsyncEvent,
    transport::{event::Refusal, mem::AccessError},
};

use super::{
    finding::{Finding, Kind},
    form::is_on,
    report,
    stack::Stack,
};
use crate::sync::Mutex;

/// As many keys as an adapter withholds from reuse.
const REMEMBERED: usize = 4096;

/// Innermost lock, taken under an engine's.
static KEYS: Mutex<Keys> = Mutex::new(Keys {
    registered: BTreeMap::new(),
    deregistered: BTreeMap::new(),
    order: VecDeque::new(),
});

struct Keys {
    /// By L_Key.
    registered: BTreeMap<u32, Stack>,
    /// By R_Key.
    deregistered: BTreeMap<u32, Stack>,
    /// Oldest first.
    order: VecDeque<u32>,
}

pub(crate) fn registered(lkey: u32) {
    if is_on() {
        let stack = Stack::here();
        KEYS.lock().registered.insert(lkey, stack);
    }
}

/// Does not wait.
pub(super) fn registered_at(lkey: u32) -> Stack {
    let stack = KEYS.try_lock().and_then(|keys| keys.registered.get(&lkey).cloned());
    stack.unwrap_or_else(Stack::none)
}

pub(crate) fn deregistered(lkey: u32, rkey: u32) {
    if !is_on() {
        return;
    }
    let stack = Stack::here();
    let mut keys = KEYS.lock();
    keys.registered.remove(&lkey);
    if keys.deregistered.insert(rkey, stack).is_none() {
        keys.order.push_back(rkey);
    }
    if keys.order.len() > REMEMBERED
        && let Some(oldest) = keys.order.pop_front()
    {
        keys.deregistered.remove(&oldest);
    }
}

pub(crate) fn refused(event: &AsyncEvent) {
    let AsyncEvent::QpAccessError(qpn, Refusal::Access(error)) = *event else { return };
    if !is_on() {
        return;
    }
    let keys = KEYS.lock();
    let (kind, key, name, stack) = match error {
        AccessError::Deregistered(key) => {
            (Kind::DeregisteredKey, key, "deregistered", keys.deregistered.get(&key))
        }
        AccessError::LocalKey(key) => {
            (Kind::LkeyAsRkey, key, "registered", keys.registered.get(&key))
        }
        _ => return,
    };
    let Some(stack) = stack.cloned() else { return };
    drop(keys);
    let stacks = vec![(name, stack)];
    let what = format!("qp {:#x}: a request of the peer names key {key:#x}", qpn.get());
    report::postpone(Finding { kind, what, stacks });
}
