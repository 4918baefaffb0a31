//! Forks without `ibv_fork_init`, and children that use registered memory.
//!
//! Before Linux 5.12, `ibv_fork_init` sets `MADV_DONTFORK` on regions. The checks do the same for
//! whole pages during a fork, unless the program calls `ibv_is_fork_initialized`.

use std::{
    ffi::c_int,
    process,
    sync::atomic::{AtomicBool, Ordering},
};

use roce_provider::{calls::Call, on_unmapped_access};

use super::{
    Finding, Kind, at_exit, keys, python, report,
    requests::{self, RegionMemory},
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

/// Call after [`survive_forks`](roce_provider::survive_forks), whose locks then come later.
pub(super) fn watch() {
    if VARIABLES.iter().any(|name| std::env::var_os(name).is_some()) {
        prepared();
    }
    on_unmapped_access(unmapped);
    // SAFETY: The library is never unloaded.
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
        let what = format!("fork while {} memory regions are registered", regions.len());
        report::emit_here(Kind::ForkNotPrepared, "forked", what);
    }
}

/// In the parent.
unsafe extern "C" fn after() {
    let _call = Call::begin();
    if IS_PREPARED.load(Ordering::Relaxed) && !KNOWS.load(Ordering::Relaxed) {
        requests::regions().iter().for_each(|region| advise(region, libc::MADV_DOFORK));
    }
}

/// Skips partial pages, which hold other data too.
fn advise(region: &RegionMemory, advice: c_int) {
    let page = rustix::param::page_size();
    let start = region.address.next_multiple_of(page);
    let end = (region.address + region.length) / page * page;
    if region.is_pinned && start < end {
        // SAFETY: Only children are affected.
        unsafe { libc::madvise(start as *mut libc::c_void, end - start, advice) };
    }
}

/// Explains a child's fault on memory that its parent registered.
///
/// A signal handler: the interrupted thread may be inside `malloc`; `SIGALRM` then ends the
/// process.
fn unmapped(address: usize) {
    let Some((lkey, memory, process)) = requests::region_with(address) else { return };
    if process == process::id() {
        return;
    }
    // SAFETY: Both are async-signal-safe.
    unsafe {
        libc::signal(libc::SIGALRM, libc::SIG_DFL);
        libc::alarm(at_exit::LIMIT.as_secs() as u32);
    }
    let what = format!(
        "SIGSEGV at {address:#x}, byte {} of the region of lkey {lkey:#x}, which process \
         {process} registered and this child does not have (MADV_DONTFORK)",
        address - memory.address
    );
    let registered = ("registered", keys::registered_at(lkey));
    report::emit(&Finding::here(Kind::UsedInChild, "used", what, [registered]));
    at_exit::report_rest(true);
}
