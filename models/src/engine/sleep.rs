//! Sleeping and waking.

use std::{cell::Cell, io, sync::Arc, time::Duration};

use loom::sync::{Condvar, Mutex};

use super::{processor::thread, serve::Engine};
use crate::clock;

/// A longer sleep is ended by another thread only.
const LONG: Duration = Duration::from_secs(1);

/// More checks would show nothing more.
pub(super) const IDLE_LOOKS: u32 = 0;

/// Takes no time.
pub(super) const PAUSE: u32 = 0;

/// A step to leave out.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum Omission {
    /// Unchanged code.
    #[default]
    None,
    /// Waking the background thread.
    Wakeup,
    /// Parking before a sleep.
    Park,
    /// Checking for arrivals after parking.
    Look,
}

thread_local! {
    // loom runs a model's threads on the test's thread
    static OMISSION: Cell<Omission> = const { Cell::new(Omission::None) };
}

/// Runs a test without one step.
pub fn without(omission: Omission, test: impl FnOnce()) {
    OMISSION.set(omission);
    test();
    OMISSION.set(Omission::None);
}

pub(super) fn omits(omission: Omission) -> bool {
    OMISSION.get() == omission
}

#[derive(Debug, Default)]
struct Readable {
    wakeup: bool,
    timer: bool,
    sockets: bool,
    /// A program's event loop waits on the sockets.
    joined: bool,
    /// Per program thread.
    wanted: [bool; 2],
}

#[derive(Clone, Debug, Default)]
pub(super) struct System(Arc<(Mutex<Readable>, Condvar)>);

pub(super) type Wanted<'a> = &'a usize;

impl System {
    fn change(&self, change: impl FnOnce(&mut Readable)) {
        change(&mut self.0.0.lock().unwrap());
        self.0.1.notify_all();
    }

    fn wait(&self, is_over: impl Fn(&Readable) -> bool) {
        let mut readable = self.0.0.lock().unwrap();
        while !is_over(&readable) {
            readable = self.0.1.wait(readable).unwrap();
        }
    }

    pub(super) fn ring_wakeup(&self) {
        self.change(|readable| readable.sockets = true);
    }

    pub(super) fn take_ring_wakeup(&self) {
        self.0.0.lock().unwrap().sockets = false;
    }

    pub(super) fn give(&self, number: usize) {
        self.change(|readable| readable.wanted[number] = true);
    }

    /// The program's own sleep.
    pub(super) fn wait_for(&self, number: usize) {
        self.wait(|readable| readable.wanted[number]);
    }

    /// In an event loop, an arrival ends the sleep, too.
    pub(super) fn wait_in_loop(&self, number: usize) {
        self.wait(|readable| readable.wanted[number] || readable.joined && readable.sockets);
    }

    pub(super) fn has(&self, number: usize) -> bool {
        self.0.0.lock().unwrap().wanted[number]
    }
}

impl Engine {
    pub(super) fn sleep(&self, for_packets: bool, timeout: Option<Duration>) -> io::Result<()> {
        self.sleep_until(timeout, |readable| {
            readable.wakeup || readable.timer || for_packets && readable.sockets
        });
        Ok(())
    }

    pub(super) fn sleep_on_sockets(
        &self,
        wanted: Wanted<'_>,
        timeout: Option<Duration>,
    ) -> io::Result<()> {
        self.sleep_until(timeout, |readable| readable.wanted[*wanted] || readable.sockets);
        Ok(())
    }

    fn sleep_until(&self, timeout: Option<Duration>, is_over: impl Fn(&Readable) -> bool) {
        match timeout {
            Some(short) if short < LONG => {
                thread::yield_now();
                clock::pass(short);
            }
            _ => self.system.wait(is_over),
        }
    }

    pub(super) fn join_loop(&self) -> bool {
        self.system.change(|readable| readable.joined = true);
        true
    }

    pub(super) fn detach_loop(&self) {
        self.system.change(|readable| readable.joined = false);
    }

    pub(super) fn are_sockets_readable(&self) -> bool {
        self.system.0.0.lock().unwrap().sockets
    }

    pub(super) fn wake_background(&self) {
        if !omits(Omission::Wakeup) {
            self.system.change(|readable| readable.wakeup = true);
        }
    }

    pub(super) fn clear_wakeup(&self) {
        let mut readable = self.system.0.0.lock().unwrap();
        (readable.wakeup, readable.timer) = (false, false);
    }

    /// It may expire before the next check.
    pub(super) fn set_timer(&self, _after: Duration) {
        self.system.change(|readable| readable.timer = true);
    }

    pub(super) fn sleep_beside_timer(&self, time: Duration) {
        thread::sleep(time);
    }
}
