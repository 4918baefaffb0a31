//! Asynchronous copies to memory behind a driver.
//!
//! Bytes of one half of a queue pair are gathered in runs. Runs of one region are copied together;
//! a run of another region waits for them. Bytes never appear before those of an earlier packet.

use alloc::{
    collections::{BTreeMap, VecDeque},
    sync::Arc,
    vec::Vec,
};
use core::time::Duration;

use super::half::QpHalf;
use crate::{
    mem::{AccessError, Region},
    time::Instant,
};

/// Longest run in bytes.
const LONGEST: usize = 256 << 10;
/// Polling interval of copies.
const PERIOD: Duration = Duration::from_micros(20);

#[derive(Debug, Default)]
pub(super) struct Copies {
    halves: BTreeMap<QpHalf, VecDeque<Run>>,
    failed: Vec<FailedCopy>,
    serial: u64,
    /// Next poll.
    next: Instant,
}

#[derive(Debug)]
struct Run {
    serial: u64,
    region: Arc<Region>,
    address: u64,
    bytes: Vec<u8>,
    /// Set once started.
    copy: Option<u64>,
}

/// Later copies of the half fail, too.
#[derive(Debug)]
pub(crate) struct FailedCopy {
    pub(crate) half: QpHalf,
    pub(crate) serial: u64,
    pub(crate) error: AccessError,
}

impl Copies {
    /// The range must be checked.
    pub(super) fn add(&mut self, half: QpHalf, region: &Arc<Region>, address: u64, bytes: &[u8]) {
        let runs = self.halves.entry(half).or_default();
        self.next = Instant::ZERO;
        if let Some(last) = runs.back_mut()
            && last.copy.is_none()
            && Arc::ptr_eq(&last.region, region)
            && last.address.wrapping_add(last.bytes.len() as u64) == address
            && last.bytes.len() + bytes.len() <= LONGEST
        {
            last.bytes.extend_from_slice(bytes);
            return;
        }
        self.serial += 1;
        let (serial, region, bytes) = (self.serial, region.clone(), bytes.to_vec());
        runs.push_back(Run { serial, region, address, bytes, copy: None });
    }

    pub(super) fn has(&self, half: QpHalf) -> bool {
        self.halves.contains_key(&half)
    }

    /// Serial of the last run, or 0.
    pub(super) fn last(&self, half: QpHalf) -> u64 {
        self.halves.get(&half).and_then(VecDeque::back).map_or(0, |run| run.serial)
    }

    /// True if this run and earlier runs have ended.
    pub(super) fn are_past(&self, half: QpHalf, serial: u64) -> bool {
        self.halves.get(&half).and_then(VecDeque::front).is_none_or(|run| run.serial > serial)
    }

    /// Returns the finished halves.
    pub(super) fn advance(&mut self, now: Instant) -> Vec<QpHalf> {
        let mut done = Vec::new();
        self.halves.retain(|&half, runs| {
            if let Err(failed) = advance(half, runs) {
                self.failed.push(failed);
                runs.clear();
            }
            if runs.is_empty() {
                done.push(half);
            }
            !runs.is_empty()
        });
        self.next = now.plus(PERIOD);
        done
    }

    /// Spins until every copy has ended.
    pub(super) fn finish(&mut self, half: QpHalf) {
        let Some(mut runs) = self.halves.remove(&half) else { return };
        while !runs.is_empty() {
            if let Err(failed) = advance(half, &mut runs) {
                self.failed.push(failed);
                return;
            }
            core::hint::spin_loop();
        }
    }

    pub(super) fn finish_all(&mut self) {
        while let Some((&half, _)) = self.halves.first_key_value() {
            self.finish(half);
        }
    }

    pub(super) fn next_failed(&mut self) -> Option<FailedCopy> {
        self.failed.pop()
    }

    pub(super) fn forget(&mut self, half: QpHalf) {
        self.failed.retain(|failed| failed.half != half);
    }

    pub(super) fn deadline(&self) -> Option<Instant> {
        (!self.halves.is_empty() || !self.failed.is_empty()).then_some(self.next)
    }
}

fn advance(half: QpHalf, runs: &mut VecDeque<Run>) -> Result<(), FailedCopy> {
    let failed = |serial, error| FailedCopy { half, serial, error };
    while let Some(first) = runs.front_mut() {
        let serial = first.serial;
        first.start().map_err(|error| failed(serial, error))?;
        if !first.has_ended().map_err(|error| failed(serial, error))? {
            break;
        }
        runs.pop_front();
    }
    let Some(region) = runs.front().map(|first| first.region.clone()) else { return Ok(()) };
    for run in runs.iter_mut().take_while(|run| Arc::ptr_eq(&run.region, &region)) {
        run.start().map_err(|error| failed(run.serial, error))?;
    }
    Ok(())
}

impl Run {
    fn start(&mut self) -> Result<(), AccessError> {
        if self.copy.is_none() {
            self.copy = Some(self.region.start_write(self.address, &self.bytes)?);
            self.bytes = Vec::new();
        }
        Ok(())
    }

    fn has_ended(&self) -> Result<bool, AccessError> {
        self.copy.map_or(Ok(false), |copy| self.region.has_ended(copy))
    }
}

/// A run fetched from memory behind a driver, instead of single packets.
///
/// Early fetching is allowed: a request's memory is the adapter's until completion, and a READ may
/// find bytes of any time.
#[derive(Debug, Default)]
pub(crate) struct Fetched {
    from: u64,
    bytes: Vec<u8>,
}

impl Fetched {
    /// `length` is the message's; `fetch` brings missing bytes.
    pub(crate) fn read(
        &mut self,
        offset: u64,
        to: &mut [u8],
        length: u64,
        fetch: impl FnOnce(u64, &mut [u8]) -> Result<(), AccessError>,
    ) -> Result<(), AccessError> {
        let range = |from: u64| {
            let start = usize::try_from(offset.checked_sub(from)?).ok()?;
            Some(start..start.checked_add(to.len())?)
        };
        let there = range(self.from).filter(|range| range.end <= self.bytes.len());
        if there.is_none() {
            let run = length.saturating_sub(offset).min(LONGEST as u64).max(to.len() as u64);
            self.from = offset;
            self.bytes.clear();
            self.bytes.resize(run as usize, 0);
            fetch(offset, &mut self.bytes).inspect_err(|_| self.bytes.clear())?;
        }
        let there = there.unwrap_or(0..to.len());
        to.copy_from_slice(&self.bytes[there]);
        Ok(())
    }
}
