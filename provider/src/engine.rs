//! The engine: one adapter, its link, and who moves packets between them.
//!
//! Whoever has the lock serves the adapter. A program that posts or polls does it on its own thread; a background thread
//! does it when the program does neither, because a peer's READ or WRITE must be served while its target sleeps. The thread
//! keeps out of the way of a program that polls: it does not wait on the sockets then, but looks every millisecond whether
//! the polling has stopped, and takes over when it has.

mod shard;

use std::{
    io,
    os::fd::{AsFd, BorrowedFd, OwnedFd},
    sync::{
        Arc, Mutex, MutexGuard, PoisonError, TryLockError,
        atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering},
    },
    thread::{self, JoinHandle},
    time::Duration,
};

use roce_transport::{adapter::Adapter, time::Instant};
use rustix::event::{EventfdFlags, PollFd, PollFlags, Timespec, epoll, eventfd, poll};

use crate::{
    clock,
    link::{Link, Observer},
};
pub use shard::LinkCounters;
pub(crate) use shard::{Shard, Wakers};

/// How often the background thread looks whether a program still polls.
const LOOK: Duration = Duration::from_millis(1);

/// How long the background thread goes on looking after the last packet before it sleeps.
const LINGER: Duration = Duration::from_micros(50);

/// After so many polls in vain a program's thread lets others run, if there are any.
const YIELD_AFTER: u32 = 64;

/// Who moves packets.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
pub enum Progress {
    /// The program's own calls, and a background thread when there are none.
    #[default]
    Automatic,
    /// Only [`Context::progress`](crate::Context::progress), and the calls that post and poll. For programs with an event
    /// loop of their own, and for tests.
    Manual,
}

/// See the [module's documentation](self).
pub(crate) struct Engine {
    shard: Mutex<Shard>,
    /// Readable when any of the link's descriptors is.
    sockets: OwnedFd,
    /// Ends a sleep of the background thread.
    wake: OwnedFd,
    /// Grows with every call of the program that served the adapter.
    activity: AtomicU64,
    /// Polls in a row that found nothing.
    idle_polls: AtomicU32,
    /// Threads of the program that wait on the sockets themselves.
    drivers: AtomicU32,
    /// Someone sleeps on a descriptor that only the background thread makes readable.
    handed_over: AtomicBool,
    /// Until when the background thread sleeps, in nanoseconds of the clock; 0 while it is awake or about to look.
    sleeps_until: AtomicU64,
    stop: AtomicBool,
    background: Mutex<Option<JoinHandle<()>>>,
}

