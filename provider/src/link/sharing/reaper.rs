//! A reaper: a process that outlives a program, and notifies the peers of the program's connections
//! when nobody is left at the program's addresses.
//!
//! `ROCE_REAPER` has the name of the reaper's Unix socket, and a secret. A process with a shared
//! address sends the secret, the address and its claim table. The reaper reads the table after the
//! connection has ended. Only the secret vouches for a process that ends before the reaper looks.
//! Only a process that could trace the program knows the secret.

use std::{
    io,
    net::IpAddr,
    os::fd::{AsFd, BorrowedFd, OwnedFd},
    time::Duration,
};

use roce_transport::{cm::ConnRecord, share::IdPartition, time::Instant};

use super::{
    claim::{ClaimTable, Entry},
    ends::LivenessProbe,
    listener::ACCEPT_BACKOFF,
    record,
};
use crate::{
    cancel::Uncancelled,
    link::{
        descriptors::{peek_with, receive_with, send_with},
        message,
        name::Name,
        rings::is_closed,
        stranger::{self, Unchecked},
    },
    readiness::wait,
    variables,
};

/// Most processes, and most new processes per round.
const MAX_MEMBERS: usize = 4096;
const ACCEPT_BATCH: usize = 64;
/// Time for a hello, which only a busy processor delays.
const HELLO_TIMEOUT: Duration = Duration::from_secs(1);
/// Message of a program: this, the secret, an address. The last byte is the table's version.
const HELLO: [u8; 8] = *b"reap\0\0\0\x03";
const HELLO_LEN: usize = HELLO.len() + 2 * 16 + 1;

type Secret = [u8; 16];

/// Registers an address with the reaper, if any, until the connection is closed.
pub(super) fn notify(address: IpAddr, claims: &ClaimTable) -> Option<OwnedFd> {
    let variable = variables::value(variables::REAPER)?;
    notify_as(variable.to_str()?, address, claims)
}

fn notify_as(variable: &str, address: IpAddr, claims: &ClaimTable) -> Option<OwnedFd> {
    let (name, secret) = variable.rsplit_once(' ')?;
    let socket = Unchecked::connect(name.as_bytes()).ok()?.check().ok()?;
    let secret = u128::from_str_radix(secret, 16).ok()?.to_be_bytes();
    let hello = message::encode::<HELLO_LEN>(&(HELLO, secret, address));
    send_with(&socket, &hello, &[claims.file.as_fd()]).ok()?;
    Some(socket)
}

fn address_in(said: &[u8], secret: &Secret) -> Option<IpAddr> {
    let (hello, theirs, address): ([u8; 8], Secret, _) = message::decode(said)?;
    (said.len() == HELLO_LEN && (hello, theirs) == (HELLO, *secret)).then_some(address)
}

pub(crate) struct Members {
    /// Value of `ROCE_REAPER`.
    pub(crate) variable: String,
    secret: Secret,
    listener: Name,
    members: Vec<Member>,
    /// Set while nobody can be accepted.
    backoff_until: Option<Instant>,
}

struct Member {
    address: IpAddr,
    claims: ClaimTable,
    socket: OwnedFd,
    /// Checks at the address, after the process's end.
    probe: Option<LivenessProbe>,
}

/// Partitions and connections at an address whose processes have all ended.
pub(crate) struct Left {
    pub(crate) address: IpAddr,
    pub(crate) partitions: Vec<IdPartition>,
    pub(crate) records: Vec<ConnRecord>,
}

impl Members {
    /// Listens with a random name, which everybody can see, and a secret.
    pub(crate) fn new() -> io::Result<Self> {
        let mut random = [Secret::default(); 2];
        getrandom::fill(random.as_flattened_mut()).map_err(io::Error::other)?;
        let [name, secret] = random;
        let name = format!("roce reaper {:032x}", u128::from_be_bytes(name));
        let listener = Name::listen(name.as_bytes())?;
        let variable = format!("{name} {:032x}", u128::from_be_bytes(secret));
        Ok(Self { variable, secret, listener, members: Vec::new(), backoff_until: None })
    }

