//! Forks with registered memory, without `ibv_fork_init`.

use std::sync::atomic::{AtomicBool, Ordering};

use roce_provider::calls::Call;

use super::{
    finding::{Finding, Kind},
    report, requests,
    stack::Stack,
};

/// The program called `ibv_fork_init`, or knows that it need not.
static IS_PREPARED: AtomicBool = AtomicBool::new(false);
/// Variables that make libibverbs call it.
const VARIABLES: [&str; 2] = ["RDMAV_FORK_SAFE", "IBV_FORK_SAFE"];

pub(crate) fn prepared() {
    IS_PREPARED.store(true, Ordering::Relaxed);
}

/// Watches forks. Call after [`survive_forks`](roce_provider::survive_forks), whose locks then come
/// later.
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
        report::emit(&Finding {
            kind: Kind::ForkNotPrepared,
            what: format!("fork while {regions} memory regions are registered"),
            stacks: vec![("forked", Stack::here())],
        });
    }
}
