//! Partitions and services of clients: a function of requests and time.
//!
//! A partition is one client's at an address. When the client has ended it rests: only a client of
//! the same user gets it, since packets for the former one may be in flight. A client that has one
//! at another address, or had it when the service was restarted, gets the same.

use std::{
    net::{IpAddr, Ipv6Addr},
    time::Duration,
};

use roce_transport::{addr::Gid, cm::ServiceId, share::IdPartition, time::Instant};

use super::message::Answer;

pub(super) const REST: Duration = Duration::from_secs(30);
/// Time that services have to be claimed again after the service was restarted.
const AWAITED: Duration = Duration::from_secs(2);
/// The last partition is the service's own.
pub(in crate::link) const OWN: u8 = IdPartition::COUNT;
/// Partitions of an address for all users but root, and for one user, resting ones among them.
const MAX_OF_USERS: usize = 41;
pub(super) const MAX_OF_USER: usize = 20;
pub(super) const MAX_SERVICES: usize = 64;

const ROOT: u32 = 0;

#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub(super) struct Table {
    numbers: Vec<Numbers>,
    services: Vec<Service>,
    last: u8,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct Numbers {
    address: IpAddr,
    partition: IdPartition,
    user: u32,
    /// `None`: a client has it. It rests until then.
    rests_until: Option<Instant>,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct Service {
    address: IpAddr,
    service: ServiceId,
    user: u32,
    holder: Holder,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Holder {
    Client(IdPartition),
    /// A client of the user that comes until then.
    AwaitedUntil(Instant),
}

impl Table {
    /// Gives a new client of a user a partition at an address. Errors: [`Answer::InUse`] if another
    /// client has the `wanted` one; [`Answer::Full`] if the user has as many as it can.
    pub(super) fn open(
        &mut self,
        now: Instant,
        address: IpAddr,
        user: u32,
        wanted: Option<IdPartition>,
    ) -> Result<IdPartition, Answer> {
        self.numbers.retain(|it| it.rests_until.is_none_or(|until| now < until));
        let partition = match wanted {
            Some(partition) if self.may_have(address, user, partition) => partition,
            Some(_) => return Err(Answer::InUse),
            None => self.choose(address, user).ok_or(Answer::Full)?,
        };
        self.numbers.retain(|it| (it.address, it.partition) != (address, partition));
        self.numbers.push(Numbers { address, partition, user, rests_until: None });
        Ok(partition)
    }

    /// True if a client of the user may have this partition, which it has elsewhere or had before.
    fn may_have(&self, address: IpAddr, user: u32, partition: IdPartition) -> bool {
        let mut same = self.numbers.iter().filter(|it| it.partition == partition);
        let is_free =
            |it: &Numbers| it.user == user && (it.address != address || it.rests_until.is_some());
        let had = |it: &Numbers| (it.address, it.partition) == (address, partition);
        partition.get() != OWN
            && same.all(is_free)
            && (self.has_room(address, user) || self.numbers.iter().any(had))
    }

    /// A partition that nobody has at any address, or nobody at this one, or else the one of the
    /// user that has rested for longest.
    fn choose(&mut self, address: IpAddr, user: u32) -> Option<IdPartition> {
        let next =
            (0..OWN - 1).filter_map(|step| IdPartition::new((self.last + step) % (OWN - 1) + 1));
        let is_new =
            |partition: &IdPartition| self.numbers.iter().all(|it| it.partition != *partition);
        let is_free = |partition: &IdPartition| {
            let mut here = self.numbers.iter().filter(|it| it.address == address);
            here.all(|it| it.partition != *partition)
        };
        let found = if self.has_room(address, user) {
            next.clone().find(is_new).or_else(|| next.clone().find(is_free))
        } else {
            None
        };
        let rested = || {
            let own = self.numbers.iter().filter(|it| (it.address, it.user) == (address, user));
            let resting = own.filter_map(|it| Some((it.rests_until?, it.partition)));
            resting.min().map(|(_, partition)| partition)
        };
        let chosen = found.or_else(rested)?;
        self.last = chosen.get();
        Some(chosen)
    }

    /// True if the user may have one more partition at an address, whether it rests or not.
    fn has_room(&self, address: IpAddr, user: u32) -> bool {
        let here = self.numbers.iter().filter(|it| it.address == address);
        let own = here.clone().filter(|it| it.user == user).count();
        let users = here.filter(|it| it.user != ROOT).count();
        user == ROOT || own < MAX_OF_USER && users < MAX_OF_USERS
    }

    pub(super) fn close(&mut self, now: Instant, address: IpAddr, partition: IdPartition) {
        for it in &mut self.numbers {
            if (it.address, it.partition) == (address, partition) {
                it.rests_until = Some(now.plus(REST));
            }
        }
        self.services.retain(|it| (it.address, it.holder) != (address, Holder::Client(partition)));
    }

    pub(super) fn forget(&mut self, address: IpAddr) {
        self.numbers.retain(|it| it.address != address);
        self.services.retain(|it| it.address != address);
    }

    pub(super) fn listener(&self, address: IpAddr, service: ServiceId) -> Option<IdPartition> {
        let found = self.services.iter().find(|it| (it.address, it.service) == (address, service));
        match found?.holder {
            Holder::Client(partition) => Some(partition),
            Holder::AwaitedUntil(_) => None,
        }
    }

    pub(super) fn query(
        &self,
        now: Instant,
        address: IpAddr,
        partition: IdPartition,
        service: ServiceId,
    ) -> Answer {
        let found = self.services.iter().find(|it| (it.address, it.service) == (address, service));
        let may = found.is_none_or(|it| match it.holder {
            Holder::Client(holder) => holder == partition,
            Holder::AwaitedUntil(until) => {
                until <= now || Some(it.user) == self.user(address, partition)
            }
        });
        if may { Answer::Done } else { Answer::InUse }
    }

    pub(super) fn claim(
        &mut self,
        now: Instant,
        address: IpAddr,
        partition: IdPartition,
        service: ServiceId,
    ) -> Answer {
        let Some(user) = self.user(address, partition) else { return Answer::InUse };
        if self.query(now, address, partition, service) != Answer::Done {
            return Answer::InUse;
        }
        let is_it = |it: &Service| (it.address, it.service) == (address, service);
        let holder = Holder::Client(partition);
        let others = self.services.iter().filter(|it| !is_it(it));
        if others.filter(|it| (it.address, it.holder) == (address, holder)).count() >= MAX_SERVICES
        {
            return Answer::Full;
        }
        self.services.retain(|it| !is_it(it));
        self.services.push(Service { address, service, user, holder });
        Answer::Done
    }

    pub(super) fn release(&mut self, address: IpAddr, partition: IdPartition, service: ServiceId) {
        let own = (address, service, Holder::Client(partition));
        self.services.retain(|it| (it.address, it.service, it.holder) != own);
    }

    fn user(&self, address: IpAddr, partition: IdPartition) -> Option<u32> {
        let is_it = |it: &&Numbers| (it.address, it.partition) == (address, partition);
        let found = self.numbers.iter().find(is_it).filter(|it| it.rests_until.is_none());
        found.map(|it| it.user)
    }

    pub(super) fn save(&self) -> Vec<u8> {
        let numbers = self
            .numbers
            .iter()
            .map(|it| entry(it.address, it.user, u64::from(it.partition.get()) << 56, NUMBERS));
        let services = self.services.iter();
        let services = services.map(|it| entry(it.address, it.user, it.service.0, SERVICE));
        numbers.chain(services).flatten().collect()
    }

    /// The table that a service has left: all rests, and services wait for clients of their users.
    pub(super) fn restore(now: Instant, saved: &[u8]) -> Self {
        let mut table = Self::default();
        for entry in saved.as_chunks::<ENTRY>().0 {
            let (address, user, number, kind) = parse(entry);
            let rests_until = Some(now.plus(REST));
            match (kind, IdPartition::new(number.to_be_bytes()[0])) {
                (NUMBERS, Some(partition)) => {
                    table.numbers.push(Numbers { address, partition, user, rests_until });
                }
                (SERVICE, _) => {
                    let holder = Holder::AwaitedUntil(now.plus(AWAITED));
                    let service = ServiceId(number);
                    table.services.push(Service { address, service, user, holder });
                }
                _ => {}
            }
        }
        table
    }
}

const ENTRY: usize = 32;
const NUMBERS: u32 = 1;
const SERVICE: u32 = 2;

fn entry(address: IpAddr, user: u32, number: u64, kind: u32) -> [u8; ENTRY] {
    let mut entry = [0; ENTRY];
    entry[..4].copy_from_slice(&kind.to_ne_bytes());
    entry[4..8].copy_from_slice(&user.to_ne_bytes());
    entry[8..16].copy_from_slice(&number.to_ne_bytes());
    entry[16..].copy_from_slice(&Gid::from(address).0);
    entry
}

fn parse(entry: &[u8; ENTRY]) -> (IpAddr, u32, u64, u32) {
    let word = |at: usize| u32::from_ne_bytes(std::array::from_fn(|byte| entry[at + byte]));
    let number = u64::from_ne_bytes(std::array::from_fn(|byte| entry[8 + byte]));
    let address: [u8; 16] = std::array::from_fn(|byte| entry[16 + byte]);
    (Ipv6Addr::from(address).to_canonical(), word(4), number, word(0))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const HERE: IpAddr = IpAddr::V4(std::net::Ipv4Addr::new(10, 0, 0, 1));
    const THERE: IpAddr = IpAddr::V4(std::net::Ipv4Addr::new(10, 0, 0, 2));
    const ONE: u32 = 1000;
    const OTHER: u32 = 1001;
    const THIRD: u32 = 1002;

    fn at(seconds: u64) -> Instant {
        Instant::ZERO.plus(Duration::from_secs(seconds))
    }

    fn partition(number: u8) -> IdPartition {
        IdPartition::new(number).unwrap()
    }

    /// As many as a user gets.
    fn all(table: &mut Table, user: u32) -> Vec<IdPartition> {
        std::iter::from_fn(|| table.open(at(0), HERE, user, None).ok()).collect()
    }

    #[test]
    fn a_partition_rests_before_another_user_has_it() {
        let mut table = Table::default();
        let mut given = Vec::new();
        let former = table.open(at(0), HERE, ONE, None).unwrap();
        table.close(at(1), HERE, former);
        for _ in 0..MAX_OF_USER {
            given.push(table.open(at(30), HERE, OTHER, None).unwrap());
        }
        assert!(!given.contains(&former));
        assert_eq!(table.open(at(30), HERE, OTHER, Some(former)), Err(Answer::InUse));
        assert_eq!(table.open(at(30), HERE, THIRD, Some(former)), Err(Answer::InUse));
        assert_eq!(table.open(at(31), HERE, THIRD, Some(former)), Ok(former));
    }

    #[test]
    fn no_user_has_what_is_kept_for_others() {
        let mut table = Table::default();
        let counts = [ONE, OTHER, THIRD].map(|user| all(&mut table, user).len());
        assert_eq!(counts, [20, 20, 1]);
        let root = all(&mut table, ROOT);
        assert_eq!(root.len(), 20);
        let mut numbers: Vec<_> = table.numbers.iter().map(|it| it.partition.get()).collect();
        numbers.sort_unstable();
        assert_eq!(numbers, (1..OWN).collect::<Vec<_>>());
        // at another address there are others
        assert!(table.open(at(0), THERE, THIRD, None).is_ok());
    }

    /// Programs that follow one another fast get the partitions of those before, the oldest first.
    #[test]
    fn a_user_that_has_all_of_its_partitions_gets_those_that_rest() {
        let mut table = Table::default();
        let given = all(&mut table, ONE);
        table.close(at(1), HERE, given[4]);
        table.close(at(2), HERE, given[3]);
        let next: Vec<_> = std::iter::from_fn(|| table.open(at(3), HERE, ONE, None).ok()).collect();
        assert_eq!(next, [given[4], given[3]]);
        assert_eq!(table.open(at(3), HERE, ONE, None), Err(Answer::Full));
    }

    #[test]
    fn a_device_has_one_partition_at_all_its_addresses() {
        let mut table = Table::default();
        let first = table.open(at(0), HERE, ONE, None).unwrap();
        assert_eq!(table.open(at(0), THERE, OTHER, Some(first)), Err(Answer::InUse));
        assert_eq!(table.open(at(0), THERE, ONE, Some(first)), Ok(first));
        assert_eq!(table.open(at(0), THERE, ONE, Some(first)), Err(Answer::InUse));
        assert_ne!(table.open(at(0), THERE, OTHER, None), Ok(first));
        assert_eq!(table.open(at(0), THERE, ONE, Some(partition(OWN))), Err(Answer::InUse));
    }

    #[test]
    fn a_service_is_one_clients() {
        let mut table = Table::default();
        let [a, b] = [ONE, OTHER].map(|user| table.open(at(0), HERE, user, None).unwrap());
        let (service, alike) = (ServiceId(7), ServiceId(7 | 1 << 63));
        assert_eq!(table.claim(at(0), HERE, a, service), Answer::Done);
        assert_eq!(table.claim(at(0), HERE, a, service), Answer::Done);
        assert_eq!(table.query(at(0), HERE, b, service), Answer::InUse);
        assert_eq!(table.claim(at(0), HERE, b, service), Answer::InUse);
        assert_eq!(table.claim(at(0), HERE, b, alike), Answer::Done);
        table.release(HERE, b, service); // which it does not have
        assert_eq!(table.listener(HERE, service), Some(a));
        assert_eq!(table.listener(THERE, service), None);
        table.close(at(0), HERE, a);
        assert_eq!(table.listener(HERE, service), None);
        assert_eq!(table.claim(at(0), HERE, b, service), Answer::Done);
        assert_eq!(table.claim(at(0), HERE, a, service), Answer::InUse);
        let more =
            (0..MAX_SERVICES as u64 - 1).map(|it| table.claim(at(0), HERE, b, ServiceId(100 + it)));
        assert_eq!(more.last(), Some(Answer::Full));
        assert_eq!(table.claim(at(0), HERE, b, service), Answer::Done);
    }

    #[test]
    fn after_a_restart_all_is_kept_for_who_had_it() {
        let mut table = Table::default();
        let own = table.open(at(0), HERE, ONE, None).unwrap();
        table.claim(at(0), HERE, own, ServiceId(7));
        let mut next = Table::restore(at(100), &table.save());
        let other = next.open(at(100), HERE, OTHER, None).unwrap();
        assert_ne!(other, own);
        assert_eq!(next.open(at(100), HERE, OTHER, Some(own)), Err(Answer::InUse));
        assert_eq!(next.claim(at(100), HERE, other, ServiceId(7)), Answer::InUse);
        assert_eq!(next.open(at(101), HERE, ONE, Some(own)), Ok(own));
        assert_eq!(next.claim(at(101), HERE, own, ServiceId(7)), Answer::Done);
        assert_eq!(next.listener(HERE, ServiceId(7)), Some(own));
        // who does not come has lost it
        let mut next = Table::restore(at(100), &table.save());
        let other = next.open(at(102), HERE, OTHER, None).unwrap();
        assert_eq!(next.claim(at(102), HERE, other, ServiceId(7)), Answer::Done);
        assert_eq!(next.open(at(130), HERE, OTHER, Some(own)), Ok(own));
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
        /// Whatever clients ask for, no two have the same, and nobody has what another user has had
        /// in the last 30 seconds.
        #[test]
        fn what_is_one_clients_is_nobody_elses(steps in steps()) {
            let mut table = Table::default();
            let mut now = 0;
            // address, partition, user, and since when it rests
            let mut had: Vec<(IpAddr, IdPartition, u32, Option<u64>)> = Vec::new();
            let mut listeners: Vec<(IpAddr, ServiceId, IdPartition)> = Vec::new();
            for step in steps {
                let place = |here| if here { HERE } else { THERE };
                match step {
                    Step::Open(here, user, wanted) => {
                        let address = place(here);
                        let wanted = wanted.and_then(IdPartition::new);
                        let Ok(own) = table.open(at(now), address, user, wanted) else { continue };
                        prop_assert!(wanted.is_none_or(|wanted| wanted == own));
                        prop_assert!(own.get() != OWN);
                        for &(_, _, other, since) in
                            had.iter().filter(|it| (it.0, it.1) == (address, own))
                        {
                            let since = since.expect("a client has it");
                            prop_assert!(other == user || now - since >= REST.as_secs());
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
                        if had.contains(&(address, own, 0, Some(now)))
                            || had.iter().any(|it| (it.0, it.1, it.3) == (address, own, Some(now)))
                        {
                            table.close(at(now), address, own);
                        }
                        listeners.retain(|it| (it.0, it.2) != (address, own));
                    }
                    Step::Claim(here, number, service) => {
                        let (address, own, service) =
                            (place(here), partition(number), ServiceId(service));
                        let result = table.claim(at(now), address, own, service);
                        let is_live = had.iter().any(|it| (it.0, it.1, it.3) == (address, own, None));
                        let holder = listeners.iter().find(|it| (it.0, it.1) == (address, service));
                        if result == Answer::Done {
                            prop_assert!(is_live && holder.is_none_or(|it| it.2 == own));
                            listeners.retain(|it| (it.0, it.1) != (address, service));
                            listeners.push((address, service, own));
                        }
                    }
                    Step::Release(here, number, service) => {
                        let (address, own, service) =
                            (place(here), partition(number), ServiceId(service));
                        table.release(address, own, service);
                        listeners.retain(|it| *it != (address, service, own));
                    }
                    Step::Restart => {
                        table = Table::restore(at(now), &table.save());
                        had.retain(|it| it.3.is_none_or(|since| now - since < REST.as_secs()));
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
