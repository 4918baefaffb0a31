//! Keys that peers must not use: of memory that is gone or moved, or L_Keys.

use std::{
    collections::{BTreeMap, VecDeque},
    ops::Range,
};

use roce_provider::{
    AsyncEvent,
    transport::{event::Refusal, mem::AccessError},
};

use super::{Finding, Kind, Stack, is_on, report};
use crate::sync::Mutex;

/// As many keys as an adapter withholds from reuse.
const REMEMBERED: usize = 4096;

/// Innermost lock, taken under an engine's.
static KEYS: Mutex<Keys> =
    Mutex::new(Keys { registered: BTreeMap::new(), gone: BTreeMap::new(), order: VecDeque::new() });

struct Keys {
    /// By L_Key.
    registered: BTreeMap<u32, Stack>,
    /// By either key.
    gone: BTreeMap<u32, Gone>,
    /// Oldest first.
    order: VecDeque<u32>,
}

/// Memory that a key named before a call.
#[derive(Clone)]
struct Gone {
    /// Participle of the call.
    call: &'static str,
    at: Stack,
    addresses: Range<u64>,
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
    if is_on() {
        forget(&[lkey, rkey], "deregistered", 0..u64::MAX);
        KEYS.lock().registered.remove(&lkey);
    }
}

/// `addresses` were the region's; its keys stay.
pub(crate) fn reregistered(lkey: u32, rkey: u32, addresses: Range<u64>) {
    if is_on() {
        forget(&[lkey, rkey], "reregistered", addresses);
    }
}

/// The key of a memory window; `call`: participle.
pub(crate) fn window_gone(rkey: u32, call: &'static str) {
    if is_on() {
        forget(&[rkey], call, 0..u64::MAX);
    }
}

fn forget(keys: &[u32], call: &'static str, addresses: Range<u64>) {
    let gone = Gone { call, at: Stack::here(), addresses };
    let mut all = KEYS.lock();
    for &key in keys {
        if all.gone.insert(key, gone.clone()).is_none() {
            all.order.push_back(key);
        }
        if all.order.len() > REMEMBERED
            && let Some(oldest) = all.order.pop_front()
        {
            all.gone.remove(&oldest);
        }
    }
}

pub(crate) fn refused(event: &AsyncEvent) {
    let AsyncEvent::QpAccessError(qpn, Refusal::Access(error)) = *event else { return };
    if !is_on() {
        return;
    }
    let keys = KEYS.lock();
    let what = |key: u32| format!("qp {:#x}: a request of the peer names key {key:#x}", qpn.get());
    let of_gone = |key: u32, gone: &Gone| Finding {
        kind: Kind::DeregisteredKey,
        what: format!("{}, {} before", what(key), gone.call),
        stacks: vec![(gone.call, gone.at.clone())],
    };
    let finding = match error {
        AccessError::Deregistered(key) | AccessError::UnknownKey(key) => {
            keys.gone.get(&key).map(|gone| of_gone(key, gone))
        }
        AccessError::Bounds { key, address, length, .. } => {
            let had = |gone: &&Gone| {
                let Range { start, end } = gone.addresses;
                (start..end).contains(&address) && address.saturating_add(length) <= end
            };
            keys.gone.get(&key).filter(had).map(|gone| of_gone(key, gone))
        }
        AccessError::LocalKey(key) => keys.registered.get(&key).map(|stack| Finding {
            kind: Kind::LkeyAsRkey,
            what: what(key),
            stacks: vec![("registered", stack.clone())],
        }),
        _ => None,
    };
    drop(keys);
    finding.into_iter().for_each(report::postpone);
}
