//! Sleeping and waking in virtual time.

use std::{
    collections::VecDeque,
    io,
    sync::{
        Arc, Mutex,
        atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering::Relaxed},
    },
    time::Duration,
};

use super::{
    machine::{self, spend},
    serve::Engine,
    verbs::{Queue, USES},
};

/// Idle checks of an event loop, as in the provider's file.
pub(super) const IDLE_LOOKS: u32 = 64;

/// Turns of a spinning loop, as in the provider's file.
pub(super) const PAUSE: u32 = 256;

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Packet {
    pub(super) queue: usize,
    pub(super) content: Content,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Content {
    Send(u64),
    Write(u64),
    /// Of this many requests.
    Acknowledgement(usize),
}

/// Socket, readable while it holds packets.
#[derive(Default)]
pub(super) struct Socket(Mutex<VecDeque<Packet>>);

impl Socket {
    pub(super) fn is_readable(&self) -> bool {
        !self.0.lock().unwrap().is_empty()
    }

    pub(super) fn push(&self, packets: Vec<Packet>) {
        self.0.lock().unwrap().extend(packets);
    }

    pub(super) fn pop(&self) -> Option<Packet> {
        self.0.lock().unwrap().pop_front()
    }
}

/// Descriptors of an engine.
#[derive(Default)]
pub(super) struct System {
    pub(super) socket: Arc<Socket>,
    is_woken: AtomicBool,
    timer_is_over: AtomicBool,
    /// Times that the timer was set.
    timers: AtomicU64,
    /// The first channel's descriptor has the sockets.
    is_joined: AtomicBool,
    /// The first channel's queue is not armed: arrivals do not wake the program.
    pub(super) is_muted: AtomicBool,
    /// Events taken without waiting.
    pub(super) uses: AtomicU32,
}

pub(super) type Wanted<'a> = &'a Arc<Queue>;

impl System {
    pub(super) fn new(socket: Arc<Socket>) -> Self {
        Self { socket, ..Self::default() }
    }

    /// True if packets have made the first channel readable.
    pub(super) fn wakes_loop(&self) -> bool {
        self.is_joined.load(Relaxed) && !self.is_muted.load(Relaxed) && self.socket.is_readable()
    }
}

impl Engine {
    pub(super) fn sleep(&self, for_packets: bool, timeout: Option<Duration>) -> io::Result<()> {
        let system = self.system.clone();
        machine::sleep(timeout, move || {
            system.is_woken.load(Relaxed)
                || system.timer_is_over.load(Relaxed)
                || for_packets && system.socket.is_readable()
        });
        Ok(())
    }

    pub(super) fn sleep_on_sockets(
        &self,
        wanted: Wanted<'_>,
        timeout: Option<Duration>,
    ) -> io::Result<()> {
        let (system, wanted) = (self.system.clone(), wanted.clone());
        machine::sleep(timeout, move || wanted.has_event() || system.socket.is_readable());
        Ok(())
    }

    pub(super) fn join_loop(&self) -> bool {
        spend(|costs| costs.call);
        let is_awaited =
            self.queues[0].is_armed.load(Relaxed) && self.system.uses.load(Relaxed) >= USES;
        self.system.is_joined.store(is_awaited, Relaxed);
        machine::note("joins its event loop", u64::from(is_awaited));
        is_awaited
    }

    pub(super) fn detach_loop(&self) {
        spend(|costs| costs.call);
        self.system.is_joined.store(false, Relaxed);
        machine::note("ends the event loop", 0);
    }

    pub(super) fn are_sockets_readable(&self) -> bool {
        spend(|costs| costs.call);
        self.system.socket.is_readable()
    }

    pub(super) fn wake_background(&self) {
        spend(|costs| costs.call);
        self.system.is_woken.store(true, Relaxed);
    }

    pub(super) fn clear_wakeup(&self) {
        spend(|costs| 2 * costs.call);
        self.system.is_woken.store(false, Relaxed);
        self.system.timer_is_over.store(false, Relaxed);
    }

    pub(super) fn set_timer(&self, after: Duration) {
        spend(|costs| costs.timer);
        let (system, number) = (self.system.clone(), self.system.timers.fetch_add(1, Relaxed) + 1);
        machine::after(after.as_nanos() as u64, move || {
            if system.timers.load(Relaxed) == number {
                system.timer_is_over.store(true, Relaxed);
            }
        });
    }

    pub(super) fn sleep_beside_timer(&self, time: Duration) {
        let system = self.system.clone();
        machine::sleep(Some(time), move || system.timer_is_over.load(Relaxed));
    }
}
