//! State of completion queues and channels, which refer to each other.

use std::{
    io,
    os::fd::BorrowedFd,
    sync::{
        Arc, Weak,
        atomic::{AtomicBool, AtomicU64, Ordering},
    },
    time::Duration,
};

use roce_transport::{
    adapter::{Adapter, ObjectError},
    work,
};

use super::{
    context::Context,
    event_loop::ChannelLoop,
    shards::{HomeShard, SharedShardSet, Sleep},
    sink::ObjectEvents,
};
use crate::{
    engine::{Engine, LoopDescriptor},
    notify::Notifier,
};

pub(super) struct CqInner {
    pub(super) context: Context,
    pub(super) ring: Arc<work::CompletionQueue>,
    pub(super) place: HomeShard,
    channel: Option<Arc<ChannelInner>>,
    /// An event was taken, and the queue not found empty since.
    taken: AtomicBool,
    /// The queue was armed in an event loop, and not found empty since.
    armed: AtomicBool,
}

impl CqInner {
    pub(super) fn new(
        context: &Context,
        capacity: usize,
        channel: Option<Arc<ChannelInner>>,
    ) -> Result<Arc<Self>, ObjectError> {
        let engine = &context.inner.engine;
        let fits = engine.lock().adapter().fits_cq(capacity);
        context.explained("ibv_create_cq", fits)?;
        let room = work::CqRoom::new(capacity); // without the lock: may take long
        let adopt = |adapter: &mut Adapter, ring: &Arc<_>| adapter.adopt_cq(ring);
        let made = context.inner.shards.make(|adapter| adapter.create_cq_in(room), adopt);
        let ring = context.explained("ibv_create_cq", made)?;
        let shard_set = channel.as_ref().map(|channel| channel.shard_set.clone());
        let (context, place) = (context.clone(), HomeShard::unplaced(shard_set));
        let [taken, armed] = [(); 2].map(|()| AtomicBool::new(false));
        let inner = Arc::new(Self { context, ring, place, channel, taken, armed });
        if let Some(channel) = &inner.channel {
            for engine in inner.context.inner.shards.engines() {
                let (channel, cq) = (channel.clone(), Arc::downgrade(&inner));
                let wake = move || channel.push(cq.clone());
                engine.lock().sink::<ObjectEvents>().insert_cq(inner.ring.id(), wake);
            }
        }
        Ok(inner)
    }

    #[inline]
    pub(super) fn engine(&self) -> &Arc<Engine> {
        self.context.inner.shards.engine(self.place.shard())
    }

    pub(super) fn wake(self: &Arc<Self>) {
        if let Some(channel) = &self.channel {
            channel.push(Arc::downgrade(self));
        }
    }

    /// Serves for an empty queue on this thread, unless the program has events left to take: the
    /// last poll serves for all. The first poll after arming in an event loop only looks for
    /// earlier completions; later arrivals wake the program.
    #[inline]
    pub(super) fn serve_empty(&self) {
        if self.taken.load(Ordering::Relaxed) {
            self.taken.store(false, Ordering::Relaxed);
            if self.context.inner.engine.has_untaken() {
                return;
            }
        }
        let engine = self.engine();
        if self.armed.load(Ordering::Relaxed) {
            self.armed.store(false, Ordering::Relaxed);
            if engine.is_in_loop() {
                return engine.uncork_requests();
            }
        }
        engine.progress();
    }

    /// Flushes corked packets before the program sleeps; hands over service if it sleeps on the
    /// descriptor.
    pub(super) fn is_armed(self: &Arc<Self>) {
        let engine = self.engine();
        let channel = self.channel.as_ref();
        if channel.is_some_and(|channel| channel.serves(engine)) {
            return; // the program serves instead of sleeping
        }
        let exposed = channel.filter(|channel| channel.exposed.load(Ordering::Relaxed));
        if exposed.is_some_and(|channel| channel.sleeps_in_loop(self)) {
            self.armed.store(true, Ordering::Relaxed);
            return; // the program polls again, and may respond
        }
        engine.uncork();
        if exposed.is_some() {
            engine.hand_over();
        }
    }
}