impl Engine {
    /// An engine, and its background thread unless progress is manual. The thread ends when the engine is
    /// [stopped](Self::stop).
    pub(crate) fn start(
        adapter: Adapter,
        link: Box<dyn Link>,
        observer: Option<Box<dyn Observer>>,
        wakers: Wakers,
        progress: Progress,
    ) -> io::Result<Arc<Self>> {
        let sockets = epoll::create(epoll::CreateFlags::CLOEXEC)?;
        for descriptor in link.descriptors() {
            epoll::add(&sockets, descriptor, epoll::EventData::new_u64(0), epoll::EventFlags::IN)?;
        }
        let engine = Arc::new(Self {
            shard: Mutex::new(Shard::new(adapter, link, observer, wakers)),
            sockets,
            wake: eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)?,
            activity: AtomicU64::new(0),
            idle_polls: AtomicU32::new(0),
            drivers: AtomicU32::new(0),
            handed_over: AtomicBool::new(false),
            sleeps_until: AtomicU64::new(0),
            stop: AtomicBool::new(false),
            background: Mutex::new(None),
        });
        if progress == Progress::Automatic {
            let background = engine.clone();
            let thread = thread::Builder::new().name("roce".into()).spawn(move || background.run())?;
            *engine.background.lock().unwrap_or_else(PoisonError::into_inner) = Some(thread);
        }
        Ok(engine)
    }

    /// Sends what is still due and ends the background thread, so that the addresses are free afterwards.
    pub(crate) fn stop(&self) {
        self.lock().serve(clock::now());
        self.stop.store(true, Ordering::SeqCst);
        self.wake_background();
        let background = self.background.lock().unwrap_or_else(PoisonError::into_inner).take();
        if let Some(background) = background.filter(|thread| thread.thread().id() != thread::current().id()) {
            let _ = background.join(); // a panic there has been printed already
        }
    }

    /// The lock. A panic under it is a bug of ours; the state behind it is as good as it was.
    pub(crate) fn lock(&self) -> MutexGuard<'_, Shard> {
        self.shard.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Runs a command of the program and sends what follows from it.
    pub(crate) fn command<R>(&self, command: impl FnOnce(&mut Adapter, Instant) -> R) -> R {
        let mut shard = self.lock();
        let now = clock::now();
        let result = command(shard.adapter(), now);
        shard.transmit(now);
        self.after_service(&mut shard);
        result
    }

    /// Serves the adapter on the caller's thread, unless another thread is at it.
    pub(crate) fn progress(&self) {
        self.activity.fetch_add(1, Ordering::Relaxed);
        let mut shard = match self.shard.try_lock() {
            Ok(shard) => shard,
            Err(TryLockError::Poisoned(poisoned)) => poisoned.into_inner(),
            Err(TryLockError::WouldBlock) => return,
        };
        let received = shard.serve(clock::now());
        self.after_service(&mut shard);
        drop(shard);
        // A program that polls in vain may keep the peer's program from the processor.
        if received > 0 {
            self.idle_polls.store(0, Ordering::Relaxed);
        } else if self.idle_polls.fetch_add(1, Ordering::Relaxed) % YIELD_AFTER == YIELD_AFTER - 1 {
            thread::yield_now();
        }
    }

    /// Sees to it that the background thread does not oversleep a timer that was just set.
    fn after_service(&self, shard: &mut Shard) {
        let sleeps_until = self.sleeps_until.load(Ordering::SeqCst);
        if sleeps_until != 0 && shard.deadline().is_some_and(|deadline| deadline.as_nanos() < sleeps_until) {
            self.wake_background();
        }
    }

    /// Someone goes to sleep on a descriptor of ours: the background thread must make it readable.
    pub(crate) fn hand_over(&self) {
        if !self.handed_over.swap(true, Ordering::SeqCst) {
            self.wake_background();
        }
    }

    /// Sleeps on the caller's thread until `wanted` is readable, something arrives, a timer fires or `limit` has passed.
    pub(crate) fn drive(&self, wanted: BorrowedFd<'_>, limit: Option<Duration>) -> io::Result<()> {
        self.drivers.fetch_add(1, Ordering::SeqCst);
        let due = self.lock().deadline().map(|deadline| deadline.since(clock::now()));
        let timeout = [due, limit].into_iter().flatten().min();
        let result = wait(&[wanted, self.sockets.as_fd()], timeout);
        self.drivers.fetch_sub(1, Ordering::SeqCst);
        self.activity.fetch_add(1, Ordering::Relaxed);
        result
    }

    /// When it wants to be served although nothing has arrived.
    pub(crate) fn deadline(&self) -> Option<Instant> {
        self.lock().deadline()
    }

    /// Readable when something has arrived.
    pub(crate) fn sockets(&self) -> BorrowedFd<'_> {
        self.sockets.as_fd()
    }

    fn wake_background(&self) {
        let _ = rustix::io::write(&self.wake, &1u64.to_ne_bytes()); // full means that it is awake already
    }

    /// Serves as long as something keeps arriving, and a little longer: to sleep and to be woken takes longer than most packets
    /// are apart. Ends when the program serves by itself. Returns whether anything came.
    fn linger(&self, activity: u64) -> bool {
        let start = clock::now();
        let mut last = start;
        while self.activity.load(Ordering::Relaxed) == activity && !self.stop.load(Ordering::SeqCst) {
            let now = clock::now();
            if self.lock().serve(now) > 0 {
                last = now;
            } else if now.since(last) > LINGER {
                break;
            }
            thread::yield_now();
        }
        last != start
    }

    /// The background thread.
    fn run(&self) {
        let mut seen = self.activity.load(Ordering::Relaxed);
        while !self.stop.load(Ordering::SeqCst) {
            let _ = rustix::io::read(&self.wake, &mut [0; 8]);
            let activity = self.activity.load(Ordering::Relaxed);
            let program_serves = activity != seen;
            seen = activity;
            let drivers = self.drivers.load(Ordering::SeqCst) > 0;
            if program_serves && !drivers && !self.handed_over.load(Ordering::SeqCst) {
                let _ = wait(&[self.wake.as_fd()], Some(LOOK));
                continue;
            }
            let received = !drivers && self.linger(activity);
            let deadline = {
                let mut shard = self.lock();
                shard.serve_timers(clock::now());
                if !received && program_serves {
                    // it polls faster than this thread wakes: leave it to it until it hands over again
                    self.handed_over.store(false, Ordering::SeqCst);
                }
                let deadline = shard.deadline();
                self.sleeps_until.store(deadline.map_or(u64::MAX, Instant::as_nanos).max(1), Ordering::SeqCst);
                deadline
            };
            let timeout = deadline.map(|deadline| deadline.since(clock::now()));
            let result = if drivers {
                // A driver that leaves does not say so; this thread looks now and then.
                wait(&[self.wake.as_fd()], Some(timeout.map_or(LOOK * 10, |timeout| timeout.min(LOOK * 10))))
            } else {
                wait(&[self.wake.as_fd(), self.sockets.as_fd()], timeout)
            };
            self.sleeps_until.store(0, Ordering::SeqCst);
            if result.is_err() {
                thread::sleep(LOOK); // nothing that waiting can fail with goes away by asking again at once
            }
        }
    }
}

/// Waits until one of the descriptors is readable or the time is over.
pub(crate) fn wait(descriptors: &[BorrowedFd<'_>], timeout: Option<Duration>) -> io::Result<()> {
    let mut polled: Vec<PollFd<'_>> = descriptors.iter().map(|fd| PollFd::from_borrowed_fd(*fd, PollFlags::IN)).collect();
    let timeout = timeout.and_then(|timeout| Timespec::try_from(timeout).ok());
    match poll(&mut polled, timeout.as_ref()) {
        Ok(_) | Err(rustix::io::Errno::INTR) => Ok(()),
        Err(error) => Err(error.into()),
    }
}
