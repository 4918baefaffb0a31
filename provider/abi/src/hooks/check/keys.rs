//! Keys of regions that the program has deregistered, and peers that use them.

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
static KEYS: Mutex<Keys> = Mutex::new(Keys { by_key: BTreeMap::new(), order: VecDeque::new() });

struct Keys {
    /// Where the region of each was deregistered.
    by_key: BTreeMap<u32, Stack>,
    /// The oldest first.
    order: VecDeque<u32>,
}

/// Notes the key for peers of a region that the program has deregistered.
pub(crate) fn deregistered(rkey: u32) {
    if !is_on() {
        return;
    }
    let stack = Stack::here();
    let mut keys = KEYS.lock();
    if keys.by_key.insert(rkey, stack).is_none() {
        keys.order.push_back(rkey);
    }
    if keys.order.len() > REMEMBERED
        && let Some(oldest) = keys.order.pop_front()
    {
        keys.by_key.remove(&oldest);
    }
}

/// Has it told if a peer was refused because it used such a key.
pub(crate) fn refused(event: &AsyncEvent) {
    let AsyncEvent::QpAccessError(qpn, Refusal::Access(AccessError::Deregistered(key))) = *event
    else {
        return;
    };
    if !is_on() {
        return;
    }
    let Some(stack) = KEYS.lock().by_key.get(&key).cloned() else { return };
    report::postpone(Finding {
        kind: Kind::DeregisteredKey,
        what: format!("qp {:#x}: a request of the peer names rkey {key:#x}", qpn.get()),
        stacks: vec![("deregistered", stack)],
    });
}