impl Drop for CqInner {
    fn drop(&mut self) {
        let shards = &self.context.inner.shards;
        {
            let _held = shards.hold();
            for engine in shards.engines() {
                let mut shard = engine.lock();
                shard.sink::<ObjectEvents>().remove_cq(self.ring.id());
                // never in use: queue pairs keep it alive
                let _ = shard.adapter().destroy_cq(self.ring.id());
            }
        }
        // A leftover event would keep the descriptor readable.
        if let Some(channel) = &self.channel {
            let gone = channel.notifier.retain(|cq| cq.strong_count() > 0);
            channel.context.inner.engine.remove_events(gone);
            if let Some(event_loop) = &channel.event_loop {
                event_loop.forget(self.ring.id(), &self.context.inner.engine);
            }
        }
    }
}

pub(super) struct ChannelInner {
    pub(super) context: Context,
    pub(super) notifier: Notifier<Weak<CqInner>>,
    pub(super) shard_set: Arc<SharedShardSet>,
    pub(super) event_loop: Option<Arc<ChannelLoop<CqInner>>>,
    /// The program has taken the descriptor.
    exposed: AtomicBool,
    /// Sleep of a thread on the descriptor, while others serve.
    sleep: Sleep,
    /// [`Engine::background_finds`] when the latest wait served until its event, else `u64::MAX`.
    /// While equal, an arming program is expected to serve while it waits again.
    served: AtomicU64,
}

impl ChannelInner {
    pub(super) fn new(context: &Context) -> io::Result<Self> {
        let (context, notifier) = (context.clone(), Notifier::new()?);
        let make = || ChannelLoop::new(notifier.descriptor());
        // packets of one shard cannot wake for all
        let event_loop = match context.inner.shards.are_several() {
            false => context.inner.engine.make_loop_descriptor(make)?,
            true => None,
        };
        let (exposed, sleep) = (AtomicBool::new(false), Sleep::new());
        let (shard_set, served) = (Arc::new(SharedShardSet::new()), AtomicU64::new(u64::MAX));
        Ok(Self { context, notifier, shard_set, event_loop, exposed, sleep, served })
    }

