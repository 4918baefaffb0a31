//! Engines when the process forks.
//!
//! The parent's go on. In the child there are only copies: of the adapter, without the thread that
//! served it, on the parent's sockets. If the child touched those, it would take the parent's
//! packets and answer for it. So its copies lose their links at once: they can still be looked at
//! and destroyed, but nothing goes out, and nothing comes in any more. Devices that the child opens
//! are its own.
//!
//! The forking thread waits until no other is inside a [call](crate::calls) of the C interface, and
//! holds every engine's lock, so that the copies are whole. The child releases both by the guards
//! that it inherits. That is sound with the mutexes of [`sync`], whose state is all in themselves.
//!
//! [`sync`]: crate::sync

#![allow(unsafe_code, reason = "pthread_atfork has no safe interface")]

use std::{
    cell::RefCell,
    sync::{
        Arc, MutexGuard, Weak,
        atomic::{AtomicBool, Ordering},
    },
};

use super::{poller, serve::Engine, shard::Shard, sink::CounterSink};
use crate::{
    calls::NoOther,
    link::{NullLink, StrangersHeld},
    sync::Mutex,
};

static ENGINES: Mutex<Vec<Weak<Engine>>> = Mutex::new(Vec::new());

/// An engine, and its locks, which the forking thread holds. It stays in a list until its end: if
/// it was passed to a function that drops it, the guards' borrow would last as long as that
/// function.
struct Held {
    publishers: MutexGuard<'static, Vec<Box<dyn CounterSink>>>,
    shard: MutexGuard<'static, Shard>,
    // behind its guards: fields are dropped in this order
    engine: Arc<Engine>,
}

impl Held {
    fn new(engine: Arc<Engine>) -> Self {
        // SAFETY: The guards borrow from the engine, which this value keeps where it is until after
        // they are gone: a value with a `Drop` cannot be taken apart.
        let borrowed = unsafe { &*Arc::as_ptr(&engine) };
        // in the same order as a thread that publishes
        let publishers = borrowed.publishers.lock();
        let shard = borrowed.lock_shard();
        Self { publishers, shard, engine }
    }

    /// The copy in the child is one of its own, which touches nothing of the parent's.
    fn lose_parent(&mut self) {
        self.engine.lose_loop();
        self.shard.lose_link(Box::new(NullLink));
        self.engine.shard.forget_waiting(); // those threads are the parent's
        self.publishers.clear(); // closes the child's descriptor of the parent's file
        if let Some(mut background) = self.engine.system.thread.try_lock() {
            std::mem::forget(background.take()); // there is no such thread in this process
        }
    }
}

impl Drop for Held {
    /// The fields are dropped after this, in their order.
    fn drop(&mut self) {}
}

/// What the forking thread holds, taken from the last to the first: calls have engines' locks, and
/// the list's.
struct AllHeld {
    strangers: StrangersHeld,
    engines: Vec<Held>,
    /// The child will add to it.
    _list: MutexGuard<'static, Vec<Weak<Engine>>>,
    others: NoOther,
}

thread_local! {
    static HELD: RefCell<Option<AllHeld>> = const { RefCell::new(None) };
}

/// Has engines, and calls of the C interface, survive forks; to be called before the first.
pub fn survive_forks() {
    static DONE: AtomicBool = AtomicBool::new(false);
    if DONE.swap(true, Ordering::SeqCst) || cfg!(miri) {
        return; // Miri has no processes
    }
    // SAFETY: The three are functions that live as long as the process does: a library with this
    // code in it is never unloaded, because its threads run in it. If there is no memory for them,
    // forks do as they do without.
    unsafe { libc::pthread_atfork(Some(prepare), Some(in_parent), Some(in_child)) };
}

/// Has this engine survive forks.
pub(super) fn watch(engine: &Arc<Engine>) {
    survive_forks();
    let mut engines = ENGINES.lock();
    engines.retain(|other| other.strong_count() > 0);
    engines.push(Arc::downgrade(engine));
}

/// The engines of this process, unless the list is in use.
pub(super) fn engines() -> Vec<Arc<Engine>> {
    let list = ENGINES.try_lock();
    list.iter().flat_map(|list| list.iter().filter_map(Weak::upgrade)).collect()
}

/// Ends every device that the program has not closed, as far as others see it: the process is about
/// to end. Their addresses are left to other processes, and their counters are published as they
/// are now, if they are published.
pub fn end_devices() {
    engines().iter().for_each(|engine| engine.leave());
}

/// True if there may be a device.
pub fn any_devices() -> bool {
    ENGINES.try_lock().is_none_or(|engines| engines.iter().any(|engine| engine.strong_count() > 0))
}

fn hold() -> AllHeld {
    let others = NoOther::begin();
    let list = ENGINES.lock();
    let engines = list.iter().filter_map(Weak::upgrade).map(Held::new).collect();
    AllHeld { strangers: StrangersHeld::begin(), engines, _list: list, others }
}

unsafe extern "C" fn prepare() {
    // a thread that is ending has lost the place already, and has nothing of its own to protect
    let _ = HELD.try_with(|held| *held.borrow_mut() = Some(hold()));
}

fn release() -> Option<AllHeld> {
    HELD.try_with(RefCell::take).ok().flatten()
}

unsafe extern "C" fn in_parent() {
    drop(release());
}

unsafe extern "C" fn in_child() {
    let Some(mut held) = release() else { return };
    held.others.is_alone();
    held.strangers.forget();
    poller::forget();
    held.engines.iter_mut().for_each(Held::lose_parent);
}

#[cfg(test)]
mod tests {
    use roce_transport::adapter::{Adapter, AdapterConfig};

    use super::*;
    use crate::engine::{EngineParts, Progress, Sinks};

    /// The last handle of an engine may be the one that the forking thread has: it must not go
    /// before its guards do.
    #[test]
    fn an_engine_goes_after_its_guards() {
        let parts = EngineParts {
            name: "test".into(),
            adapter: Adapter::new(AdapterConfig::new([0; 32])),
            places: crate::port::GidPlaces::default(),
            link: Box::new(NullLink),
            observer: None,
            sinks: Sinks::default(),
            watch: None,
            publishers: Vec::new(),
            diagnosis: None,
        };
        let engine = Engine::start(parts, Progress::Manual).unwrap();
        let weak = Arc::downgrade(&engine);
        let mut held = vec![Held::new(engine)];
        held.iter_mut().for_each(Held::lose_parent);
        assert!(weak.upgrade().is_some_and(|engine| engine.shard.try_lock().is_none()));
        drop(held);
        assert!(weak.upgrade().is_none());
    }
}