    pub(crate) fn descriptors(&self) -> Vec<BorrowedFd<'_>> {
        let running = self.members.iter().filter(|member| member.probe.is_none());
        let listener = self.backoff_until.is_none().then(|| self.listener.as_fd());
        listener.into_iter().chain(running.map(|one| one.socket.as_fd())).collect()
    }

    pub(crate) fn deadline(&self) -> Option<Instant> {
        self.probes().chain(self.backoff_until).min()
    }

    pub(crate) fn is_busy(&self) -> bool {
        self.probes().next().is_some()
    }

    fn probes(&self) -> impl Iterator<Item = Instant> {
        self.members.iter().filter_map(|member| member.probe.as_ref()).map(|probe| probe.due)
    }

    /// Accepts processes, and checks the addresses of ended processes.
    pub(crate) fn attend(&mut self, now: Instant) -> Vec<Left> {
        let _uncancelled = Uncancelled::begin();
        self.backoff_until = stranger::is_full().then(|| now.plus(ACCEPT_BACKOFF));
        self.accept();
        let mut left = Vec::new();
        self.members.retain_mut(|member| {
            if member.probe.is_none() && is_closed(&member.socket) {
                member.probe = Some(LivenessProbe::begin(now));
            }
            let Some(probe) = member.probe.take_if(|probe| probe.due <= now) else { return true };
            match member.left() {
                None => member.probe = probe.next(now),
                Some(found) => left.extend((!found.records.is_empty()).then_some(found)),
            }
            member.probe.is_some()
        });
        left
    }

    fn accept(&mut self) {
        for _ in 0..ACCEPT_BATCH {
            let Ok(unchecked) = self.listener.accept() else { break };
            // an ended process of the same user: only the secret vouches for the process
            let knows = |socket: &OwnedFd| {
                let mut said = [0; HELLO_LEN];
                let peeked = peek_with(socket, &mut said);
                peeked.is_ok_and(|(length, _)| address_in(&said[..length], &self.secret).is_some())
            };
            let Ok(socket) = unchecked.check_or(knows) else { continue };
            if self.members.len() < MAX_MEMBERS {
                self.members.extend(Member::greeted(socket, &self.secret).ok());
            }
        }
    }
}

impl Member {
    fn greeted(socket: OwnedFd, secret: &Secret) -> io::Result<Self> {
        wait(&[socket.as_fd()], Some(HELLO_TIMEOUT))?;
        let mut said = [0; HELLO_LEN];
        let (length, descriptors) = receive_with(&socket, &mut said)?;
        let address = address_in(&said[..length], secret).ok_or(io::ErrorKind::InvalidData)?;
        let claims = ClaimTable::join(&descriptors)?;
        Ok(Self { address, claims, socket, probe: None })
    }

    /// State left at the address, if no process remains there.
    fn left(&self) -> Option<Left> {
        let partitions = IdPartition::all();
        if partitions.clone().any(|partition| self.claims.is_taken(Entry::Partition(partition))) {
            return None;
        }
        let file = &self.claims.file;
        let used = record::used_partitions(file);
        let read = |&partition: &IdPartition| {
            let records = record::left_in(file, partition, self.address);
            record::clear(file, partition); // other members have the same table
            records
        };
        let records = used.iter().flat_map(read).collect();
        Some(Left { address: self.address, partitions: used, records })
    }
}

#[cfg(test)]
mod tests {
    use roce_transport::{addr::PKey, ids::Qpn};

    use super::{super::record::OwnRecords, *};
    use crate::link::partition;

    fn at(millis: u64) -> Instant {
        Instant::ZERO.plus(Duration::from_millis(millis))
    }

    fn join(claims: &ClaimTable) -> ClaimTable {
        ClaimTable::join(&[claims.file.as_fd().try_clone_to_owned().unwrap()]).unwrap()
    }

