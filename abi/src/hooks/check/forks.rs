//! Forks with registered memory: without `ibv_fork_init`, or a child that uses the memory.
//!
//! Before Linux 5.12, `ibv_fork_init` has the pages of regions left out of children
//! (`MADV_DONTFORK`). The checks do so as well, during the fork and for whole pages, unless the
//! program asks `ibv_is_fork_initialized` whether it is needed.

use std::{
    ffi::c_int,
    process,
    sync::atomic::{AtomicBool, Ordering},
};

use roce_provider::{before_the_end, calls::Call};

use super::{
    at_exit,
    finding::{Finding, Kind},
    keys, python, report,
    requests::{self, RegionMemory},
    stack::Stack,
};

/// The program called `ibv_fork_init`, or knows that it need not.
static IS_PREPARED: AtomicBool = AtomicBool::new(false);
/// The program called `ibv_is_fork_initialized`.
static KNOWS: AtomicBool = AtomicBool::new(false);
/// Variables that make libibverbs call `ibv_fork_init`.
const VARIABLES: [&str; 2] = ["RDMAV_FORK_SAFE", "IBV_FORK_SAFE"];

pub(crate) fn prepared() {
    IS_PREPARED.store(true, Ordering::Relaxed);
}

pub(crate) fn knows() {
    KNOWS.store(true, Ordering::Relaxed);
}

/// Watches forks. Call after [`survive_forks`](roce_provider::survive_forks), whose locks then come
/// later.
pub(super) fn watch() {
    if VARIABLES.iter().any(|name| std::env::var_os(name).is_some()) {
        prepared();
    }
    before_the_end(unmapped);
    // SAFETY: Functions that live as long as the process does: this library is never unloaded.
    unsafe { libc::pthread_atfork(Some(before), Some(after), None) };
}

unsafe extern "C" fn before() {
    let _call = Call::begin();
    let _lines = python::enter(None);
    if KNOWS.load(Ordering::Relaxed) {
        return;
    }
    let regions = requests::regions();
    if IS_PREPARED.load(Ordering::Relaxed) {
        regions.iter().for_each(|region| advise(region, libc::MADV_DONTFORK));
    } else if !regions.is_empty() {
        report::emit(&Finding {
            kind: Kind::ForkNotPrepared,
            what: format!("fork while {} memory regions are registered", regions.len()),
            stacks: vec![("forked", Stack::here())],
        });
    }
}

/// In the parent.
unsafe extern "C" fn after() {
    let _call = Call::begin();
    if IS_PREPARED.load(Ordering::Relaxed) && !KNOWS.load(Ordering::Relaxed) {
        requests::regions().iter().for_each(|region| advise(region, libc::MADV_DOFORK));
    }
}

/// The whole pages: others have data beside the region.
fn advise(region: &RegionMemory, advice: c_int) {
    let page = rustix::param::page_size();
    let start = region.address.next_multiple_of(page);
    let end = (region.address + region.length) / page * page;
    if region.is_pinned && start < end {
        // SAFETY: Whether a child gets the pages does not concern this process.
        unsafe { libc::madvise(start as *mut libc::c_void, end - start, advice) };
    }
}

/// Explains a fault that ends the process: a child uses memory that its parent registered.
///
/// A signal handler: the interrupted thread may be inside `malloc`, and `SIGALRM` then ends the
/// process.
fn unmapped(address: usize) {
    let Some((lkey, memory, process)) = requests::region_with(address) else { return };
    if process == process::id() {
        return;
    }
    // SAFETY: They change the disposition of a signal, and send it later.
    unsafe {
        libc::signal(libc::SIGALRM, libc::SIG_DFL);
        libc::alarm(at_exit::LIMIT.as_secs() as u32);
    }
    report::emit(&Finding {
        kind: Kind::UsedInChild,
        what: format!(
            "SIGSEGV at {address:#x}, byte {} of the region of lkey {lkey:#x}, which process \
             {process} registered and this child does not have (MADV_DONTFORK)",
            address - memory.address
        ),
        stacks: vec![("used", Stack::here()), ("registered", keys::registered_at(lkey))],
    });
    at_exit::report_rest();
}
