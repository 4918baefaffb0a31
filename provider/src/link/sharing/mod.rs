//! Other processes of this host: shared addresses, and packets through shared memory instead of the
//! network stack.
//!
//! A process's socket has a [name](names) with its address and its partition. A sender to a queue
//! pair connects to this socket. If each process [trusts](super::credentials) the other, the sender
//! makes a [ring](super::rings) and sends its memory. The receiver responds with an event
//! descriptor for wakeups. Until then, and without a socket, packets take the network stack.
//!
//! A socket named by an address alone leads to the processes that [share](address) the address.

mod acquire;
mod address;
mod claim;
mod ends;
mod hello;
mod inbox;
mod listener;
mod members;
mod names;
mod owner;
mod paths;
mod reaper;
mod record;
mod shared_state;

use std::{
    collections::VecDeque,
    io,
    net::IpAddr,
    os::fd::{AsFd, BorrowedFd, OwnedFd},
};

use roce_transport::{
    adapter::Transmit,
    cm::{ConnId, ConnRecord},
    share::{IdPartition, Requests},
    time::Instant,
};
use socket2::Socket;

use super::{CHECK_INTERVAL, Ended, epoll, rings::Reader};
use crate::cancel::Uncancelled;
pub use acquire::Locality;
pub(super) use acquire::{Acquired, acquire, other_user};
use ends::{Ends, LivenessProbe};
use hello::Hello;
use inbox::Inbox;
use listener::{Listeners, Pending};
pub(super) use members::MakeSocket;
use owner::SharedAddress;
use paths::{Destination, Paths};
pub(crate) use reaper::{Left, Members};

pub(super) struct Sharing {
    /// Readable when any other descriptor here is. Never replaced.
    epoll: OwnedFd,
    listeners: Listeners,
    pub(super) paths: Paths,
    pub(super) inbox: Inbox,
    pub(super) locality: Locality,
    /// True if an adapter made every sent byte.
    pub(super) trusted: bool,
    /// Partition of this device on all its addresses.
    pub(super) partition: Option<IdPartition>,
    addresses: Vec<SharedAddress>,
    requests: Requests,
    /// True if another process is, or was, at any of the addresses.
    pub(super) is_shared: bool,
    /// Member sockets to read from now on, by address.
    members: Vec<(IpAddr, Socket)>,
    ends: Ends,
    pub(super) ended: VecDeque<Ended>,
    look_at: Instant,
}

impl Sharing {
    pub(super) fn new(locality: Locality) -> io::Result<Self> {
        let epoll = rustix::event::epoll::create(rustix::event::epoll::CreateFlags::CLOEXEC)?;
        Ok(Self {
            epoll,
            listeners: Listeners::default(),
            paths: Paths::default(),
            inbox: Inbox::new()?,
            locality,
            trusted: false,
            partition: None,
            addresses: Vec::new(),
            requests: Requests::default(),
            is_shared: false,
            members: Vec::new(),
            ends: Ends::default(),
            ended: VecDeque::new(),
            look_at: Instant::ZERO,
        })
    }

    /// Descriptors, one of which is readable when there is work. Runs make a descriptor readable
    /// only while a thread is [parked](Inbox::park).
    pub(super) fn descriptors(&self) -> [BorrowedFd<'_>; 2] {
        [self.inbox.wakeup.as_fd(), self.epoll.as_fd()]
    }

    pub(super) fn keep_record(&mut self, now: Instant, conn: ConnId, record: &ConnRecord) {
        self.at_mut(record.local).into_iter().for_each(|it| it.keep_record(record));
        self.ends.records.insert(conn, *record);
        // find the peer now: perhaps nothing is ever sent to it
        if !self.locality.is_in_process() {
            let partition = IdPartition::of_id(record.remote_id);
            let destination = Destination { src: record.local, dst: record.remote, partition };
            let interface = self.interface(record.local);
            self.paths.request(now, &self.epoll, destination, interface, true);
        }
    }

    pub(super) fn discard_record(&mut self, conn: ConnId) {
        if let Some(record) = self.ends.records.remove(&conn)
            && let Some(shared) = self.at_mut(record.local)
        {
            shared.erase_record(&record);
        }
    }

    /// Time at which [`attend`](Self::attend) is due without a readable descriptor.
    pub(super) fn deadline(&self) -> Option<Instant> {
        let all = [self.listeners.deadline(), self.ends.deadline(), self.paths.write_at];
        let roles = self.addresses.iter().filter_map(SharedAddress::deadline);
        all.into_iter().flatten().chain(roles).min()
    }

