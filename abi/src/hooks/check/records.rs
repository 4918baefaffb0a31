use std::{
    alloc::{Layout, dealloc},
    cell::Cell,
    collections::{BTreeMap, VecDeque},
    fmt::Write,
    process, ptr,
    sync::atomic::{AtomicU32, Ordering},
};

use super::{Finding, Kind, Stack, is_on, report, single};
use crate::sync::Mutex;

/// Destroyed objects whose memory stays readable.
const REMEMBERED: usize = 16_384;
/// Most places shown per type.
const PLACES: usize = 3;
/// Kinds that a child may close: its descriptors are its own.
const DESCRIPTORS: [&str; 3] = ["ibv_context", "ibv_comp_channel", "rdma_event_channel"];

static RECORDS: Mutex<Records> =
    Mutex::new(Records { alive: BTreeMap::new(), gone: BTreeMap::new(), order: VecDeque::new() });
/// Process of the records: a forked child has none.
static MAKER: AtomicU32 = AtomicU32::new(0);

thread_local! {
    /// True while the library creates for itself.
    static OWN: Cell<bool> = const { Cell::new(false) };
    /// Missing object named by this thread's call.
    static NAMED: Cell<usize> = const { Cell::new(0) };
    /// The program's call; empty: none.
    static CALL: Cell<&'static str> = const { Cell::new("") };
}

struct Records {
    alive: BTreeMap<usize, Alive>,
    gone: BTreeMap<usize, Destroyed>,
    /// Oldest first.
    order: VecDeque<usize>,
}

struct Alive {
    kind: &'static str,
    made: Stack,
    process: u32,
    /// The library's own.
    is_own: bool,
    /// Of an `rdma_cm_id`: the program has disconnected, not only the peer.
    is_answered: Option<bool>,
}

struct Destroyed {
    kind: &'static str,
    made: Stack,
    destroyed: Stack,
    memory: (usize, Layout),
}

pub(super) fn were_made() -> bool {
    MAKER.load(Ordering::Relaxed) == process::id()
}

/// Creates the library's permanent objects.
pub(crate) fn for_itself<R>(make: impl FnOnce() -> R) -> R {
    let before = OWN.replace(true);
    let made = make();
    OWN.set(before);
    made
}

/// Scope of a call of the program.
pub(crate) struct Calling(&'static str);

pub(crate) fn calling(call: &'static str) -> Calling {
    Calling(CALL.replace(call))
}

impl Drop for Calling {
    fn drop(&mut self) {
        CALL.set(self.0);
    }
}

pub(crate) fn made(pointer: usize, kind: &'static str) {
    if !is_on() {
        return;
    }
    let (made, is_own) = (Stack::here(), OWN.get());
    if !is_own {
        MAKER.store(process::id(), Ordering::Relaxed);
    }
    let mut records = RECORDS.lock();
    // memory freed another way
    records.forget(pointer, false);
    let alive = Alive { kind, made, process: process::id(), is_own, is_answered: None };
    records.alive.insert(pointer, alive);
}

pub(crate) fn disconnected(pointer: usize, by_program: bool) {
    if is_on()
        && let Some(id) = RECORDS.lock().alive.get_mut(&pointer)
    {
        *id.is_answered.get_or_insert_default() |= by_program;
    }
}

/// Frees the memory later.
///
/// # Safety
/// `memory` has `layout`, and nothing else frees it.
pub(crate) unsafe fn destroyed(pointer: usize, memory: *mut u8, layout: Layout) {
    let destroyed = Stack::here();
    single::forget(pointer);
    let mut records = RECORDS.lock();
    let (kind, made) = match records.alive.remove(&pointer) {
        Some(alive) => (alive.kind, alive.made),
        None => ("object", Stack::none()),
    };
    let memory = (memory.expose_provenance(), layout);
    records.gone.insert(pointer, Destroyed { kind, made, destroyed, memory });
    records.order.push_back(pointer);
    if records.order.len() > REMEMBERED
        && let Some(oldest) = records.order.pop_front()
    {
        records.forget(oldest, true);
    }
}

pub(crate) fn named(pointer: usize) {
    NAMED.set(pointer);
}

pub(crate) fn refused(call: &str) {
    if is_on() {
        used(NAMED.replace(0), call);
    }
}

/// Reports a control call with the parent's object.
pub(crate) fn found(pointer: usize) {
    let call = CALL.get();
    if is_on() && !call.is_empty() {
        let finding = RECORDS.lock().of_parent(pointer, call);
        finding.iter().for_each(report::emit);
    }
}

/// Reports use after destruction (true), or of the parent's object.
pub(crate) fn used(pointer: usize, call: &str) -> bool {
    let records = RECORDS.lock();
    let gone = records.gone.get(&pointer).map(|gone| {
        let what = format!("{call} with the {} {pointer:#x}", gone.kind);
        let others = [("destroyed", gone.destroyed.clone()), ("made", gone.made.clone())];
        Finding::here(Kind::UsedAfterDestroy, "called", what, others)
    });
    let is_gone = gone.is_some();
    let finding = gone.or_else(|| records.of_parent(pointer, call));
    drop(records);
    finding.iter().for_each(report::emit);
    is_gone
}

pub(super) fn report_alive() {
    let mut by_kind: BTreeMap<&str, BTreeMap<Stack, usize>> = BTreeMap::new();
    let mut unanswered = 0;
    let process = process::id();
    for alive in RECORDS.lock().alive.values() {
        if alive.process == process && !alive.is_own {
            let places = by_kind.entry(alive.kind).or_default();
            *places.entry(alive.made.clone()).or_default() += 1;
            unanswered += u32::from(alive.is_answered == Some(false));
        }
    }
    for (kind, places) in by_kind {
        let number: usize = places.values().sum();
        let mut places: Vec<_> = places.into_iter().collect();
        places.sort_by_key(|(_, number)| std::cmp::Reverse(*number));
        let others = places.len().saturating_sub(PLACES);
        let mut more =
            if others > 0 { format!(", made at {others} other places") } else { String::new() };
        if kind == "rdma_cm_id" && unanswered > 0 {
            let _ = write!(
                more,
                ", {unanswered} with RDMA_CM_EVENT_DISCONNECTED and without rdma_disconnect, \
                 which RDMA_CM_EVENT_TIMEWAIT_EXIT needs"
            );
        }
        report::emit(&Finding {
            kind: Kind::ObjectAlive,
            what: format!("{number} × {kind}{more}"),
            stacks: places.into_iter().take(PLACES).map(|(stack, _)| ("made", stack)).collect(),
        });
    }
}

impl Records {
    /// Use of the parent's object. A poll is harmless. Destruction reaches the kernel's object,
    /// which parent and child share.
    fn of_parent(&self, pointer: usize, call: &str) -> Option<Finding> {
        let alive = self.alive.get(&pointer)?;
        let is_harmless =
            alive.is_own || call == "ibv_poll_cq" || DESCRIPTORS.contains(&alive.kind);
        (alive.process != process::id() && !is_harmless).then(|| {
            let what = format!("{call} with the {} {pointer:#x} of the parent process", alive.kind);
            Finding::here(Kind::UsedInChild, "called", what, [("made", alive.made.clone())])
        })
    }

    fn forget(&mut self, pointer: usize, free: bool) {
        let Some(gone) = self.gone.remove(&pointer) else { return };
        if free {
            // SAFETY: By the contract of `destroyed`.
            unsafe { dealloc(ptr::with_exposed_provenance_mut(gone.memory.0), gone.memory.1) };
        } else {
            self.order.retain(|other| *other != pointer);
        }
    }
}
