//! Completions, memory and state of the device.

use std::{net::IpAddr, time::Duration};

use super::{Play, Stop, mistake, wrong};
use crate::{
    case::{Completes, MemoryLocation, Pattern, Queue},
    subject::{Completion, Subject},
};

const STEP: Duration = Duration::from_millis(1);

impl<S: Subject> Play<'_, S> {
    pub(super) fn completion(&mut self, queue: Queue) -> Result<Option<Completion>, Stop> {
        let new = self.subject.program()?.completions(queue)?;
        let waiting = &mut self.pair()?.completions[queue as usize];
        waiting.extend(new);
        Ok(waiting.pop_front())
    }

    pub(super) fn until<T>(
        &mut self,
        within: Duration,
        mut ask: impl FnMut(&mut Self) -> Result<Option<T>, Stop>,
    ) -> Result<Option<T>, Stop> {
        let end = self.subject.now().plus(within).plus(self.subject.tolerance());
        loop {
            if let Some(response) = ask(self)? {
                return Ok(Some(response));
            }
            let now = self.subject.now();
            if now >= end {
                return Ok(None);
            }
            self.pump(STEP.min(end.since(now)))?;
        }
    }

    pub(super) fn completes(&mut self, expected: &Completes) -> Result<(), Stop> {
        let found = self.until(expected.within, |play| play.completion(expected.queue))?;
        let id = expected.id;
        let Some(found) = found else {
            return wrong(format!("request {id} does not complete in {:?}", expected.within));
        };
        if found.id != id {
            return wrong(format!("request {} completes before {id}", found.id));
        }
        if !expected.statuses.contains(&found.status) {
            let (status, statuses) = (found.status, expected.statuses.join(" or "));
            return wrong(format!("request {id} completes with {status}, expected {statuses}"));
        }
        if let Some(bytes) = expected.bytes.filter(|&bytes| bytes != found.bytes) {
            return wrong(format!("the completion counts {} bytes, expected {bytes}", found.bytes));
        }
        if expected.immediate.is_some() && expected.immediate != found.immediate {
            return wrong(format!("the completion has immediate data {:x?}", found.immediate));
        }
        Ok(())
    }

    /// Retries, as unacknowledged packets may be in flight.
    pub(super) fn memory(&mut self, pattern: &Pattern) -> Result<(), Stop> {
        let Pattern { place, bytes, seed } = pattern;
        let mut first = None;
        let same = self.until(self.subject.tolerance(), |play| {
            first = play.subject.program()?.differs(&place.region, place.offset, *bytes, *seed)?;
            Ok(first.is_none().then_some(()))
        })?;
        if let (None, Some(offset)) = (same, first) {
            let region = &place.region;
            return wrong(format!("byte {offset} of {region} is not the one of the pattern"));
        }
        Ok(())
    }

    /// IPv4's header fills the last 20 of 40 bytes; the others are undefined (A17.4.5.1).
    pub(super) fn header(&mut self, place: &MemoryLocation) -> Result<(), Stop> {
        let (net, _) = self.last.as_ref().ok_or_else(|| mistake("nothing was sent before"))?;
        let (offset, expected) = match (net.src, net.dst) {
            (IpAddr::V4(src), IpAddr::V4(dst)) => (32, [src.octets(), dst.octets()].concat()),
            (IpAddr::V6(src), IpAddr::V6(dst)) => (8, [src.octets(), dst.octets()].concat()),
            _ => return Err(mistake("the addresses are of two families")),
        };
        for (at, word) in expected.chunks_exact(8).enumerate() {
            let offset = place.offset + offset + 8 * at as u32;
            let found = self.subject.program()?.word(&place.region, offset)?;
            let right = u64::from_ne_bytes(std::array::from_fn(|byte| word[byte]));
            // The device may have the other byte order.
            if found != right && found != right.swap_bytes() {
                let found = found.to_ne_bytes();
                return wrong(format!(
                    "the network header has the bytes {found:02x?}, expected {word:02x?}"
                ));
            }
        }
        Ok(())
    }

    pub(super) fn state(&mut self, state: &str) -> Result<(), Stop> {
        let mut found = String::new();
        let reached = self.until(self.subject.tolerance(), |play| {
            found = play.subject.program()?.state()?;
            Ok((found == state).then_some(()))
        })?;
        match reached {
            Some(()) => Ok(()),
            None => wrong(format!("the queue pair is in {found}, expected {state}")),
        }
    }
}