    pub(super) fn descriptor(&self) -> BorrowedFd<'_> {
        self.event_loop.as_ref().map_or(self.notifier.descriptor(), |it| it.epoll())
    }

    fn push(&self, cq: Weak<CqInner>) {
        self.add(cq);
        self.context.inner.engine.record_event();
    }

    fn add(&self, cq: Weak<CqInner>) {
        if self.notifier.push(cq) {
            self.context.inner.engine.add_event();
        }
    }

    /// Skips events of destroyed queues.
    pub(super) fn take(&self) -> Option<Arc<CqInner>> {
        loop {
            let taken = self.taken(&self.notifier.pop()?);
            if taken.is_some() {
                return taken;
            }
        }
    }

    /// `None` if the queue is destroyed.
    fn taken(&self, cq: &Weak<CqInner>) -> Option<Arc<CqInner>> {
        let engine = &self.context.inner.engine;
        engine.take_event();
        let cq = cq.upgrade()?;
        cq.taken.store(true, Ordering::Relaxed);
        self.end_sleep();
        if let Some(event_loop) = &self.event_loop {
            engine.record_taken();
            event_loop.mute_unless_armed(engine);
        }
        Some(cq)
    }

    /// True while waiting threads serve this engine.
    fn serves(&self, engine: &Engine) -> bool {
        self.context.inner.shards.only(self.shard_set.now()).is_some()
            && self.served.load(Ordering::Relaxed) == engine.background_finds()
    }

    pub(super) fn progress(&self) {
        let shards = &self.context.inner.shards;
        shards.engines_of(self.shard_set.now()).for_each(|engine| _ = engine.progress());
    }

    /// Arms in the event loop; true if packets wake the program.
    fn sleeps_in_loop(&self, cq: &Arc<CqInner>) -> bool {
        if let Some(event_loop) = &self.event_loop {
            event_loop.record_armed(&cq.ring, cq, &self.context.inner.engine);
        }
        self.context.inner.engine.enter_loop()
    }

    pub(super) fn serve(&self) -> Option<Arc<CqInner>> {
        let event_loop = self.event_loop.as_ref()?;
        let engine = &self.context.inner.engine;
        event_loop.count_use(|| true);
        let was_guessed = event_loop.take_guess();
        let serve = || engine.serve_in_loop(was_guessed, || !self.notifier.is_empty());
        let (is_woken, event) = self.notifier.pop_made(serve);
        if let Some(event) = event {
            return self.taken(&event).or_else(|| self.take());
        }
        if is_woken {
            engine.count_empty_wakeup();
        }
        if let Some(cq) = event_loop.disarm_one(is_woken, was_guessed) {
            engine.add_event();
            return self.taken(&cq).or_else(|| self.take());
        }
        drop(engine.lock()); // another holder may complete into a queue
        let taken = self.take();
        if taken.is_none() {
            event_loop.record_none();
        }
        taken
    }

    pub(super) fn prepare_to_wait(&self, limit: Option<Duration>) -> io::Result<bool> {
        self.end_sleep();
        let is_there = || !self.notifier.is_empty();
        let (shards, shard_set) = (&self.context.inner.shards, self.shard_set.now());
        let found = match shards.only(shard_set) {
            Some(engine) => {
                let found = engine.serve_until(self.notifier.descriptor(), limit, is_there)?;
                if found {
                    self.served.store(engine.background_finds(), Ordering::Relaxed);
                }
                found
            }
            None => is_there(),
        };
        if !found && self.sleep.begin(shard_set) {
            shards.engines_of(shard_set).for_each(|engine| engine.begin_sleep());
        }
        Ok(found)
    }

    fn end_sleep(&self) {
        if let Some(shard_set) = self.sleep.end() {
            self.context.inner.shards.engines_of(shard_set).for_each(|engine| engine.end_sleep());
        }
    }

    pub(super) fn expose(&self) {
        if !self.exposed.swap(true, Ordering::Relaxed) {
            let shards = &self.context.inner.shards;
            shards.engines_of(self.shard_set.now()).for_each(|engine| engine.hand_over());
        }
    }
}

impl Drop for ChannelInner {
    fn drop(&mut self) {
        if self.event_loop.is_some() {
            self.context.inner.engine.leave_loop();
        }
        self.end_sleep(); // after a cancelled thread
        self.context.inner.engine.remove_events(self.notifier.retain(|_| false));
    }
}

#[cfg(test)]
mod tests {
    use std::{os::fd::AsFd, sync::Arc, thread, time::Duration};

    use roce_transport::work::NotifyKind;
    use rustix::event::{PollFd, PollFlags, Timespec, poll};

    use crate::{Device, OpenOptions, clock, verbs::event_loop::USES};

    #[test]
    fn the_event_of_a_queue_goes_with_it() {
        let context = Device::named("roce_lo").unwrap().open(OpenOptions::default()).unwrap();
        let channel = context.create_channel().unwrap();
        let [cq, other] = [(); 2].map(|()| context.create_cq(16, Some(&channel)).unwrap());
        let is_readable = || {
            let mut wanted = [PollFd::new(&channel, PollFlags::IN)];
            poll(&mut wanted, Some(&Timespec::default())).unwrap() == 1
        };
        for cq in [&cq, &other, &cq] {
            channel.inner.add(Arc::downgrade(&cq.inner));
        }
        drop(cq);
        assert!(is_readable());
        assert!(channel.poll().is_some(), "that of the other queue");
        assert!(!is_readable());
        channel.inner.add(Arc::downgrade(&other.inner));
        assert!(is_readable());
        drop(other);
        assert!(!is_readable());
    }

