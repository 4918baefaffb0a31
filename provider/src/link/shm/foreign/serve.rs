//! Foreign peers, as the owner of their address serves them.

use std::{
    collections::BTreeSet,
    io, mem,
    net::IpAddr,
    os::fd::{AsFd, OwnedFd},
    time::Duration,
};

use roce_transport::{cm::ServiceId, share::IdPartition};

use super::{
    super::{
        address::SharedAddresses,
        claim::Entry,
        owner::SharedAddress,
        peer::Peer,
        record,
        ring::Writer,
        sender::{ShmSender, Wakeup},
        socket::send_with,
    },
    message::{self, Answer, Request},
    peer::ForeignPeer,
};

/// Number of foreign peers at an address, and of those of one user. The owner's own user has the
/// partitions that are left, whatever others do.
const MAX_FOREIGN: usize = 40;
pub(in super::super) const MAX_OF_USER: usize = 20;
/// Time that one has to ask for a partition.
const SILENCE: Duration = Duration::from_secs(1);

impl SharedAddresses {
    /// Accepts a process of another user at an address of which this one is the owner.
    ///
    /// # Errors
    /// [`io::ErrorKind::PermissionDenied`] if it is not, or if there are too many of that user, or at
    /// all.
    pub(in super::super) fn accept_foreign(
        &mut self,
        address: IpAddr,
        socket: OwnedFd,
        user: u32,
    ) -> io::Result<()> {
        let now = self.now();
        self.peers.retain(|peer| {
            let is_silent = peer.foreign.as_ref().filter(|_| peer.partition.is_none());
            is_silent.is_none_or(|foreign| now.since(foreign.since) < SILENCE)
        });
        let users = || self.peers.foreign_at(address).map(|peer| peer.user);
        if users().count() >= MAX_FOREIGN || users().filter(|it| *it == user).count() >= MAX_OF_USER
        {
            return Err(io::ErrorKind::PermissionDenied.into());
        }
        let shared = self.address(address).filter(|shared| shared.is_owner());
        let receive_buffer = shared.ok_or(io::ErrorKind::PermissionDenied)?.receive_buffer();
        let (writer, memory) = Writer::new()?;
        send_with(&socket, &Answer::Granted(receive_buffer).encode(), &[memory.as_fd()])?;
        let sender = ShmSender::new(writer, Wakeup::Connection(socket.try_clone()?));
        let foreign = ForeignPeer::new(user, now);
        self.add_peer(Peer::new(address, socket, sender, Some(foreign)));
        Ok(())
    }

    /// Does what a foreign peer asks for. Returns false if it makes no sense.
    pub(in super::super) fn serve_foreign(&mut self, number: u64, message: &[u8]) -> bool {
        let own = self.partition();
        let Self { addresses, peers, .. } = self;
        let Some(request) = Request::decode(message) else { return false };
        let Some(peer) = peers.by_number(number) else { return true };
        let Peer { address, partition, services, foreign: Some(foreign), .. } = peer else {
            return false;
        };
        let is_here = |shared: &&mut SharedAddress| shared.address == *address && shared.is_owner();
        let Some(shared) = addresses.iter_mut().find(is_here) else { return true };
        match request {
            Request::Partition(wanted, token) => {
                if let Some(former) = partition.take() {
                    // it is another's at one more address of the peer's
                    shared.end_foreign(former);
                    services.clear();
                }
                let token = (Some(wanted) != own).then(|| shared.host(wanted, token)).flatten();
                *partition = token.map(|_| wanted);
                let taken = Answer::Taken(shared.told.clone());
                return peer.tell(&Answer::Partition(token)) && peer.tell(&taken);
            }
            Request::Services(wanted) => {
                let Some(partition) = *partition else { return false };
                *services = shared.claim_for(partition, &wanted);
                let refused: BTreeSet<_> = wanted.difference(services).copied().collect();
                return refused.is_empty() || peer.tell(&Answer::Refused(refused));
            }
            Request::Record(slot) => {
                let Some(partition) = *partition else { return false };
                let Some(record) = record::decode(&slot, partition, *address) else { return false };
                // without room for it, its peer does not hear of the end
                let _ = foreign.records.keep(shared.claims.file(), partition, &record);
            }
            Request::Erase(id) => {
                let Some(partition) = *partition else { return false };
                let _ = foreign.records.erase(shared.claims.file(), partition, id);
            }
        }
        true
    }

