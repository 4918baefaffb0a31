//! The end of processes at other addresses of this host.
//!
//! When the channel to a process closes, and nobody has the process's name any more, it has ended,
//! and the connections with it are over.

use std::{collections::BTreeMap, io};

use roce_transport::{
    cm::{ConnId, ConnRecord},
    share::IdPartition,
    time::Instant,
};

use super::{look::Looks, names::connect_directly, paths::Destination};

/// The records of this device's connections, and processes that have just closed their channels.
#[derive(Default)]
pub(super) struct Ends {
    records: BTreeMap<ConnId, ConnRecord>,
    asked: Vec<(Looks, Destination, u32)>,
}

impl Ends {
    pub(super) fn keep(&mut self, conn: ConnId, record: &ConnRecord) {
        self.records.insert(conn, *record);
    }

    /// Forgets a connection.
    pub(super) fn discard(&mut self, conn: ConnId) -> Option<ConnRecord> {
        self.records.remove(&conn)
    }

    /// A process has ended, it seems.
    pub(super) fn ask(&mut self, now: Instant, ended: Destination, interface: u32) {
        self.asked.push((Looks::begin(now), ended, interface));
    }

    /// Time of the next look.
    pub(super) fn deadline(&self) -> Option<Instant> {
        self.asked.iter().map(|(looks, ..)| looks.due).min()
    }

    /// Looks where that is due. Returns the connections whose peers have ended.
    pub(super) fn look(&mut self, now: Instant) -> Vec<ConnId> {
        let due: Vec<_> = self.asked.extract_if(.., |(looks, ..)| looks.due <= now).collect();
        let mut over = Vec::new();
        for (looks, ended, interface) in due {
            let with_it = self.records.iter().filter(|(_, record)| is_with(record, ended));
            let conns: Vec<_> = with_it.map(|(conn, _)| *conn).collect();
            if conns.is_empty() {
                continue;
            }
            match connect_directly(ended.dst, interface, ended.partition) {
                Err(error) if error.kind() == io::ErrorKind::ConnectionRefused => {
                    over.extend(conns);
                }
                _ => self.asked.extend(looks.next(now).map(|looks| (looks, ended, interface))),
            }
        }
        over
    }
}

/// True if a connection is with this process.
fn is_with(record: &ConnRecord, ended: Destination) -> bool {
    (record.local, record.remote) == (ended.src, ended.dst)
        && (ended.partition.is_none() || ended.partition == IdPartition::of_id(record.remote_id))
}
