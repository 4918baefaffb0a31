//! Late and reordered placement, and late completions: all that the specification allows, for
//! tests.
//!
//! Read first: InfiniBand volume 1, 9.5, 9.7.6, o9-20, 10.8.3.3.
//!
//! Bytes of a queue pair's half wait in pieces, each with its time. All are placed before
//!
//! - a completion of that half or any response, which wait;
//! - an atomic, FLUSH or ATOMIC WRITE, a fenced READ, or overlapping bytes;
//! - a key is revoked, or the queue pair is reset or destroyed.
//!
//! Copies to memory behind a driver ([`copies`](super::copies)) obey the same rules. A queue's
//! completions stay in order, as do events, which never overtake completions.

use alloc::{
    collections::{BTreeMap, VecDeque},
    sync::Arc,
    vec::Vec,
};
use core::{ops::Range, time::Duration};

use rand_chacha::ChaCha8Rng;
use rand_core::{RngCore, SeedableRng};

use super::{
    completion::{Wc, WcError},
    copies::{Copies, FailedCopy},
    cq::{CompletionQueue, Validity},
    half::{Half, QpHalf},
};
use crate::{
    ids::{CqId, Qpn},
    mem::{AccessError, Region},
    time::Instant,
};

/// Longest delays, default 0.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
pub struct LateConfig {
    /// Seed of orders and times.
    pub seed: u64,
    /// Delay of bytes, in pieces of up to 64 in any order. Responses wait, too: stay well below the
    /// peer's acknowledge timeout. READ and atomic data may take five times as long.
    pub placement: Duration,
    /// Delay of completions and events.
    pub completion: Duration,
}

impl LateConfig {
    /// Longest delay below every acknowledge timeout.
    pub const PLACEMENT: Duration = Duration::from_micros(400);
    /// Delay that programs notice.
    pub const COMPLETION: Duration = Duration::from_millis(2);
}

/// Longest piece, in bytes.
const LONGEST: u64 = 64;
/// Factor for READ and atomic data.
const REQUESTER_FACTOR: u32 = 5;
/// Divisor for about half the placements.
const SHORT: u32 = 16;
/// Alignment in bytes.
const GRAIN: u64 = 8;

#[derive(Debug)]
pub(crate) struct Late {
    config: LateConfig,
    chance: ChaCha8Rng,
    unplaced: BTreeMap<QpHalf, Unplaced>,
    delayed: BTreeMap<CqId, VecDeque<DelayedCompletion>>,
    copies: Copies,
    serial: u64,
}

#[derive(Debug)]
struct Unplaced {
    /// Time by which all are placed.
    until: Instant,
    /// Ranges by the memory's origin.
    extents: Vec<Range<u64>>,
    pieces: BTreeMap<(Instant, u64), Piece>,
}

#[derive(Debug)]
struct Piece {
    region: Arc<Region>,
    address: u64,
    bytes: Arc<[u8]>,
    part: Range<usize>,
}

#[derive(Debug)]
pub(crate) struct DelayedCompletion {
    at: Instant,
    half: QpHalf,
    /// Copy to wait for.
    copy: u64,
    pub(crate) cq: Arc<CompletionQueue>,
    pub(crate) wc: Wc,
    pub(crate) validity: Validity,
    pub(crate) solicited: bool,
}

impl Late {
    pub(crate) fn new(config: LateConfig) -> Option<Self> {
        (!config.placement.is_zero() || !config.completion.is_zero()).then(|| Self::with(config))
    }

    /// Even without delays, for memory behind a driver.
    pub(crate) fn with(config: LateConfig) -> Self {
        Self {
            config,
            chance: ChaCha8Rng::seed_from_u64(config.seed),
            unplaced: BTreeMap::new(),
            delayed: BTreeMap::new(),
            copies: Copies::default(),
            serial: 0,
        }
    }

    /// A random time up to `longest` later.
    fn soon(&mut self, now: Instant, longest: Duration) -> Instant {
        match longest.as_nanos() as u64 {
            0 => now,
            longest => now.plus(Duration::from_nanos(self.chance.next_u64() % longest + 1)),
        }
    }

    pub(crate) fn place(
        &mut self,
        half: QpHalf,
        region: &Arc<Region>,
        address: u64,
        bytes: &[u8],
        now: Instant,
    ) -> Result<(), AccessError> {
        if !bytes.is_empty() && (self.copies.has(half) || region.is_behind_driver()) {
            self.place_pieces_of(half);
            self.copies.add(half, region, address, bytes);
            return Ok(());
        }
        if self.config.placement.is_zero() || bytes.is_empty() {
            return region.write(address, bytes);
        }
        let mut copy: Arc<[u8]> = bytes.into();
        if let Some(there) = Arc::get_mut(&mut copy) {
            region.read(address, there)?; // report unreachable memory now
            there.copy_from_slice(bytes);
        }
        let start = region.origin(address);
        let extent = start..start.saturating_add(bytes.len() as u64);
        let overlaps = |other: &Range<u64>| other.start < extent.end && extent.start < other.end;
        if self.unplaced.get(&half).is_some_and(|there| there.extents.iter().any(overlaps)) {
            self.place_all_of(half);
        }
        // only the program waits for READ data
        let times = if half.1 == Half::Requester { REQUESTER_FACTOR } else { 1 };
        // sometimes sooner than earlier bytes of other queue pairs
        let parts = if self.chance.next_u64().is_multiple_of(2) { SHORT } else { 1 };
        let latest = now.plus(self.config.placement * times / parts);
        let until = self.unplaced.get(&half).map_or(latest, |there| there.until);
        let left = until.since(now);
        let mut from = 0;
        let mut pieces = Vec::new();
        while from < bytes.len() {
            let ends = (address + from as u64) / GRAIN * GRAIN
                + GRAIN * (1 + self.chance.next_u64() % (LONGEST / GRAIN));
            let end = bytes.len().min((ends - address) as usize);
            let at = self.soon(now, left);
            self.serial += 1;
            let (region, bytes) = (region.clone(), copy.clone());
            let piece = Piece { region, address: address + from as u64, bytes, part: from..end };
            pieces.push(((at, self.serial), piece));
            from = end;
        }
        let there = self.unplaced.entry(half).or_insert_with(|| Unplaced {
            until,
            extents: Vec::new(),
            pieces: BTreeMap::new(),
        });
        there.extents.push(extent);
        there.pieces.extend(pieces);
        Ok(())
    }

