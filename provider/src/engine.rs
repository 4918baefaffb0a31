//! The engine: one adapter, its link, and who moves packets between them.
//!
//! Whoever has the lock serves the adapter. A program that posts or polls does it on its own
//! thread; a background thread does it when the program does neither, because a peer's READ or
//! WRITE must be served while its target sleeps. The thread keeps out of the way of a program that
//! polls: it does not wait on the sockets then, but looks every few milliseconds whether the
//! polling has stopped, and takes over when it has.

mod fork;
mod shard;
mod signals;
mod sink;

use std::{
    io,
    ops::{Deref, DerefMut},
    os::fd::{AsFd, BorrowedFd, OwnedFd},
    sync::{
        Arc, MutexGuard,
        atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering},
    },
    thread::{self, JoinHandle},
    time::Duration,
};

use roce_transport::{adapter::Adapter, time::Instant};
use rustix::event::{EventfdFlags, epoll, eventfd};

use crate::{
    clock,
    link::{Link, Observer},
    port::Watch,
    readiness::wait,
    region::Section,
    sync::Mutex,
};
#[cfg(test)]
pub(crate) use shard::LOST_AFTER;
pub(crate) use shard::Shard;
pub(crate) use sink::{CounterSink, EventSink, Sinks};

/// How often the background thread looks whether a program still polls.
const LOOK: Duration = Duration::from_millis(1);

/// After so many looks at a program that polls it looks less often: to be looked at costs the
/// program time.
const STEADY: u32 = 16;

/// How often then.
const LOOK_LESS: Duration = Duration::from_millis(4);

/// How long the background thread goes on looking after the last packet before it sleeps.
const LINGER: Duration = Duration::from_micros(50);

/// The longest time that it looks for packets without attending to anything else.
const LINGER_MOST: Duration = Duration::from_millis(10);

/// How often the counters are published at most.
const PUBLISH: Duration = Duration::from_secs(1);

/// After so many polls in vain a program's thread lets others run, if there are any.
const YIELD_AFTER: u64 = 64;

/// Who moves packets.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
pub enum Progress {
    /// The program's own calls, and a background thread when there are none.
    #[default]
    Automatic,
    /// Only [`Context::progress`](crate::Context::progress), and the calls that post and poll. For
    /// programs with an event loop of their own, and for tests.
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
    idle_polls: AtomicU64,
    /// Threads of the program that wait on the sockets themselves.
    drivers: AtomicU32,
    /// Someone sleeps on a descriptor that only the background thread makes readable.
    handed_over: AtomicBool,
    /// Until when the background thread sleeps, in nanoseconds of the clock; 0 while it is awake or
    /// about to look.
    sleeps_until: AtomicU64,
    stop: AtomicBool,
    background: Mutex<Option<JoinHandle<()>>>,
    /// Tells when the interface changes.
    watch: Option<Watch>,
    /// Shows the counters to other processes.
    publisher: Mutex<Option<Box<dyn CounterSink>>>,
    progress: Progress,
    /// The process that it works in; a child's copy does nothing.
    process: u32,
}

/// What an engine serves.
pub(crate) struct Parts {
    pub(crate) adapter: Adapter,
    pub(crate) link: Box<dyn Link>,
    pub(crate) observer: Option<Box<dyn Observer>>,
    pub(crate) sinks: Sinks,
    pub(crate) watch: Option<Watch>,
    pub(crate) publisher: Option<Box<dyn CounterSink>>,
}

/// The shard, locked.
pub(crate) struct Locked<'a> {
    shard: MutexGuard<'a, Shard>,
    /// Whatever is copied under the lock is copied in one section.
    _section: Section,
}

impl Deref for Locked<'_> {
    type Target = Shard;

    fn deref(&self) -> &Shard {
        &self.shard
    }
}

impl DerefMut for Locked<'_> {
    fn deref_mut(&mut self) -> &mut Shard {
        &mut self.shard
    }
}