    /// Accepts and forgets processes, and writes runs that found no room.
    pub(super) fn attend(&mut self, now: Instant) {
        // no short circuit: every round begins
        if self.addresses.iter().fold(false, |due, shared| shared.begin_round(now) | due) {
            self.update_roles(now);
        }
        self.paths.write_backlogs(now);
        if self.listeners.deadline().is_some_and(|due| due <= now) {
            self.accept_pending(now);
        }
        self.look_for_the_ended(now);
        if now < self.look_at {
            return;
        }
        self.look_at = now.plus(CHECK_INTERVAL);
        self.inbox.reads_wakeup = true;
        let (is_news, is_arrival) = epoll::poll_events(&self.epoll);
        if is_arrival {
            self.addresses.iter_mut().for_each(|shared| shared.record_arrival(now));
        }
        if !is_news {
            return;
        }
        let _uncancelled = Uncancelled::begin(); // descriptors may be closed
        self.accept_pending(now);
        let (ended, has_peer_ended) = self.paths.update(now);
        for ended in ended {
            let interface = self.interface(ended.src);
            self.ends.pending.push((LivenessProbe::begin(now), ended, interface));
        }
        if has_peer_ended {
            self.ends.left = Some(LivenessProbe::begin(now));
        }
        self.inbox.update();
        self.update_roles(now);
        self.inbox.drop_ended();
        self.look_for_the_ended(now);
    }

    fn look_for_the_ended(&mut self, now: Instant) {
        if self.ends.deadline().is_none_or(|due| now < due) {
            return;
        }
        let _uncancelled = Uncancelled::begin();
        self.take_left(now);
        let dead = self.ends.run_checks(now);
        self.ended.extend((!dead.is_empty()).then_some(Ended::There(dead)));
    }

    /// A refusal closes the connection.
    fn accept_pending(&mut self, now: Instant) {
        let _uncancelled = Uncancelled::begin();
        for (pending, hello, reader) in self.listeners.accept_pending(now, &self.epoll) {
            // a refused request is repeated, or not needed
            let _ = self.accept(now, pending, hello, reader);
        }
    }

    fn accept(
        &mut self,
        now: Instant,
        pending: Pending,
        hello: Hello,
        reader: Option<Reader>,
    ) -> io::Result<()> {
        let Pending { dst, socket, is_direct, .. } = pending;
        let is_own = || super::credentials::process(&socket).ok() == Some(std::process::id());
        match (hello, reader, is_direct) {
            // packets take the network stack
            (Hello::From(_), ..) if self.locality.is_in_process() => Ok(()),
            _ if self.locality.is_in_process() && !is_own() => Ok(()),
            (_, Some(reader), true) => self.inbox.add(hello, dst, socket, reader),
            (Hello::JoinAddress, _, false) => {
                self.at_mut(dst).ok_or(io::ErrorKind::PermissionDenied)?.grant(&socket)?;
                self.is_shared = true;
                Ok(())
            }
            (Hello::RegisterPeer(partition), _, false) => {
                let partition = IdPartition::new(partition).ok_or(io::ErrorKind::InvalidData)?;
                let owner = self.at_mut(dst).filter(|shared| shared.is_owner());
                let term = owner.ok_or(io::ErrorKind::PermissionDenied)?.term;
                self.paths.add_forward(now, &self.epoll, dst, partition, (socket, term))?;
                self.addresses.iter_mut().for_each(SharedAddress::steer);
                Ok(())
            }
            _ => Ok(()),
        }
    }

    /// True if there are channels for all datagrams of a run. Otherwise, requests channels.
    pub(super) fn reaches(
        &mut self,
        now: Instant,
        bytes: &[u8],
        run: &Transmit,
        interface: u32,
    ) -> bool {
        if self.paths.can_carry(bytes, run) {
            return true;
        }
        if !self.locality.is_in_process() {
            let &Transmit { src, dst, .. } = run;
            let partition = paths::partition_of(run.payload(bytes));
            let destination = Destination { src, dst, partition };
            self.paths.request(now, &self.epoll, destination, interface, false);
        }
        false
    }

    /// False for trusted runs through channels: their receiver does not check ICRCs.
    pub(super) fn needs_icrc(&self, bytes: &[u8], run: &Transmit) -> bool {
        !(self.trusted && self.paths.can_carry(bytes, run))
    }

    /// Makes the next round look at everything.
    pub(super) const fn look(&mut self) {
        self.look_at = Instant::ZERO;
    }
}

#[cfg(test)]
mod tests;
