//! Partitions and services of clients, as a function of requests and time.
//!
//! A partition belongs to one client at an address. After the client's end, the partition rests:
//! only a client of the same user gets it, since packets for the former client may be in flight. A
//! client gets the partition that it has at another address, or had before a restart of the
//! service.

use std::{collections::BTreeMap, net::IpAddr, time::Duration};

use roce_transport::{cm::ServiceId, share::IdPartition, time::Instant};

use super::message::Response;

/// Time that a partition rests before another user gets it.
pub(super) const QUARANTINE: Duration = Duration::from_secs(30);
/// Time to claim services again after a restart of the service.
const AWAITED: Duration = Duration::from_secs(2);
/// The last partition is the service's.
pub(in crate::link) const OWN: u8 = IdPartition::COUNT;
/// Most partitions at an address, resting or not: of all users but root, and of one user.
const MAX_OF_USERS: usize = 41;
pub(super) const MAX_OF_USER: usize = 20;
pub(super) const MAX_SERVICES: usize = 64;

const ROOT: u32 = 0;

pub(super) type Place = (IpAddr, IdPartition);

#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub(super) struct Table {
    leases: BTreeMap<Place, PartitionLease>,
    services: BTreeMap<(IpAddr, ServiceId), Service>,
    last: u8,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct PartitionLease {
    user: u32,
    /// End of the rest; `None`: a client has the partition.
    rests_until: Option<Instant>,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct Service {
    user: u32,
    holder: Holder,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Holder {
    Client(IdPartition),
    /// A client of the user, until this time.
    AwaitedUntil(Instant),
}

/// A saved table: addresses, users, and partitions or services.
type Saved = (Vec<(IpAddr, u32, u8)>, Vec<(IpAddr, u32, u64)>);

impl Table {
    /// Gives a user's new client a partition. `None` if another client has the `wanted` partition,
    /// or the user has reached its limit.
    pub(super) fn open(
        &mut self,
        now: Instant,
        address: IpAddr,
        user: u32,
        wanted: Option<IdPartition>,
    ) -> Option<IdPartition> {
        self.leases.retain(|_, it| it.rests_until.is_none_or(|until| now < until));
        let partition = match wanted {
            Some(partition) if self.may_have((address, partition), user) => partition,
            Some(_) => return None,
            None => self.choose(address, user)?,
        };
        self.leases.insert((address, partition), PartitionLease { user, rests_until: None });
        Some(partition)
    }

    /// For a partition that the client has elsewhere or had before.
    fn may_have(&self, place @ (address, partition): Place, user: u32) -> bool {
        let mut same = self.leases.iter().filter(|((_, other), _)| *other == partition);
        let is_free = |(&(other, _), it): (&Place, &PartitionLease)| {
            it.user == user && (other != address || it.rests_until.is_some())
        };
        partition.get() != OWN
            && same.all(is_free)
            && (self.has_room(address, user) || self.leases.contains_key(&place))
    }

    /// Prefers a partition free at all addresses, then a partition free here, then the user's
    /// longest-resting partition.
    fn choose(&mut self, address: IpAddr, user: u32) -> Option<IdPartition> {
        let next =
            (0..OWN - 1).filter_map(|step| IdPartition::new((self.last + step) % (OWN - 1) + 1));
        let is_new =
            |partition: &IdPartition| self.leases.keys().all(|(_, other)| other != partition);
        let is_free = |partition: &IdPartition| !self.leases.contains_key(&(address, *partition));
        let found = if self.has_room(address, user) {
            next.clone().find(is_new).or_else(|| next.clone().find(is_free))
        } else {
            None
        };
        let rested = || {
            let own = self.here(address).filter(|(_, it)| it.user == user);
            let resting = own.filter_map(|(partition, it)| Some((it.rests_until?, partition)));
            resting.min().map(|(_, partition)| partition)
        };
        let chosen = found.or_else(rested)?;
        self.last = chosen.get();
        Some(chosen)
    }

    fn here(&self, address: IpAddr) -> impl Iterator<Item = (IdPartition, PartitionLease)> + Clone {
        let here = self.leases.iter().filter(move |((other, _), _)| *other == address);
        here.map(|(&(_, partition), it)| (partition, *it))
    }

    fn has_room(&self, address: IpAddr, user: u32) -> bool {
        let own = self.here(address).filter(|(_, it)| it.user == user).count();
        let users = self.here(address).filter(|(_, it)| it.user != ROOT).count();
        user == ROOT || own < MAX_OF_USER && users < MAX_OF_USERS
    }

    pub(super) fn close(&mut self, now: Instant, place @ (address, partition): Place) {
        if let Some(it) = self.leases.get_mut(&place) {
            it.rests_until = Some(now.plus(QUARANTINE));
        }
        let holder = Holder::Client(partition);
        self.services.retain(|(other, _), it| (*other, it.holder) != (address, holder));
    }

    pub(super) fn forget(&mut self, address: IpAddr) {
        self.leases.retain(|(other, _), _| *other != address);
        self.services.retain(|(other, _), _| *other != address);
    }

    pub(super) fn listener(&self, address: IpAddr, service: ServiceId) -> Option<IdPartition> {
        let holder = self.services.get(&(address, service))?.holder;
        if let Holder::Client(partition) = holder { Some(partition) } else { None }
    }

    pub(super) fn query(&self, now: Instant, place: Place, service: ServiceId) -> Response {
        let found = self.services.get(&(place.0, service));
        let may = found.is_none_or(|it| match it.holder {
            Holder::Client(holder) => holder == place.1,
            Holder::AwaitedUntil(until) => until <= now || Some(it.user) == self.user(place),
        });
        if may { Response::Done } else { Response::InUse }
    }

    pub(super) fn claim(&mut self, now: Instant, place: Place, service: ServiceId) -> Response {
        let Some(user) = self.user(place) else { return Response::InUse };
        if self.query(now, place, service) != Response::Done {
            return Response::InUse;
        }
        let (key, holder) = ((place.0, service), Holder::Client(place.1));
        let own = |(other, it): &(&(IpAddr, ServiceId), &Service)| {
            (other.0, it.holder) == (place.0, holder) && **other != key
        };
        if self.services.iter().filter(own).count() >= MAX_SERVICES {
            return Response::InUse;
        }
        self.services.insert(key, Service { user, holder });
        Response::Done
    }

    pub(super) fn release(&mut self, (address, partition): Place, service: ServiceId) {
        if self.listener(address, service) == Some(partition) {
            self.services.remove(&(address, service));
        }
    }

    fn user(&self, place: Place) -> Option<u32> {
        let found = self.leases.get(&place).filter(|it| it.rests_until.is_none());
        found.map(|it| it.user)
    }

    pub(super) fn save(&self) -> Vec<u8> {
        let leases = self.leases.iter();
        let leases = leases.map(|((address, partition), it)| (*address, it.user, partition.get()));
        let services = self.services.iter();
        let services = services.map(|((address, service), it)| (*address, it.user, service.0));
        let saved: Saved = (leases.collect(), services.collect());
        serde_json::to_vec(&saved).unwrap_or_default()
    }

    /// The table of a former service: partitions rest, and services await clients of their users.
    pub(super) fn restore(now: Instant, saved: &[u8]) -> Self {
        let (leases, services): Saved = serde_json::from_slice(saved).unwrap_or_default();
        let rests_until = Some(now.plus(QUARANTINE));
        let holder = Holder::AwaitedUntil(now.plus(AWAITED));
        let leases = leases.into_iter().filter_map(|(address, user, partition)| {
            Some(((address, IdPartition::new(partition)?), PartitionLease { user, rests_until }))
        });
        let services = services.into_iter().map(|(address, user, service)| {
            ((address, ServiceId(service)), Service { user, holder })
        });
        Self { leases: leases.collect(), services: services.collect(), last: 0 }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::link::partition;

    const HERE: IpAddr = IpAddr::V4(std::net::Ipv4Addr::new(10, 0, 0, 1));
    const THERE: IpAddr = IpAddr::V4(std::net::Ipv4Addr::new(10, 0, 0, 2));
    const ONE: u32 = 1000;
    const OTHER: u32 = 1001;
    const THIRD: u32 = 1002;

    fn at(seconds: u64) -> Instant {
        Instant::ZERO.plus(Duration::from_secs(seconds))
    }

    fn all(table: &mut Table, user: u32) -> Vec<IdPartition> {
        std::iter::from_fn(|| table.open(at(0), HERE, user, None)).collect()
    }

    #[test]
    fn a_partition_rests_before_another_user_has_it() {
        let mut table = Table::default();
        let mut given = Vec::new();
        let former = table.open(at(0), HERE, ONE, None).unwrap();
        table.close(at(1), (HERE, former));
        for _ in 0..MAX_OF_USER {
            given.push(table.open(at(30), HERE, OTHER, None).unwrap());
        }
        assert!(!given.contains(&former));
        assert_eq!(table.open(at(30), HERE, OTHER, Some(former)), None);
        assert_eq!(table.open(at(30), HERE, THIRD, Some(former)), None);
        assert_eq!(table.open(at(31), HERE, THIRD, Some(former)), Some(former));
    }

    #[test]
    fn no_user_has_what_is_kept_for_others() {
        let mut table = Table::default();
        let counts = [ONE, OTHER, THIRD].map(|user| all(&mut table, user).len());
        assert_eq!(counts, [20, 20, 1]);
        let root = all(&mut table, ROOT);
        assert_eq!(root.len(), 20);
        let mut numbers: Vec<_> = table.leases.keys().map(|(_, it)| it.get()).collect();
        numbers.sort_unstable();
        assert_eq!(numbers, (1..OWN).collect::<Vec<_>>());
        // another address has its own partitions
        assert!(table.open(at(0), THERE, THIRD, None).is_some());
    }

    /// New programs get the partitions of ended programs, the oldest first.
    #[test]
    fn a_user_that_has_all_of_its_partitions_gets_those_that_rest() {
        let mut table = Table::default();
        let given = all(&mut table, ONE);
        table.close(at(1), (HERE, given[4]));
        table.close(at(2), (HERE, given[3]));
        let next: Vec<_> = std::iter::from_fn(|| table.open(at(3), HERE, ONE, None)).collect();
        assert_eq!(next, [given[4], given[3]]);
        assert_eq!(table.open(at(3), HERE, ONE, None), None);
    }

    #[test]
    fn a_device_has_one_partition_at_all_its_addresses() {
        let mut table = Table::default();
        let first = table.open(at(0), HERE, ONE, None).unwrap();
        assert_eq!(table.open(at(0), THERE, OTHER, Some(first)), None);
        assert_eq!(table.open(at(0), THERE, ONE, Some(first)), Some(first));
        assert_eq!(table.open(at(0), THERE, ONE, Some(first)), None);
        assert_ne!(table.open(at(0), THERE, OTHER, None), Some(first));
        assert_eq!(table.open(at(0), THERE, ONE, Some(partition(OWN))), None);
    }

    #[test]
    fn a_service_is_one_clients() {
        let mut table = Table::default();
        let [a, b] = [ONE, OTHER].map(|user| table.open(at(0), HERE, user, None).unwrap());
        let (service, alike) = (ServiceId(7), ServiceId(7 | 1 << 63));
        assert_eq!(table.claim(at(0), (HERE, a), service), Response::Done);
        assert_eq!(table.claim(at(0), (HERE, a), service), Response::Done);
        assert_eq!(table.query(at(0), (HERE, b), service), Response::InUse);
        assert_eq!(table.claim(at(0), (HERE, b), service), Response::InUse);
        assert_eq!(table.claim(at(0), (HERE, b), alike), Response::Done);
        table.release((HERE, b), service); // not its service
        assert_eq!(table.listener(HERE, service), Some(a));
        assert_eq!(table.listener(THERE, service), None);
        table.close(at(0), (HERE, a));
        assert_eq!(table.listener(HERE, service), None);
        assert_eq!(table.claim(at(0), (HERE, b), service), Response::Done);
        assert_eq!(table.claim(at(0), (HERE, a), service), Response::InUse);
        let more = (0..MAX_SERVICES as u64 - 1)
            .map(|it| table.claim(at(0), (HERE, b), ServiceId(100 + it)));
        assert_eq!(more.last(), Some(Response::InUse));
        assert_eq!(table.claim(at(0), (HERE, b), service), Response::Done);
    }

    #[test]
    fn after_a_restart_all_is_kept_for_who_had_it() {
        let mut table = Table::default();
        let own = table.open(at(0), HERE, ONE, None).unwrap();
        table.claim(at(0), (HERE, own), ServiceId(7));
        let mut next = Table::restore(at(100), &table.save());
        let other = next.open(at(100), HERE, OTHER, None).unwrap();
        assert_ne!(other, own);
        assert_eq!(next.open(at(100), HERE, OTHER, Some(own)), None);
        assert_eq!(next.claim(at(100), (HERE, other), ServiceId(7)), Response::InUse);
        assert_eq!(next.open(at(101), HERE, ONE, Some(own)), Some(own));
        assert_eq!(next.claim(at(101), (HERE, own), ServiceId(7)), Response::Done);
        assert_eq!(next.listener(HERE, ServiceId(7)), Some(own));
        // late clients lose theirs
        let mut next = Table::restore(at(100), &table.save());
        let other = next.open(at(102), HERE, OTHER, None).unwrap();
        assert_eq!(next.claim(at(102), (HERE, other), ServiceId(7)), Response::Done);
        assert_eq!(next.open(at(130), HERE, OTHER, Some(own)), Some(own));
        assert_eq!(Table::restore(at(0), &[3; 77]), Table::default());
    }

    #[derive(Clone, Debug)]
    enum Step {
        Open(bool, u32, Option<u8>),
        Close(bool, u8),
        Claim(bool, u8, u64),
        Release(bool, u8, u64),
        Restart,
        Wait(u64),
    }

    fn steps() -> impl Strategy<Value = Vec<Step>> {
        let number = 1..=IdPartition::COUNT;
        let wanted = proptest::option::weighted(0.2, number.clone());
        proptest::collection::vec(
            prop_oneof![
                4 => (any::<bool>(), 0..4_u32, wanted).prop_map(|(a, u, p)| Step::Open(a, u, p)),
                2 => (any::<bool>(), number.clone()).prop_map(|(a, p)| Step::Close(a, p)),
                2 => (any::<bool>(), number.clone(), 0..3_u64)
                    .prop_map(|(a, p, s)| Step::Claim(a, p, s)),
                1 => (any::<bool>(), number, 0..3_u64).prop_map(|(a, p, s)| Step::Release(a, p, s)),
                1 => Just(Step::Restart),
                1 => (0..40_u64).prop_map(Step::Wait),
            ],
            0..200,
        )
    }

    proptest! {
        /// No two clients have the same partition or service. A partition rests 30 s before another
        /// user has it.
        #[test]
        fn what_is_one_clients_is_nobody_elses(steps in steps()) {
            let mut table = Table::default();
            let mut now = 0;
            // address, partition, user, start of rest
            let mut had: Vec<(IpAddr, IdPartition, u32, Option<u64>)> = Vec::new();
            let mut listeners: Vec<(IpAddr, ServiceId, IdPartition)> = Vec::new();
            for step in steps {
                let place = |here| if here { HERE } else { THERE };
                match step {
                    Step::Open(here, user, wanted) => {
                        let address = place(here);
                        let wanted = wanted.and_then(IdPartition::new);
                        let opened = table.open(at(now), address, user, wanted);
                        let Some(own) = opened else { continue };
                        prop_assert!(wanted.is_none_or(|wanted| wanted == own));
                        prop_assert!(own.get() != OWN);
                        for &(_, _, other, since) in
                            had.iter().filter(|it| (it.0, it.1) == (address, own))
                        {
                            let since = since.expect("a client has it");
                            prop_assert!(other == user || now - since >= QUARANTINE.as_secs());
                        }
                        had.retain(|it| (it.0, it.1) != (address, own));
                        had.push((address, own, user, None));
                        let live = had.iter().filter(|it| it.3.is_none() && it.0 == address);
                        let own = live.clone().filter(|it| it.2 == user && user != ROOT).count();
                        let users = live.filter(|it| it.2 != ROOT).count();
                        prop_assert!(own <= MAX_OF_USER && users <= MAX_OF_USERS);
                    }
                    Step::Close(here, number) => {
                        let (address, own) = (place(here), partition(number));
                        for it in had.iter_mut().filter(|it| (it.0, it.1) == (address, own)) {
                            it.3 = it.3.or(Some(now));
                        }
                        // the service ends a client once
                        if had.iter().any(|it| (it.0, it.1, it.3) == (address, own, Some(now))) {
                            table.close(at(now), (address, own));
                        }
                        listeners.retain(|it| (it.0, it.2) != (address, own));
                    }
                    Step::Claim(here, number, service) => {
                        let (address, own, service) =
                            (place(here), partition(number), ServiceId(service));
                        let result = table.claim(at(now), (address, own), service);
                        let is_live = had.iter().any(|it| (it.0, it.1, it.3) == (address, own, None));
                        let holder = listeners.iter().find(|it| (it.0, it.1) == (address, service));
                        if result == Response::Done {
                            prop_assert!(is_live && holder.is_none_or(|it| it.2 == own));
                            listeners.retain(|it| (it.0, it.1) != (address, service));
                            listeners.push((address, service, own));
                        }
                    }
                    Step::Release(here, number, service) => {
                        let (address, own, service) =
                            (place(here), partition(number), ServiceId(service));
                        table.release((address, own), service);
                        listeners.retain(|it| *it != (address, service, own));
                    }
                    Step::Restart => {
                        table = Table::restore(at(now), &table.save());
                        let quarantine = QUARANTINE.as_secs();
                        had.retain(|it| it.3.is_none_or(|since| now - since < quarantine));
                        had.iter_mut().for_each(|it| it.3 = Some(now));
                        listeners.clear();
                    }
                    Step::Wait(seconds) => now += seconds,
                }
                for &(address, service, own) in &listeners {
                    prop_assert_eq!(table.listener(address, service), Some(own));
                }
            }
        }
    }
}
