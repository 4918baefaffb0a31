//! Ids by serial number. Unacknowledged events delay destruction.

use std::{collections::BTreeMap, net::IpAddr, sync::MutexGuard};

use roce_provider::cm::CmId;

use crate::{
    hooks::check::{Kind, waits},
    layout::rdma_cm_id,
    sync::{Changes, Mutex},
};

/// Serial numbers are never reused.
#[derive(Default)]
struct Entry {
    id: usize,
    /// Unacknowledged events.
    events: u32,
    groups: BTreeMap<IpAddr, Group>,
}

#[derive(Default)]
pub(super) struct Group {
    context: usize,
    /// Whether to attach the queue pair.
    pub(super) receives: bool,
    events: u32,
}

static IDS: Mutex<BTreeMap<u64, Entry>> = Mutex::new(BTreeMap::new());
static ACKNOWLEDGED: Changes = Changes::new();

pub(super) fn insert(serial: u64, id: *mut rdma_cm_id) {
    IDS.lock().insert(serial, Entry { id: id as usize, ..Entry::default() });
}

pub(super) fn wait_for_acknowledgements(serial: u64) {
    drop(wait(serial, |entry| entry.events == 0));
}

/// Waits until the id's events are acknowledged.
pub(super) fn remove(serial: u64) {
    wait(serial, |entry| entry.events == 0).remove(&serial);
}

pub(super) fn enter_group(serial: u64, ip: IpAddr, context: usize, receives: bool) {
    if let Some(entry) = IDS.lock().get_mut(&serial) {
        entry.groups.insert(ip, Group { context, receives, events: 0 });
    }
}

/// Waits until the group's events are acknowledged.
pub(super) fn leave_group(serial: u64, ip: IpAddr) -> Option<Group> {
    let mut ids = wait(serial, |entry| entry.groups.get(&ip).is_none_or(|group| group.events == 0));
    ids.get_mut(&serial)?.groups.remove(&ip)
}

/// Never waits: a held lock means yes.
pub(super) fn any_ids() -> bool {
    IDS.try_lock().is_none_or(|ids| !ids.is_empty())
}

pub(super) fn pointers() -> Vec<*const rdma_cm_id> {
    IDS.lock().values().map(|entry| entry.id as *const rdma_cm_id).collect()
}

fn wait(serial: u64, done: impl Fn(&Entry) -> bool) -> MutexGuard<'static, BTreeMap<u64, Entry>> {
    let is_done = |ids: &BTreeMap<u64, Entry>| ids.get(&serial).is_none_or(&done);
    let attempt = || Some(IDS.lock()).filter(|ids| is_done(ids));
    waits::for_acknowledgement(&ACKNOWLEDGED, attempt, Kind::CmEventsUnacknowledged, || {
        let number = IDS.lock().get(&serial).map_or(0, |entry| entry.events);
        format!("{number} events of the id are not acknowledged")
    })
}

/// Acknowledged on drop.
pub(super) struct TakenEvent {
    pub(super) id: *mut rdma_cm_id,
    serial: u64,
    group: Option<IpAddr>,
    pub(super) context: usize,
    pub(super) receives: bool,
}

impl TakenEvent {
    /// `None` if the id is being destroyed, or has left the group.
    pub(super) fn new(id: &CmId, group: Option<IpAddr>) -> Option<Self> {
        let serial = id.user_data();
        let mut ids = IDS.lock();
        let entry = ids.get_mut(&serial)?;
        let mut taken =
            Self { id: entry.id as *mut rdma_cm_id, serial, group, context: 0, receives: false };
        if let Some(ip) = group {
            let group = entry.groups.get_mut(&ip)?;
            (taken.context, taken.receives) = (group.context, group.receives);
            group.events += 1;
        }
        entry.events += 1;
        Some(taken)
    }
}

impl Drop for TakenEvent {
    fn drop(&mut self) {
        if let Some(entry) = IDS.lock().get_mut(&self.serial) {
            entry.events -= 1;
            if let Some(group) = self.group.and_then(|group| entry.groups.get_mut(&group)) {
                group.events -= 1;
            }
        }
        ACKNOWLEDGED.announce();
    }
}
