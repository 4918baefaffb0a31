//! Engines across a fork.
//!
//! The child's copies have no thread, and would take packets from the parent's sockets. They lose
//! their links: the child can only query and destroy them, and open other devices.
//!
//! The forking thread waits for other [calls](crate::calls) and takes every engine's lock, so the
//! copies are consistent. The child releases the inherited guards: mutexes of [`sync`] allow that.
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
    calls::ForkGuard,
    link::{NullLink, StrangersHeld},
    sync::Mutex,
};

static ENGINES: Mutex<Vec<Weak<Engine>>> = Mutex::new(Vec::new());

/// Engine with its guards. It stays in a list: as an argument, its guards would be borrowed for the
/// whole function.
struct Held {
    publishers: MutexGuard<'static, Vec<Box<dyn CounterSink>>>,
    shard: MutexGuard<'static, Shard>,
    _turn: MutexGuard<'static, ()>,
    // after its guards: fields drop in order
    engine: Arc<Engine>,
}

impl Held {
    fn new(engine: Arc<Engine>) -> Self {
        // SAFETY: the guards borrow from the engine, which drops after them; `Drop` keeps the value
        // whole
        let borrowed = unsafe { &*Arc::as_ptr(&engine) };
        // lock order of publishing threads
        let publishers = borrowed.publishers.lock();
        let (shard, _turn) = borrowed.shard.lock_in_turn();
        Self { publishers, shard, _turn, engine }
    }

    fn abandon_parent(&mut self) {
        self.engine.abandon_loop();
        self.shard.abandon_link(Box::new(NullLink));
        self.engine.shard.forget_waiting(); // those threads are the parent's
        self.publishers.clear(); // closes the child's descriptor of the parent's file
        if let Some(mut background) = self.engine.system.thread.try_lock() {
            std::mem::forget(background.take()); // the thread is the parent's
        }
    }
}

impl Drop for Held {
    /// Fields drop afterwards, in order.
    fn drop(&mut self) {}
}

/// Guards of the forking thread, in reverse order of locking: calls take engine and list locks.
struct AllHeld {
    strangers: StrangersHeld,
    engines: Vec<Held>,
    /// for the child's additions
    _list: MutexGuard<'static, Vec<Weak<Engine>>>,
    others: ForkGuard,
}

thread_local! {
    static HELD: RefCell<Option<AllHeld>> = const { RefCell::new(None) };
}

/// Installs fork handlers; call before the first fork.
pub fn survive_forks() {
    static DONE: AtomicBool = AtomicBool::new(false);
    if DONE.swap(true, Ordering::SeqCst) || cfg!(miri) {
        return; // Miri has no processes
    }
    // SAFETY: the functions live as long as the process: a library whose threads run in it is never
    // unloaded. Without memory, forks go unprotected
    unsafe { libc::pthread_atfork(Some(prepare), Some(in_parent), Some(in_child)) };
}

pub(super) fn watch(engine: &Arc<Engine>) {
    survive_forks();
    let mut engines = ENGINES.lock();
    engines.retain(|other| other.strong_count() > 0);
    engines.push(Arc::downgrade(engine));
}

/// Empty if the list is locked.
pub(super) fn engines() -> Vec<Arc<Engine>> {
    let list = ENGINES.try_lock();
    list.iter().flat_map(|list| list.iter().filter_map(Weak::upgrade)).collect()
}

/// Before process exit: releases the devices' addresses and publishes their counters.
pub fn end_devices() {
    engines().iter().for_each(|engine| engine.leave());
}

/// True if there may be a device.
pub fn any_devices() -> bool {
    ENGINES.try_lock().is_none_or(|engines| engines.iter().any(|engine| engine.strong_count() > 0))
}

fn hold() -> AllHeld {
    let others = ForkGuard::begin();
    let list = ENGINES.lock();
    let engines = list.iter().filter_map(Weak::upgrade).map(Held::new).collect();
    AllHeld { strangers: StrangersHeld::begin(), engines, _list: list, others }
}

unsafe extern "C" fn prepare() {
    // an ending thread has lost its slot and needs no protection
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
    held.others.reset_in_child();
    held.strangers.forget();
    poller::forget();
    held.engines.iter_mut().for_each(Held::abandon_parent);
}

#[cfg(test)]
mod tests {
    use roce_transport::adapter::{Adapter, AdapterConfig};

    use super::*;
    use crate::engine::{EngineParts, Progress, Sinks};

    /// The forking thread may hold the last handle: the engine must outlive its guards.
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
        held.iter_mut().for_each(Held::abandon_parent);
        assert!(weak.upgrade().is_some_and(|engine| engine.shard.try_lock().is_none()));
        drop(held);
        assert!(weak.upgrade().is_none());
    }
}
