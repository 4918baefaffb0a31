//! The end of processes at other addresses of this host.
//!
//! Who reads a ring gives its writer the claim table of its address. There the writer sees which of
//! its connections with that address are over, once a process there has ended: those with partitions
//! that nobody has any more. If all at the address have ended, nobody is left to say so.

use std::{collections::BTreeMap, net::IpAddr, os::fd::OwnedFd};

use roce_transport::{
    cm::{ConnId, ConnRecord},
    share::IdPartition,
    time::Instant,
};

use super::{
    claim::{ClaimTable, Entry},
    look::Looks,
};

/// The claim table of another address, and own connections with processes there.
pub(super) struct Witness {
    claims: ClaimTable,
    /// The peers' partitions.
    conns: BTreeMap<ConnId, IdPartition>,
}

impl Witness {
    /// Watches a connection, if its peer has a partition in this table.
    pub(super) fn watch(&mut self, conn: ConnId, record: &ConnRecord) {
        let partition = IdPartition::of_id(record.remote_id);
        let taken =
            partition.filter(|&partition| self.claims.is_taken(Entry::Partition(partition)));
        if let Some(partition) = taken {
            self.conns.insert(conn, partition);
        }
    }

    /// Watches a connection no more.
    pub(super) fn forget(&mut self, conn: ConnId) {
        self.conns.remove(&conn);
    }

    /// Takes the connections whose peers have ended.
    fn take_over(&mut self) -> Vec<ConnId> {
        let Self { claims, conns } = self;
        let mut gone = BTreeMap::new();
        let mut over = Vec::new();
        conns.retain(|&conn, &mut partition| {
            let is_gone = || !claims.is_taken(Entry::Partition(partition));
            let is_gone = *gone.entry(partition).or_insert_with(is_gone);
            if is_gone {
                over.push(conn);
            }
            !is_gone
        });
        over
    }
}

/// The records of this device's connections, and witnesses at addresses where a process has just
/// ended.
#[derive(Default)]
pub(super) struct Witnesses {
    records: BTreeMap<ConnId, ConnRecord>,
    asked: Vec<(Looks, Witness)>,
}

impl Witnesses {
    pub(super) fn keep(&mut self, conn: ConnId, record: &ConnRecord) {
        self.records.insert(conn, *record);
    }

    /// Forgets a connection.
    pub(super) fn discard(&mut self, conn: ConnId) -> Option<ConnRecord> {
        self.asked.iter_mut().for_each(|(_, witness)| witness.forget(conn));
        self.records.remove(&conn)
    }

    /// A witness of the connections between two addresses, by the claim table of the second.
    pub(super) fn witness(&self, [src, dst]: [IpAddr; 2], claims: &OwnedFd) -> Option<Witness> {
        let claims = ClaimTable::join(claims).ok()?;
        let mut witness = Witness { claims, conns: BTreeMap::new() };
        for (conn, record) in &self.records {
            if (record.local, record.remote) == (src, dst) {
                witness.watch(*conn, record);
            }
        }
        Some(witness)
    }

    /// The process that gave this one its table has ended, it seems.
    pub(super) fn ask(&mut self, now: Instant, witness: Witness) {
        if !witness.conns.is_empty() {
            self.asked.push((Looks::begin(now), witness));
        }
    }

    /// Time of the next look.
    pub(super) fn deadline(&self) -> Option<Instant> {
        self.asked.iter().map(|(looks, _)| looks.due).min()
    }

    /// Looks where that is due. Returns the connections whose peers have ended.
    pub(super) fn look(&mut self, now: Instant) -> Vec<ConnId> {
        let due: Vec<_> = self.asked.extract_if(.., |(looks, _)| looks.due <= now).collect();
        let mut over = Vec::new();
        for (looks, mut witness) in due {
            over.extend(witness.take_over());
            let left = looks.next(now).filter(|_| !witness.conns.is_empty());
            self.asked.extend(left.map(|looks| (looks, witness)));
        }
        over
    }
}
