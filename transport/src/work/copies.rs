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

use super::flow::Flow;
use crate::{
    mem::{AccessError, Region},
    time::Instant,
};

const LONGEST: usize = 256 << 10;
/// Polling interval of copies.
const PERIOD: Duration = Duration::from_micros(20);

#[derive(Debug, Default)]
pub(super) struct Copies {
    flows: BTreeMap<Flow, VecDeque<Run>>,
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

/// Later copies of the flow fail, too.
#[derive(Debug)]
pub(crate) struct FailedCopy {
    pub(crate) flow: Flow,
    pub(crate) serial: u64,
    pub(crate) error: AccessError,
}

impl Copies {
    /// The range must be checked.
    pub(super) fn add(&mut self, flow: Flow, region: &Arc<Region>, address: u64, bytes: &[u8]) {
        let runs = self.flows.entry(flow).or_default();
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

    pub(super) fn has(&self, flow: Flow) -> bool {
        self.flows.contains_key(&flow)
    }

    /// Serial of the last run, or 0.
    pub(super) fn last(&self, flow: Flow) -> u64 {
        self.flows.get(&flow).and_then(VecDeque::back).map_or(0, |run| run.serial)
    }

    /// True if this run and earlier runs have ended.
    pub(super) fn are_past(&self, flow: Flow, serial: u64) -> bool {
        self.flows.get(&flow).and_then(VecDeque::front).is_none_or(|run| run.serial > serial)
    }

    /// Returns the finished halves.
    pub(super) fn advance(&mut self, now: Instant) -> Vec<Flow> {
        let mut done = Vec::new();
        self.flows.retain(|&flow, runs| {
            if let Err(failed) = advance(flow, runs) {
                self.failed.push(failed);
                runs.clear();
            }
            if runs.is_empty() {
                done.push(flow);
            }
            !runs.is_empty()
        });
        self.next = now.plus(PERIOD);
        done
    }

    /// Spins until every copy has ended.
    pub(super) fn finish(&mut self, flow: Flow) {
        let Some(mut runs) = self.flows.remove(&flow) else { return };
        while !runs.is_empty() {
            if let Err(failed) = advance(flow, &mut runs) {
                self.failed.push(failed);
                return;
            }
            core::hint::spin_loop();
        }
    }

    pub(super) fn finish_all(&mut self) {
        while let Some((&flow, _)) = self.flows.first_key_value() {
            self.finish(flow);
        }
    }

    pub(super) fn next_failed(&mut self) -> Option<FailedCopy> {
        self.failed.pop()
    }

    pub(super) fn forget(&mut self, flow: Flow) {
        self.failed.retain(|failed| failed.flow != flow);
    }

    pub(super) fn deadline(&self) -> Option<Instant> {
        (!self.flows.is_empty() || !self.failed.is_empty()).then_some(self.next)
    }
}

fn advance(flow: Flow, runs: &mut VecDeque<Run>) -> Result<(), FailedCopy> {
    let failed = |serial, error| FailedCopy { flow, serial, error };
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