    /// Tells the foreign peers at an address what processes listen for there, if that has changed.
    pub(in super::super) fn tell_foreign(&mut self, address: IpAddr) {
        let Self { addresses, peers, .. } = self;
        let here = |shared: &&mut SharedAddress| shared.address == address && shared.is_owner();
        let Some(shared) = addresses.iter_mut().find(here) else { return };
        if peers.foreign_at(address).next().is_none() {
            return;
        }
        let own = shared.services.iter().copied();
        let taken: BTreeSet<_> = peers.services_at(address).chain(own).collect();
        if shared.told != taken {
            shared.told.clone_from(&taken);
            let answer = Answer::Taken(taken);
            peers.retain(|peer| {
                peer.address != address || peer.foreign.is_none() || peer.tell(&answer)
            });
        }
    }
}

impl Peer {
    /// Tells a foreign peer something. Returns false if it reads nothing any more.
    fn tell(&self, answer: &Answer) -> bool {
        message::send(&self.socket, &answer.encode()).is_ok()
    }
}

impl SharedAddress {
    /// Gives a partition to a foreign peer. Returns what shows it to the next owner; `None` if it is
    /// another process's.
    fn host(&mut self, partition: IdPartition, token: u64) -> Option<u64> {
        let known = self.terms().token(partition);
        let is_its = known != 0 && known == token;
        let is_free = known == 0 && !self.is_left(partition);
        if self.foreign.contains_key(&partition) || !(is_its || is_free) {
            return None;
        }
        // one that is stopped, and was the owner before, may have the claim for it still
        if self.claims.take(Entry::Partition(partition)).is_err() && !is_its {
            return None;
        }
        let token = if is_its { token } else { getrandom::u64().ok().filter(|it| *it != 0)? };
        // what a former owner has written of it is told anew
        record::clear(self.claims.file(), partition);
        self.terms().set_token(partition, token);
        self.foreign.insert(partition, BTreeSet::new());
        self.awaited.remove(&partition);
        Some(token)
    }

    /// Claims services for a foreign peer, and gives back those that it does not want any more.
    /// Returns those that it has.
    fn claim_for(
        &mut self,
        partition: IdPartition,
        wanted: &BTreeSet<ServiceId>,
    ) -> BTreeSet<ServiceId> {
        let had = self.foreign.insert(partition, BTreeSet::new()).unwrap_or_default();
        for service in had.difference(wanted) {
            self.claims.release(Entry::Service(*service));
        }
        // what this process has claimed, for itself or for another, the kernel would give it again
        let is_own = |service: &ServiceId| {
            self.services.contains(service)
                || self.foreign.values().any(|services| services.contains(service))
        };
        let takes = |service: &ServiceId| {
            had.contains(service)
                || !is_own(service) && self.claims.take(Entry::Service(*service)).is_ok()
        };
        let has: BTreeSet<_> = wanted.iter().copied().filter(takes).collect();
        self.foreign.insert(partition, has.clone());
        has
    }

    /// A foreign peer has ended.
    pub(in super::super) fn end_foreign(&mut self, partition: IdPartition) {
        let Some(services) = self.foreign.remove(&partition) else { return };
        for service in services {
            self.claims.release(Entry::Service(service));
        }
        self.give_back(partition);
    }

    /// Foreign peers that the last owner had, and that have not come to this one, have ended.
    pub(in super::super) fn end_awaited(&mut self) {
        for partition in mem::take(&mut self.awaited) {
            self.give_back(partition);
        }
    }

    /// A partition of a foreign peer is nobody's any more, once what it has left is settled.
    fn give_back(&self, partition: IdPartition) {
        self.terms().set_token(partition, 0);
        if !record::used_partitions(self.claims.file()).contains(&partition) {
            self.claims.release(Entry::Partition(partition));
        }
    }
}