    fn process(claims: ClaimTable, number: u8) -> (ClaimTable, ConnRecord) {
        let own = partition(number);
        claims.take(Entry::Partition(own)).unwrap();
        let record = ConnRecord {
            local: [10, 0, 0, 1].into(),
            remote: [10, 0, 0, 2].into(),
            pkey: PKey::DEFAULT,
            local_id: *own.ids().start() + 1,
            remote_id: 7,
            local_qpn: Qpn::new(2),
            remote_qpn: Qpn::new(3),
        };
        OwnRecords::default().keep(&claims.file, own, &record).unwrap();
        (claims, record)
    }

    fn attend(
        members: &mut Members,
        from: u64,
        time: u64,
    ) -> Vec<(Vec<IdPartition>, Vec<ConnRecord>)> {
        let left = (from..from + time).flat_map(|now| members.attend(at(now)));
        left.map(|left| (left.partitions, left.records)).collect()
    }

    #[test]
    fn the_last_at_an_address_leaves_what_all_have_left() {
        let mut members = Members::new().unwrap();
        let address = [10, 0, 0, 1].into();
        let (first, first_record) = process(ClaimTable::new().unwrap(), 3);
        let (second, second_record) = process(join(&first), 5);
        let connections =
            [&first, &second].map(|claims| notify_as(&members.variable, address, claims).unwrap());
        assert!(attend(&mut members, 0, 5).is_empty() && !members.is_busy());
        assert_eq!(members.descriptors().len(), 3);
        let [first_connection, second_connection] = connections;
        // the second remains, and handles the first's end
        drop((first, first_connection));
        assert!(attend(&mut members, 10, 2000).is_empty() && !members.is_busy());
        // descriptors close one after another
        drop(second_connection);
        assert!(attend(&mut members, 3000, 3).is_empty() && members.is_busy());
        drop(second);
        let left = (vec![partition(3), partition(5)], vec![first_record, second_record]);
        assert_eq!(attend(&mut members, 3003, 1000), [left]);
        assert!(!members.is_busy() && members.descriptors().len() == 1);
    }

    #[test]
    fn a_process_that_has_ended_its_connections_leaves_nothing() {
        let mut members = Members::new().unwrap();
        let (claims, _) = process(ClaimTable::new().unwrap(), 3);
        record::clear(&claims.file, partition(3));
        let connection = notify_as(&members.variable, [10, 0, 0, 1].into(), &claims).unwrap();
        assert!(attend(&mut members, 0, 1).is_empty());
        drop((connection, claims));
        assert!(attend(&mut members, 1, 1).is_empty() && !members.is_busy());
    }

    #[test]
    fn a_greeting_that_makes_no_sense_is_refused() {
        let mut members = Members::new().unwrap();
        let claims = ClaimTable::new().unwrap();
        let address: IpAddr = [10, 0, 0, 1].into();
        let right = message::encode::<HELLO_LEN>(&(HELLO, members.secret, address));
        let mut wrong = right;
        wrong[HELLO.len()] ^= 1; // another secret
        let name = members.variable.rsplit_once(' ').unwrap().0.as_bytes().to_vec();
        let file = std::fs::File::open("/dev/null").unwrap();
        let connect = || Unchecked::connect(&name).unwrap().check().unwrap();
        let say = |bytes: &[u8], descriptors: &[BorrowedFd<'_>]| {
            let socket = connect();
            send_with(&socket, bytes, descriptors).unwrap();
            socket
        };
        let _sockets = [
            say(&right, &[]),
            say(&right, &[file.as_fd()]),
            say(&right[..HELLO_LEN - 1], &[claims.file.as_fd()]),
            say(&wrong, &[claims.file.as_fd()]),
            say(b"x", &[claims.file.as_fd()]),
            connect(), // sends nothing
        ];
        assert!(attend(&mut members, 0, 2).is_empty());
        assert_eq!(members.descriptors().len(), 1);
    }
}
