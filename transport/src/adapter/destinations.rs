//! Windows per destination: queue pairs share the receive buffer there.

use alloc::{collections::BTreeMap, vec::Vec};
use core::{net::IpAddr, time::Duration};

use slab::Slab;

use super::{
    budget::{Budget, Share},
    turns::entry,
};
use crate::{
    congestion::{LARGEST, LARGEST_RUN, Near, Window, WindowConfig},
    qp::Credits,
    time::Instant,
};

const LARGEST_PORTION: u64 = LARGEST_RUN as u64 * LARGEST;
/// Below this, one lost packet stalls all others.
const LEAST: u64 = 8 * LARGEST;
/// Queue pairs see the same loss: shrink once per interval.
const ONE_LOSS: Duration = Duration::from_micros(500);

#[derive(Debug)]
struct Destination {
    address: IpAddr,
    users: usize,
    window: Window,
    budget: Budget,
    shrunk: Option<Instant>,
}

#[derive(Default, Debug)]
pub(super) struct Destinations {
    config: WindowConfig,
    all: Slab<Destination>,
    by_address: BTreeMap<IpAddr, usize>,
    of: Vec<Option<usize>>,
    shares: Vec<Share>,
}

impl Destinations {
    pub(super) fn new(config: WindowConfig) -> Self {
        Self { config, ..Self::default() }
    }

    fn of(&self, index: usize) -> Option<usize> {
        self.of.get(index).copied().flatten()
    }

    pub(super) fn assign(&mut self, index: usize, address: Option<IpAddr>) -> Option<usize> {
        let before = self.of(index);
        if before.and_then(|at| self.all.get(at)).map(|its| its.address) == address {
            return None;
        }
        let mut next = None;
        if let Some(destination) = before.and_then(|at| self.all.get_mut(at)) {
            next = destination.budget.leave(&mut self.shares, index);
            destination.users -= 1;
            if destination.users == 0 {
                self.by_address.remove(&destination.address);
                before.map(|at| self.all.remove(at));
            }
        }
        let after = address.map(|address| self.at(address));
        if let Some(destination) = after.and_then(|at| self.all.get_mut(at)) {
            destination.users += 1;
        }
        *entry(&mut self.of, index) = after;
        next
    }

    fn at(&mut self, address: IpAddr) -> usize {
        if let Some(&at) = self.by_address.get(&address) {
            return at;
        }
        let WindowConfig { destination_initial, destination_most, .. } = self.config;
        let window = Window::new(destination_initial, LEAST, destination_most, Near::Time);
        let budget = Budget::new(window.limit(), LARGEST_PORTION);
        let at = self.all.insert(Destination { address, users: 0, window, budget, shrunk: None });
        self.by_address.insert(address, at);
        at
    }

    pub(super) fn credits(&self, index: usize, in_flight: u64) -> Credits {
        let Some(destination) = self.of(index).and_then(|at| self.all.get(at)) else {
            return Credits::UNLIMITED;
        };
        let credits = destination.budget.credits(&self.shares, index, in_flight);
        match destination.users {
            1 => Credits { portion: Credits::UNLIMITED.portion, ..credits },
            _ => credits,
        }
    }

    pub(super) fn is_recorded(&self, index: usize, in_flight: u64, waits: bool) -> bool {
        Share::is_recorded(&self.shares, index, in_flight, waits)
    }

    pub(super) fn update(
        &mut self,
        index: usize,
        in_flight: u64,
        waits: bool,
        now: Instant,
    ) -> Option<usize> {
        let destination = self.of(index).and_then(|at| self.all.get_mut(at))?;
        let before = self.shares.get(index).map_or(0, Share::taken);
        if waits {
            destination.window.record_cwnd_limited();
        }
        if in_flight < before {
            let taken = destination.budget.taken();
            destination.window.on_acknowledged(before - in_flight, taken, now);
            destination.budget.set_limit(destination.window.limit());
        }
        destination.budget.update(&mut self.shares, index, in_flight, waits)
    }

    pub(super) fn on_loss(&mut self, index: usize, now: Instant) {
        self.shrink(index, now, |window, taken| window.on_loss(taken));
    }

    pub(super) fn on_notification(&mut self, index: usize, now: Instant) {
        self.shrink(index, now, |window, _| window.on_notification(now));
    }

    fn shrink(&mut self, index: usize, now: Instant, by: impl FnOnce(&mut Window, u64)) {
        let Some(destination) = self.of(index).and_then(|at| self.all.get_mut(at)) else { return };
        if destination.shrunk.is_some_and(|last| now.since(last) < ONE_LOSS) {
            return;
        }
        destination.shrunk = Some(now);
        by(&mut destination.window, destination.budget.taken());
        destination.budget.set_limit(destination.window.limit());
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const HOST: IpAddr = IpAddr::V4(core::net::Ipv4Addr::new(10, 0, 0, 1));
    const OTHER: IpAddr = IpAddr::V4(core::net::Ipv4Addr::new(10, 0, 0, 2));

    fn destinations() -> Destinations {
        let config = WindowConfig { destination_initial: 20 * LARGEST, ..WindowConfig::default() };
        Destinations::new(config)
    }

    #[test]
    fn queue_pairs_share_what_one_host_holds() {
        let mut all = destinations();
        for index in 0..3 {
            all.assign(index, Some(if index == 2 { OTHER } else { HOST }));
        }
        assert_eq!(all.update(0, 20 * LARGEST, false, Instant::ZERO), None);
        assert_eq!((all.credits(1, 0).left, all.credits(2, 0).left), (0, 20 * LARGEST));
        assert_eq!(all.update(1, 0, true, Instant::ZERO), None);
        assert_eq!(all.update(0, 10 * LARGEST, false, Instant::ZERO), Some(1));
        assert!(all.credits(1, 0).left >= 10 * LARGEST);
    }

    #[test]
    fn a_host_without_queue_pairs_is_forgotten() {
        let mut all = destinations();
        all.assign(0, Some(HOST));
        all.assign(1, Some(HOST));
        all.update(0, 20 * LARGEST, false, Instant::ZERO);
        all.update(1, 0, true, Instant::ZERO);
        assert_eq!(all.assign(0, Some(OTHER)), Some(1), "what it had is free");
        assert_eq!(all.all.len(), 2);
        all.assign(0, None);
        all.assign(1, None);
        assert!(all.all.is_empty() && all.by_address.is_empty());
        assert_eq!(all.credits(0, 0).left, Credits::UNLIMITED.left);
    }

    #[test]
    fn one_loss_shrinks_once() {
        let mut all = destinations();
        all.assign(0, Some(HOST));
        all.assign(1, Some(HOST));
        all.update(0, 20 * LARGEST, false, Instant::ZERO);
        all.on_loss(0, Instant::from_nanos(1_000_000));
        all.on_loss(1, Instant::from_nanos(1_100_000));
        let limit = |all: &Destinations| all.all[0].window.limit();
        assert_eq!(limit(&all), 14 * LARGEST);
        for n in 1..10 {
            all.on_loss(1, Instant::from_nanos(1_000_000 + n * 600_000));
        }
        assert_eq!(limit(&all), LEAST);
    }
}
