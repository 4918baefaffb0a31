//! Devices used after their lists are freed.

use std::collections::BTreeMap;

use roce_provider::calls::Call;

use super::{Finding, Kind, Stack, is_on, report};
use crate::sync::Mutex;

static LISTS: Mutex<Lists> = Mutex::new(Lists { alive: BTreeMap::new(), gone: BTreeMap::new() });

struct Lists {
    alive: BTreeMap<usize, Vec<usize>>,
    /// Stack that freed a device's last list.
    gone: BTreeMap<usize, Stack>,
}

pub(crate) fn listed(list: usize, devices: impl Iterator<Item = usize>) {
    if !is_on() {
        return;
    }
    let devices: Vec<_> = devices.collect();
    let mut lists = LISTS.lock();
    for device in &devices {
        lists.gone.remove(device);
    }
    lists.alive.insert(list, devices);
}

pub(crate) fn freed(list: usize) {
    if !is_on() {
        return;
    }
    let _call = Call::begin();
    let here = Stack::here();
    let mut lists = LISTS.lock();
    let devices = lists.alive.remove(&list).unwrap_or_default();
    for device in devices {
        if !lists.alive.values().any(|others| others.contains(&device)) {
            lists.gone.insert(device, here.clone());
        }
    }
}

/// Unless open.
pub(crate) fn used(device: usize, call: &str, is_open: impl FnOnce() -> bool) {
    if !is_on() {
        return;
    }
    let _call = Call::begin();
    let Some(freed) = LISTS.lock().gone.get(&device).cloned() else { return };
    if !is_open() {
        let what = format!("{call} with ibv_device {device:#x}");
        let freed = ("its list was freed", freed);
        report::emit(&Finding::here(Kind::UsedAfterDestroy, "called", what, [freed]));
    }
}
