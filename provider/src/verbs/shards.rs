//! Shards of a device: engines with separate queue pairs, locks, sockets and threads.
//!
//! Protection domains, regions, windows and completion queues exist in all, with equal numbers and
//! keys. Address handles, XRC and `rdma_cm` use the first. A queue pair is in the shard of its
//! completion queues and SRQ, so polling serves one shard. A queue without queue pairs has no shard
//! yet; its state is in the first.

use std::sync::{
    Arc,
    atomic::{AtomicU32, Ordering},
};

use roce_transport::{
    adapter::{Adapter, ObjectError, ObjectMismatch},
    work::SrqId,
};

use crate::{
    calls::{ProcessGuard, ProcessMutex},
    engine::Engine,
};

/// One by default.
pub(crate) struct Shards {
    first: Arc<Engine>,
    further: Box<[Arc<Engine>]>,
    /// Queue pairs placed in turn. Locked while common objects come and go, and while a queue gets
    /// its shard.
    placed: ProcessMutex<u32>,
}

impl Shards {
    pub(crate) fn new(first: Arc<Engine>, further: Vec<Arc<Engine>>) -> Self {
        Self { first, further: further.into(), placed: ProcessMutex::new(0) }
    }

    /// First shard first.
    pub(crate) fn engines(&self) -> impl DoubleEndedIterator<Item = &Arc<Engine>> {
        [&self.first].into_iter().chain(&self.further)
    }

    /// Falls back to the first engine.
    #[inline]
    pub(super) fn engine(&self, shard: u32) -> &Arc<Engine> {
        let further = (shard as usize).checked_sub(1).and_then(|index| self.further.get(index));
        further.unwrap_or(&self.first)
    }

    pub(crate) const fn are_several(&self) -> bool {
        !self.further.is_empty()
    }

    /// Locks creation and destruction of common objects.
    pub(super) fn hold(&self) -> Option<ProcessGuard<'_, u32>> {
        self.are_several().then(|| self.placed.lock())
    }

    /// Makes an object in the first shard; the others adopt it.
    pub(super) fn make<T, E>(
        &self,
        make: impl FnOnce(&mut Adapter) -> Result<T, E>,
        adopt: impl Fn(&mut Adapter, &T) -> Result<(), E>,
    ) -> Result<T, E> {
        let _held = self.hold();
        let made = self.first.alter(make)?;
        for engine in &self.further {
            engine.alter(|adapter| adopt(adapter, &made))?;
        }
        Ok(made)
    }

    pub(super) fn alter(&self, change: impl Fn(&mut Adapter)) {
        let _held = self.hold();
        self.engines().for_each(|engine| engine.alter(&change));
    }

    /// Selects the shard of a new queue pair: that of its queues, else the next in turn.
    pub(super) fn place(
        &self,
        cqs: &[&HomeShard],
        srq: Option<(&HomeShard, SrqId)>,
    ) -> Result<u32, ObjectError> {
        let Some(mut placed) = self.hold() else { return Ok(0) };
        let queues = || cqs.iter().copied().chain(srq.map(|(place, _)| place));
        let mut known = queues().filter_map(HomeShard::known);
        let shard = match known.next() {
            Some(shard) if known.all(|other| other == shard) => shard,
            Some(_) => return Err(ObjectMismatch::Shards.into()),
            None => {
                *placed += 1;
                (*placed - 1) % (self.further.len() as u32 + 1)
            }
        };
        if let Some((_, id)) = srq.filter(|(place, _)| place.known().is_none() && shard != 0) {
            let (mut from, mut to) = (self.first.lock(), self.engine(shard).lock());
            if let Some(srq) = from.adapter().release_srq(id) {
                to.adapter().adopt_srq(id, srq);
            }
        }
        queues().for_each(|place| place.set(shard));
        Ok(shard)
    }

    /// Engine of all of a channel's queues, if one serves all.
    pub(super) fn only(&self, set: ShardSet) -> Option<&Arc<Engine>> {
        match set.only() {
            Some(shard) => Some(self.engine(shard)),
            None => (!self.are_several()).then_some(&self.first),
        }
    }

    /// Engines of a channel's queues; all while none has a shard.
    pub(super) fn engines_of(&self, set: ShardSet) -> impl Iterator<Item = &Arc<Engine>> {
        let only = self.only(set);
        self.engines().filter(move |engine| only.is_none_or(|only| Arc::ptr_eq(only, engine)))
    }

    /// Acts in a queue's shard; the queue stays there meanwhile.
    pub(super) fn at<R>(&self, place: &HomeShard, act: impl FnOnce(&Engine) -> R) -> R {
        let _held = place.known().map_or_else(|| self.hold(), |_| None);
        act(self.engine(place.shard()))
    }
}

/// Final shard of a queue.
pub(super) struct HomeShard {
    shard: AtomicU32,
    /// Shards of its channel's queues.
    channel_shards: Option<Arc<SharedShardSet>>,
}

const UNPLACED: u32 = u32::MAX;

impl HomeShard {
    pub(super) const fn unplaced(channel_shards: Option<Arc<SharedShardSet>>) -> Self {
        Self { shard: AtomicU32::new(UNPLACED), channel_shards }
    }

    pub(super) const fn of(shard: u32) -> Self {
        Self { shard: AtomicU32::new(shard), channel_shards: None }
    }

    fn known(&self) -> Option<u32> {
        Some(self.shard()).filter(|&shard| shard != UNPLACED)
    }

    /// [`UNPLACED`] before placement.
    #[inline]
    pub(super) fn shard(&self) -> u32 {
        self.shard.load(Ordering::Relaxed)
    }

    fn set(&self, shard: u32) {
        self.shard.store(shard, Ordering::Relaxed);
        if let Some(channel_shards) = &self.channel_shards {
            channel_shards.add(shard);
        }
    }
}

/// Shards of a channel's queues, a bit each.
#[derive(Clone, Copy)]
pub(super) struct ShardSet(u32);

impl ShardSet {
    fn only(self) -> Option<u32> {
        self.0.is_power_of_two().then(|| self.0.trailing_zeros())
    }
}

pub(super) struct SharedShardSet(AtomicU32);

impl SharedShardSet {
    pub(super) const fn new() -> Self {
        Self(AtomicU32::new(0))
    }

    fn add(&self, shard: u32) {
        self.0.fetch_or(1 << shard, Ordering::Relaxed);
    }

    pub(super) fn now(&self) -> ShardSet {
        ShardSet(self.0.load(Ordering::Relaxed))
    }
}

/// [`ASLEEP`](Self::ASLEEP) and the shards when a thread began to sleep; 0: none sleeps.
pub(super) struct Sleep(AtomicU32);

impl Sleep {
    /// Above the shards' bits.
    const ASLEEP: u32 = 1 << 31;

    pub(super) const fn new() -> Self {
        Self(AtomicU32::new(0))
    }

    /// False if another thread sleeps.
    pub(super) fn begin(&self, set: ShardSet) -> bool {
        let (success, failure) = (Ordering::SeqCst, Ordering::Relaxed);
        self.0.compare_exchange(0, Self::ASLEEP | set.0, success, failure).is_ok()
    }

    /// Shards of the ended sleep, if any.
    pub(super) fn end(&self) -> Option<ShardSet> {
        let sleeps = self.0.load(Ordering::Relaxed) != 0;
        let slept = if sleeps { self.0.swap(0, Ordering::SeqCst) } else { 0 };
        (slept != 0).then_some(ShardSet(slept & !Self::ASLEEP))
    }
}
