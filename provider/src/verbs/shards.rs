//! The shards of a device: engines, each with queue pairs of its own, a lock, a socket and a
//! thread.
//!
//! Protection domains, regions, windows and completion queues are in all of them, with the same
//! numbers and keys; address handles, XRC, and what `rdma_cm` moves, are in the first. A queue pair
//! is where its completion queues and its shared receive queue are, so that who polls a queue
//! serves one shard. A queue without queue pairs is nowhere in particular yet; its state is in the
//! first.

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

/// The engines of a device; one, unless the program asks for more.
pub(crate) struct Shards {
    first: Arc<Engine>,
    further: Box<[Arc<Engine>]>,
    /// Held while objects that all shards have come and go, and while a queue gets its place: the
    /// number of queue pairs that could be anywhere.
    placed: ProcessMutex<u32>,
}

impl Shards {
    pub(crate) fn new(first: Arc<Engine>, further: Vec<Arc<Engine>>) -> Self {
        Self { first, further: further.into(), placed: ProcessMutex::new(0) }
    }

    /// The engines, the first shard's first.
    pub(crate) fn engines(&self) -> impl DoubleEndedIterator<Item = &Arc<Engine>> {
        [&self.first].into_iter().chain(&self.further)
    }

    /// The engine of a shard; of the first, if there is no such.
    #[inline]
    pub(super) fn engine(&self, shard: u32) -> &Arc<Engine> {
        let further = (shard as usize).checked_sub(1).and_then(|index| self.further.get(index));
        further.unwrap_or(&self.first)
    }

    /// True if there are several.
    pub(crate) const fn are_several(&self) -> bool {
        !self.further.is_empty()
    }

    /// Keeps objects of all shards from coming and going.
    pub(super) fn hold(&self) -> Option<ProcessGuard<'_, u32>> {
        self.are_several().then(|| self.placed.lock())
    }

    /// Makes something in the first shard that the others adopt.
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

    /// Changes or destroys something that all shards have.
    pub(super) fn alter(&self, change: impl Fn(&mut Adapter)) {
        let _held = self.hold();
        self.engines().for_each(|engine| engine.alter(&change));
    }

    /// The shard of a new queue pair with these queues, which are there from now on: where they are
    /// already, or each shard in turn.
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

    /// The engine that serves all of the queues of a channel, if one does.
    pub(super) fn only(&self, spread: Spread) -> Option<&Arc<Engine>> {
        match spread {
            Spread::One(shard) => Some(self.engine(shard)),
            Spread::Nowhere | Spread::Several => (!self.are_several()).then_some(&self.first),
        }
    }

    /// The engines that serve the queues of a channel; all, where none is anywhere yet.
    pub(super) fn among(&self, spread: Spread) -> impl Iterator<Item = &Arc<Engine>> {
        let only = self.only(spread);
        self.engines().filter(move |engine| only.is_none_or(|only| Arc::ptr_eq(only, engine)))
    }

    /// Does something in the shard where a queue is, which stays there meanwhile.
    pub(super) fn at<R>(&self, place: &HomeShard, act: impl FnOnce(&Engine) -> R) -> R {
        let _held = place.known().map_or_else(|| self.hold(), |_| None);
        act(self.engine(place.shard()))
    }
}

/// The shard where a queue is, which it does not leave.
pub(super) struct HomeShard {
    shard: AtomicU32,
    /// Where the queues of its channel are.
    among: Option<Arc<SharedSpread>>,
}

/// No shard: a device has few.
const NOWHERE: u32 = u32::MAX;

impl HomeShard {
    /// Nowhere in particular yet.
    pub(super) const fn nowhere(among: Option<Arc<SharedSpread>>) -> Self {
        Self { shard: AtomicU32::new(NOWHERE), among }
    }

    pub(super) const fn of(shard: u32) -> Self {
        Self { shard: AtomicU32::new(shard), among: None }
    }

    fn known(&self) -> Option<u32> {
        Some(self.shard()).filter(|&shard| shard != NOWHERE)
    }

    /// The shard; while it is nowhere, one that there is not.
    #[inline]
    pub(super) fn shard(&self) -> u32 {
        self.shard.load(Ordering::Relaxed)
    }

    fn set(&self, shard: u32) {
        self.shard.store(shard, Ordering::Relaxed);
        if let Some(among) = &self.among {
            among.add(shard);
        }
    }
}

/// The shards where the queues of a channel are.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Spread {
    /// None has a shard yet.
    Nowhere,
    One(u32),
    Several,
}

impl Spread {
    const SEVERAL: u32 = NOWHERE - 1;

    const fn encode(self) -> u32 {
        match self {
            Self::Nowhere => NOWHERE,
            Self::One(shard) => shard,
            Self::Several => Self::SEVERAL,
        }
    }

    const fn decode(code: u32) -> Self {
        match code {
            NOWHERE => Self::Nowhere,
            Self::SEVERAL => Self::Several,
            shard => Self::One(shard),
        }
    }
}

/// What they are now.
pub(super) struct SharedSpread(AtomicU32);

impl SharedSpread {
    pub(super) const fn new() -> Self {
        Self(AtomicU32::new(Spread::Nowhere.encode()))
    }

    fn add(&self, shard: u32) {
        let now = match self.now() {
            Spread::Nowhere => Spread::One(shard),
            Spread::One(other) if other == shard => return,
            Spread::One(_) | Spread::Several => Spread::Several,
        };
        self.0.store(now.encode(), Ordering::Relaxed);
    }

    pub(super) fn now(&self) -> Spread {
        Spread::decode(self.0.load(Ordering::Relaxed))
    }
}

/// Where the queues of a channel were when a thread began to sleep for them, if one does.
pub(super) struct Sleep(AtomicU32);

impl Sleep {
    const AWAKE: u32 = Spread::SEVERAL - 1;

    pub(super) const fn new() -> Self {
        Self(AtomicU32::new(Self::AWAKE))
    }

    /// A thread is about to sleep. False if another one does.
    pub(super) fn begin(&self, spread: Spread) -> bool {
        let (success, failure) = (Ordering::SeqCst, Ordering::Relaxed);
        self.0.compare_exchange(Self::AWAKE, spread.encode(), success, failure).is_ok()
    }

    /// No thread sleeps any more. Returns where the queues were, if one did.
    pub(super) fn end(&self) -> Option<Spread> {
        let slept = self.0.load(Ordering::Relaxed) != Self::AWAKE;
        let code = slept.then(|| self.0.swap(Self::AWAKE, Ordering::SeqCst));
        code.filter(|&code| code != Self::AWAKE).map(Spread::decode)
    }
}