impl Engine {
    /// An engine, and its background thread unless progress is manual. The thread ends when the
    /// engine is [stopped](Self::stop).
    pub(crate) fn start(parts: Parts, progress: Progress) -> io::Result<Arc<Self>> {
        let Parts { adapter, link, observer, sinks, watch, publisher } = parts;
        let sockets = epoll::create(epoll::CreateFlags::CLOEXEC)?;
        add_descriptors(&sockets, &*link)?;
        if let Some(watch) = watch.as_ref().filter(|_| progress == Progress::Manual) {
            epoll::add(&sockets, watch, epoll::EventData::new_u64(0), epoll::EventFlags::IN)?;
        }
        let mut shard = Shard::new(adapter, link, observer, sinks);
        if progress == Progress::Manual {
            shard.park(); // the program may sleep at any time, and says nothing of it
        }
        shard.publication = publisher.as_ref().map(|_| clock::now().plus(PUBLISH));
        let engine = Arc::new(Self {
            shard: Mutex::new(shard),
            watch,
            publisher: Mutex::new(publisher),
            progress,
            sockets,
            wake: eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)?,
            activity: AtomicU64::new(0),
            idle_polls: AtomicU64::new(0),
            drivers: AtomicU32::new(0),
            handed_over: AtomicBool::new(false),
            sleeps_until: AtomicU64::new(0),
            stop: AtomicBool::new(false),
            background: Mutex::new(None),
            process: std::process::id(),
        });
        fork::watch(&engine);
        engine.follow(); // what has changed since the device was looked at
        if progress == Progress::Automatic {
            let background = engine.clone();
            let thread = signals::blocked(|| {
                thread::Builder::new().name("roce".into()).spawn(move || background.run())
            })?;
            *engine.background.lock() = Some(thread);
        }
        Ok(engine)
    }

    /// Sends what is still due and ends the background thread, so that the addresses are free
    /// afterwards.
    pub(crate) fn stop(&self) {
        self.lock().serve(clock::now());
        self.stop.store(true, Ordering::SeqCst);
        self.wake_background();
        let background = self.background.lock().take();
        if let Some(background) =
            background.filter(|thread| thread.thread().id() != thread::current().id())
        {
            let _ = background.join(); // a panic there has been printed already
        }
        *self.publisher.lock() = None;
    }

    /// Whether it works: after a fork, the child has only a copy that does nothing.
    pub(crate) fn is_of_this_process(&self) -> bool {
        self.process == std::process::id()
    }

    /// The network interface that the device uses; 0: none.
    pub(crate) fn interface(&self) -> u32 {
        self.watch.as_ref().map_or(0, Watch::interface)
    }

    /// Brings the port in line with its interface.
    fn follow(&self) {
        let Some(watch) = &self.watch else { return };
        let state = watch.state();
        let mut shard = self.lock();
        if shard.follow(&state, watch)
            && let Err(error) = add_descriptors(&self.sockets, shard.link())
        {
            shard.link_counters.bind_errors += 1;
            shard.link_counters.last_bind_error = Some(error.to_string());
        }
        shard.transmit(clock::now());
    }

    /// What has time: following the interface, publishing the counters.
    fn attend(&self) {
        if self.watch.as_ref().is_some_and(Watch::has_news) {
            self.follow();
        }
        let mut publisher = self.publisher.lock();
        let Some(publisher) = &mut *publisher else { return };
        let (counters, link_counters, gids) = {
            let mut shard = self.lock();
            let now = clock::now();
            if shard.publish_at().is_none_or(|due| now < due) {
                return;
            }
            (shard.counted, shard.told, shard.publication) =
                (false, false, Some(now.plus(PUBLISH)));
            let gids = shard.adapter().gids().entries().iter().map(ToString::to_string).collect();
            (shard.adapter().counters().clone(), shard.link_counters(), gids)
        };
        publisher.publish(&counters, &link_counters, gids);
    }

    /// The lock.
    pub(crate) fn lock(&self) -> Locked<'_> {
        Locked { shard: self.shard.lock(), _section: Section::enter() }
    }

    /// Runs a command of the program and sends what follows from it.
    pub(crate) fn command<R>(&self, command: impl FnOnce(&mut Adapter, Instant) -> R) -> R {
        self.command_shard(|shard, now| command(shard.adapter(), now))
    }

    /// The same for a command that needs more than the adapter.
    pub(crate) fn command_shard<R>(&self, command: impl FnOnce(&mut Shard, Instant) -> R) -> R {
        let mut shard = self.lock();
        let now = clock::now();
        let result = command(&mut shard, now);
        shard.transmit(now);
        self.after_service(&mut shard);
        result
    }

    /// Posts where to put what comes. Nothing is sent for that; but completions may be due at once.
    pub(crate) fn post_recv<R>(&self, post: impl FnOnce(&mut Adapter, Instant) -> R) -> R {
        let mut shard = self.lock();
        let now = clock::now();
        let result = post(shard.adapter(), now);
        if shard.adapter().has_events() {
            shard.transmit(now);
        }
        self.after_service(&mut shard);
        result
    }

    /// Serves the adapter on the caller's thread, unless another thread is at it.
    pub(crate) fn progress(&self) {
        grow(&self.activity);
        let Some(shard) = self.shard.try_lock() else { return };
        let mut shard = Locked { shard, _section: Section::enter() };
        let received = shard.serve(clock::now());
        self.after_service(&mut shard);
        drop(shard);
        if self.progress == Progress::Manual {
            self.attend();
        }
        // A program that polls in vain may keep the peer's program from the processor.
        if received > 0 {
            self.idle_polls.store(0, Ordering::Relaxed);
        } else if grow(&self.idle_polls).is_multiple_of(YIELD_AFTER) {
            thread::yield_now();
        }
    }

    /// Sees to it that the background thread does not oversleep a timer that was just set.
    fn after_service(&self, shard: &mut Shard) {
        let sleeps_until = self.sleeps_until.load(Ordering::SeqCst);
        if sleeps_until == 0 {
            return;
        }
        let has_to_publish = !shard.told && shard.publish_at().is_some();
        if has_to_publish
            || shard.deadline().is_some_and(|deadline| deadline.as_nanos() < sleeps_until)
        {
            shard.told |= has_to_publish;
            self.wake_background();
        }
    }

    /// Someone goes to sleep on a descriptor of ours: the background thread must make it readable.
    pub(crate) fn hand_over(&self) {
        if !self.handed_over.swap(true, Ordering::SeqCst) {
            self.wake_background();
        }
    }

    /// Sleeps on the caller's thread until `wanted` is readable, something arrives, a timer fires
    /// or `limit` has passed.
    pub(crate) fn drive(&self, wanted: BorrowedFd<'_>, limit: Option<Duration>) -> io::Result<()> {
        self.drivers.fetch_add(1, Ordering::SeqCst);
        let (due, quiet) = {
            let mut shard = self.lock();
            (shard.deadline().map(|deadline| deadline.since(clock::now())), shard.park())
        };
        let timeout = [due, limit].into_iter().flatten().min();
        let result = if quiet { wait(&[wanted, self.sockets.as_fd()], timeout) } else { Ok(()) };
        self.lock().unpark();
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

    /// Serves as long as something keeps arriving, and a little longer: to sleep and to be woken
    /// takes longer than most packets are apart. Ends when the program serves by itself. Returns
    /// whether anything came.
    fn linger(&self, activity: u64) -> bool {
        let start = clock::now();
        let mut last = start;
        while self.activity.load(Ordering::Relaxed) == activity && !self.stop.load(Ordering::SeqCst)
        {
            let now = clock::now();
            if self.lock().serve(now) > 0 {
                last = now;
            } else if now.since(last) > LINGER {
                break;
            }
            if now.since(start) > LINGER_MOST {
                break;
            }
            thread::yield_now();
        }
        last != start
    }

    /// Sleeps until someone wakes the background thread, the interface changes, something arrives
    /// (if that matters) or the time is over.
    fn sleep(&self, for_packets: bool, timeout: Option<Duration>) -> io::Result<()> {
        let sockets = for_packets.then(|| self.sockets.as_fd());
        let descriptors = [Some(self.wake.as_fd()), self.watch.as_ref().map(AsFd::as_fd), sockets];
        wait(&descriptors.into_iter().flatten().collect::<Vec<_>>(), timeout)
    }

    /// The background thread.
    fn run(&self) {
        let mut seen = self.activity.load(Ordering::Relaxed);
        let mut looks = 0;
        loop {
            let _ = rustix::io::read(&self.wake, &mut [0; 8]);
            // looked at behind the wake-up: whoever stops the engine sets it before, and wakes once
            if self.stop.load(Ordering::SeqCst) {
                return;
            }
            let activity = self.activity.load(Ordering::Relaxed);
            let program_serves = activity != seen;
            seen = activity;
            let drivers = self.drivers.load(Ordering::SeqCst) > 0;
            self.attend();
            if program_serves && !drivers && !self.handed_over.load(Ordering::SeqCst) {
                looks += 1;
                let _ = self.sleep(false, Some(if looks > STEADY { LOOK_LESS } else { LOOK }));
                continue;
            }
            looks = 0;
            let received = !drivers && self.linger(activity);
            let (deadline, for_packets, quiet) = {
                let mut shard = self.lock();
                shard.serve_timers(clock::now());
                if !received && program_serves {
                    // it polls faster than this thread wakes: leave it to it until it hands over
                    // again
                    self.handed_over.store(false, Ordering::SeqCst);
                }
                let publish_at = shard.publish_at();
                shard.told = publish_at.is_some();
                let deadline = [shard.deadline(), publish_at].into_iter().flatten().min();
                self.sleeps_until
                    .store(deadline.map_or(u64::MAX, Instant::as_nanos).max(1), Ordering::SeqCst);
                let for_packets = !drivers && !shard.is_lost();
                (deadline, for_packets, !for_packets || shard.park())
            };
            let timeout = deadline.map(|deadline| deadline.since(clock::now()));
            let result = if drivers {
                // A driver that leaves does not say so; this thread looks now and then.
                self.sleep(false, Some(timeout.map_or(LOOK * 10, |timeout| timeout.min(LOOK * 10))))
            } else if quiet {
                self.sleep(for_packets, timeout)
            } else {
                Ok(())
            };
            if for_packets {
                self.lock().unpark();
            }
            self.sleeps_until.store(0, Ordering::SeqCst);
            if result.is_err() {
                thread::sleep(LOOK); // nothing that waiting can fail with goes away by asking again at once
            }
        }
    }
}

/// Counts one more, and returns how many. Threads that do so at the same moment may count as one,
/// which costs less than to count each.
fn grow(count: &AtomicU64) -> u64 {
    let grown = count.load(Ordering::Relaxed).wrapping_add(1);
    count.store(grown, Ordering::Relaxed);
    grown
}

/// Has `sockets` tell of everything that the link waits on.
fn add_descriptors(sockets: &OwnedFd, link: &dyn Link) -> io::Result<()> {
    for descriptor in link.descriptors() {
        match epoll::add(sockets, descriptor, epoll::EventData::new_u64(0), epoll::EventFlags::IN) {
            Ok(()) | Err(rustix::io::Errno::EXIST) => {}
            Err(error) => return Err(error.into()),
        }
    }
    Ok(())
}