    #[test]
    fn a_program_in_an_event_loop_is_woken_by_what_arrives() {
        let context = Device::named("roce_lo").unwrap().open(OpenOptions::default()).unwrap();
        let channels = [(); 2].map(|()| context.create_channel().unwrap());
        let cqs = [0, 1].map(|index| context.create_cq(16, Some(&channels[index])).unwrap());
        let engine = &context.inner.engine;
        let enters = |index: usize| {
            cqs[index].req_notify(NotifyKind::Next);
            engine.is_in_loop()
        };
        let leaves = || {
            let start = clock::now();
            while engine.is_in_loop() || !engine.is_handed_over() {
                assert!(clock::now().since(start) < Duration::from_secs(60));
                thread::yield_now();
            }
        };
        assert!(!enters(0), "nobody has the descriptor");
        channels.iter().for_each(|channel| _ = channel.as_fd());
        (0..USES).for_each(|_| channels[0].count_use(|| false));
        assert!(!enters(0) && engine.is_handed_over(), "it may wait for an event");
        (0..USES).for_each(|_| channels[1].count_use(|| true));
        assert!(!enters(1), "the first channel wakes for all");
        (1..USES).for_each(|_| channels[0].count_use(|| true));
        assert!(!enters(0), "it has not yet done so often");
        channels[0].count_use(|| true);
        assert!(enters(1) && !engine.is_handed_over());
        leaves();

        engine.begin_sleep();
        assert!(!enters(0), "a thread sleeps that only others wake");
        engine.end_sleep();
        assert!(enters(0));
        let [first, second] = channels;
        drop((first, cqs));
        assert!(!engine.is_in_loop() && engine.is_handed_over());
        let third = context.create_channel().unwrap();
        assert_eq!(
            (second.inner.event_loop.is_none(), third.inner.event_loop.is_some()),
            (true, true)
        );
    }

    #[test]
    fn an_empty_queue_is_not_served_for_while_there_are_events_to_take() {
        let context = Device::named("roce_lo").unwrap().open(OpenOptions::default()).unwrap();
        let channels = [(); 2].map(|()| context.create_channel().unwrap());
        let cqs = [0, 1].map(|index| context.create_cq(16, Some(&channels[index])).unwrap());
        let engine = &context.inner.engine;
        let serves = |index: usize| {
            let before = engine.activity();
            assert!(cqs[index].poll_one().is_none());
            engine.activity() != before
        };
        let add = |index: usize| channels[index].inner.add(Arc::downgrade(&cqs[index].inner));
        assert!(serves(0) && serves(1));
        (0..2).for_each(add);
        assert!(serves(0) && serves(1), "it takes none");
        assert!(channels[0].poll().is_some());
        assert!(!serves(0), "there is that of the other queue");
        assert!(serves(0), "once for each event");
        assert!(channels[1].poll().is_some());
        assert!(serves(1), "it was the last");
        // events that go with their queue or channel do not count
        let [first, second] = channels;
        let add_to_both = || {
            first.inner.add(Arc::downgrade(&cqs[0].inner));
            second.inner.add(std::sync::Weak::new());
        };
        add_to_both();
        assert!(!engine.has_untaken(), "it takes none");
        add_to_both();
        assert!(first.poll().is_some());
        assert!(engine.has_untaken());
        drop(second);
        assert!(engine.has_untaken());
        drop(cqs);
        assert!(!engine.has_untaken());
        first.inner.add(std::sync::Weak::new());
        assert!(engine.has_untaken());
        drop(first);
        assert!(!engine.has_untaken());
    }

    #[test]
    fn who_serves_while_it_waits_does_not_hand_over() {
        let context = Device::named("roce_lo").unwrap().open(OpenOptions::default()).unwrap();
        let channel = context.create_channel().unwrap();
        let cq = context.create_cq(16, Some(&channel)).unwrap();
        let engine = &context.inner.engine;
        let hands_over = || {
            let _held = engine.lock(); // the background thread takes over under it
            engine.take_back();
            cq.req_notify(NotifyKind::Next);
            engine.is_handed_over()
        };
        assert!(!hands_over(), "nobody sleeps on the descriptor");
        let _ = channel.as_fd();
        assert!(hands_over());

        channel.inner.add(std::sync::Weak::new());
        assert!(channel.prepare_to_wait().unwrap());
        assert!(!hands_over(), "it has served until there was an event");
        assert!(channel.poll().is_none());
        assert!(!channel.prepare_to_wait().unwrap());
        engine.finds();
        assert!(hands_over(), "the background thread had to, meanwhile");
    }
}