    pub(crate) fn has_unplaced(&self, half: QpHalf) -> bool {
        self.unplaced.contains_key(&half) || self.copies.has(half)
    }

    pub(crate) fn place_all_of(&mut self, half: QpHalf) {
        self.place_pieces_of(half);
        self.copies.finish(half);
    }

    /// Places all but copies, which responses await.
    pub(crate) fn place_pieces_of(&mut self, half: QpHalf) {
        let there = self.unplaced.remove(&half);
        there.into_iter().flat_map(|there| there.pieces.into_values()).for_each(Piece::place);
    }

    pub(crate) fn place_all(&mut self) {
        while let Some((_, there)) = self.unplaced.pop_first() {
            there.pieces.into_values().for_each(Piece::place);
        }
        self.copies.finish_all();
    }

    /// The first completion after a failed copy fails, too; later completions are flushed.
    pub(crate) fn next_failed(&mut self) -> Option<FailedCopy> {
        let failed = self.copies.next_failed()?;
        let mut error = WcError::protection(failed.error);
        for delayed in self.delayed.values_mut().flatten() {
            if delayed.half == failed.half && delayed.copy >= failed.serial {
                delayed.wc.result = Err(error);
                error = WcError::FLUSHED;
            }
        }
        Some(failed)
    }

    pub(crate) fn forget_failed(&mut self, half: QpHalf) {
        self.copies.forget(half);
    }

    /// Returns finished queue pairs.
    pub(crate) fn place_due(&mut self, now: Instant) -> Vec<Qpn> {
        let mut due = Vec::new();
        for there in self.unplaced.values_mut() {
            while let Some(first) = there.pieces.first_entry().filter(|first| first.key().0 <= now)
            {
                due.push(first.remove_entry());
            }
        }
        // programs may see the order
        due.sort_unstable_by_key(|(key, _)| *key);
        due.into_iter().for_each(|(_, piece)| piece.place());
        let mut done = Vec::new();
        self.unplaced.retain(|half, there| {
            if there.pieces.is_empty() {
                done.push(Qpn::new(half.0));
            }
            !there.pieces.is_empty()
        });
        done.extend(self.copies.advance(now).into_iter().map(|half| Qpn::new(half.0)));
        done
    }

    /// False for a completion that is due.
    pub(crate) fn delay_completion(
        &mut self,
        half: QpHalf,
        cq: &Arc<CompletionQueue>,
        wc: Wc,
        validity: &Validity,
        solicited: bool,
        now: Instant,
    ) -> bool {
        let placed = self.unplaced.get(&half).map_or(now, |there| there.until);
        let at = self.soon(now, self.config.completion).max(placed);
        let copy = self.copies.last(half);
        let others = self.delayed.entry(cq.id()).or_default();
        let at = others.back().map_or(at, |last| last.at.max(at));
        if at <= now && copy == 0 && others.is_empty() {
            return false;
        }
        let (cq, validity) = (cq.clone(), validity.clone());
        others.push_back(DelayedCompletion { at, half, copy, cq, wc, validity, solicited });
        true
    }

    pub(crate) fn next_due(&mut self, now: Instant) -> Option<DelayedCompletion> {
        loop {
            let copies = &self.copies;
            let is_due =
                |next: &DelayedCompletion| next.at <= now && copies.are_past(next.half, next.copy);
            let mut queues = self.delayed.values_mut();
            let queue = queues.find(|queue| queue.front().is_some_and(is_due))?;
            let next = queue.pop_front()?;
            self.place_pieces_of(next.half);
            if next.validity.holds() {
                return Some(next);
            }
        }
    }

    pub(crate) fn forget_cq(&mut self, id: CqId) {
        self.delayed.remove(&id);
    }

    pub(crate) fn time_of_event(&mut self, now: Instant) -> Instant {
        let last = self.delayed.values().filter_map(|queue| queue.back()).map(|last| last.at).max();
        self.soon(now, self.config.completion).max(last.unwrap_or(now))
    }

    pub(crate) fn deadline(&self) -> Option<Instant> {
        let pieces = self.unplaced.values().filter_map(|there| there.pieces.first_key_value());
        let pieces = pieces.map(|((at, _), _)| *at);
        let delayed = self.delayed.values().filter_map(VecDeque::front);
        let delayed = delayed.filter(|next| self.copies.are_past(next.half, next.copy));
        pieces.chain(delayed.map(|next| next.at)).chain(self.copies.deadline()).min()
    }
}

impl Piece {
    /// Ignores lost memory.
    fn place(self) {
        let Self { region, address, bytes, part } = self;
        let _ = region.write(address, &bytes[part]);
    }
}
