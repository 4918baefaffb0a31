//! Keys that peers use and that are none for them: of regions that the program has deregistered,
//! and those that are for the program itself.

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

/// Number of keys that are remembered: as many as an adapter keeps from being given out again.
const REMEMBERED: usize = 4096;

/// Taken last: an engine asks for it under its lock.
static KEYS: Mutex<Keys> = Mutex::new(Keys {
    registered: BTreeMap::new(),
    deregistered: BTreeMap::new(),
    order: VecDeque::new(),
});

struct Keys {
    /// Where the region of each L_Key was registered.
    registered: BTreeMap<u32, Stack>,
    /// Where that of each R_Key was deregistered.
    deregistered: BTreeMap<u32, Stack>,
    /// The oldest first.
    order: VecDeque<u32>,
}

/// Notes a region that the program has registered.
pub(crate) fn registered(lkey: u32) {
    if is_on() {
        let stack = Stack::here();
        KEYS.lock().registered.insert(lkey, stack);
    }
}

/// Notes the keys of one that it has deregistered.
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

/// Has it told if a peer was refused because it used such a key.
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
