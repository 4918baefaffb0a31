//! Forks of programs that have registered memory, and have not asked for it to be kept from the
//! child.

use std::sync::atomic::{AtomicBool, Ordering};

use roce_provider::calls::Call;

use super::{
    finding::{Finding, Kind},
    report, requests,
    stack::Stack,
};

/// The program has called `ibv_fork_init`, or has been told that it need not.
static IS_PREPARED: AtomicBool = AtomicBool::new(false);
/// Variables with which libibverbs calls it by itself.
const VARIABLES: [&str; 2] = ["RDMAV_FORK_SAFE", "IBV_FORK_SAFE"];

/// Notes that the program has thought of it.
pub(crate) fn prepared() {
    IS_PREPARED.store(true, Ordering::Relaxed);
}

/// Has forks looked at; to be called after [`survive_forks`](roce_provider::survive_forks), whose
/// locks are taken later then.
pub(super) fn watch() {
    if VARIABLES.iter().any(|name| std::env::var_os(name).is_some()) {
        prepared();
    }
    // SAFETY: A function that lives as long as the process does: this library is never unloaded.
    unsafe { libc::pthread_atfork(Some(before), None, None) };
}

unsafe extern "C" fn before() {
    let _call = Call::begin();
    if IS_PREPARED.load(Ordering::Relaxed) {
        return;
    }
    let regions = requests::regions();
    if regions > 0 {
        report::tell(&Finding {
            kind: Kind::ForkNotPrepared,
            what: format!("fork while {regions} memory regions are registered"),
            stacks: vec![("forked", Stack::here())],
        });
    }
}
