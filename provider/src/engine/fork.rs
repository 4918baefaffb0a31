//! Engines when the process forks.
//!
//! The parent's go on. In the child there are only copies: of the adapter, without the thread that
//! served it, on the parent's sockets. If the child touched those, it would take the parent's
//! packets and answer for it. So its copies lose their links at once: they can still be looked at
//! and destroyed, but nothing goes out, and nothing comes in any more. What the child opens anew is
//! its own.
//!
//! The forking thread holds every engine's lock, so that the copies are whole, and the child
//! releases them by the guards that it inherits. That is sound with the mutexes of [`sync`], whose
//! state is all in themselves.
//!
//! [`sync`]: crate::sync

#![allow(unsafe_code, reason = "pthread_atfork has no safe interface")]

use std::{
    cell::RefCell,
    sync::{Arc, MutexGuard, Once, Weak, atomic::Ordering},
};

use super::{serve::Engine, shard::Shard, sink::CounterSink};
use crate::{link::NullLink, sync::Mutex};

static ENGINES: Mutex<Vec<Weak<Engine>>> = Mutex::new(Vec::new());

/// Locks that the forking thread holds, so that the copies in the child are whole and unlocked.
struct Held {
    publisher: MutexGuard<'static, Option<Box<dyn CounterSink>>>,
    shard: MutexGuard<'static, Shard>,
    // behind its guards: fields are dropped in this order
    engine: Arc<Engine>,
}

/// The list itself, too: the child will add to it.
type AllHeld = (Vec<Held>, MutexGuard<'static, Vec<Weak<Engine>>>);

thread_local! {
    static HELD: RefCell<Option<AllHeld>> = const { RefCell::new(None) };
}

/// Has this engine survive forks.
pub(super) fn watch(engine: &Arc<Engine>) {
    static HANDLERS: Once = Once::new();
    HANDLERS.call_once(|| {
        // SAFETY: The three are functions that live as long as the process does: a library with
        // this code in it is never unloaded, because its threads run in it. If there is no memory
        // for them, forks do as they do without.
        unsafe { libc::pthread_atfork(Some(prepare), Some(in_parent), Some(in_child)) };
    });
    let mut engines = engines();
    engines.retain(|other| other.strong_count() > 0);
    engines.push(Arc::downgrade(engine));
}

fn engines() -> MutexGuard<'static, Vec<Weak<Engine>>> {
    ENGINES.lock()
}

unsafe extern "C" fn prepare() {
    let engines = engines();
    let living: Vec<_> = engines.iter().filter_map(Weak::upgrade).collect();
    let hold = |engine: Arc<Engine>| {
        // SAFETY: The guards borrow from the engine, which `Held` keeps where it is until after
        // they are gone.
        let borrowed = unsafe { &*Arc::as_ptr(&engine) };
        // in the same order as a thread that publishes
        let publisher = borrowed.publisher.lock();
        let shard = borrowed.lock_shard();
        Held { publisher, shard, engine }
    };
    // a thread that is ending has lost the list already, and has nothing of its own to protect
    let _ = HELD.try_with(|held| {
        *held.borrow_mut() = Some((living.into_iter().map(hold).collect(), engines));
    });
}

fn release() -> Option<AllHeld> {
    HELD.try_with(RefCell::take).ok().flatten()
}

unsafe extern "C" fn in_parent() {
    drop(release());
}

unsafe extern "C" fn in_child() {
    let Some((held, _engines)) = release() else { return };
    for Held { mut publisher, mut shard, engine } in held {
        shard.lose_link(Box::new(NullLink));
        engine.waiting.store(0, Ordering::SeqCst); // those threads are the parent's
        *publisher = None; // closes the child's descriptor of the parent's file
        if let Some(mut background) = engine.background.try_lock() {
            std::mem::forget(background.take()); // there is no such thread in this process
        }
    }
}
