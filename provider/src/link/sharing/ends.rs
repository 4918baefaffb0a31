//! Processes that seem to have ended.
//!
//! If the channel to a process closes and nobody has the process's name any more, it has ended, and
//! the connections with it are over.

use std::{collections::BTreeMap, io, time::Duration};

use roce_transport::{
    cm::{ConnId, ConnRecord},
    share::IdPartition,
    time::Instant,
};

use super::{
    names::{connect, of_process},
    paths::Destination,
};

/// Time from the first look to the second. It doubles from one to the next.
const FIRST: Duration = Duration::from_millis(1);
/// Number of looks: a process with much memory ends in about a second.
const MOST: u32 = 11;

/// The next of several looks at a process: its descriptors are closed one after another, so its
/// locks and names may last longer than its connections.
pub(super) struct EndChecks {
    pub(super) due: Instant,
    done: u32,
}

impl EndChecks {
    pub(super) const fn begin(now: Instant) -> Self {
        Self { due: now, done: 0 }
    }

    pub(super) fn next(self, now: Instant) -> Option<Self> {
        let due = now.plus(FIRST * (1 << self.done));
        (self.done + 1 < MOST).then(|| Self { due, done: self.done + 1 })
    }
}

#[derive(Default)]
pub(super) struct Ends {
    pub(super) records: BTreeMap<ConnId, ConnRecord>,
    /// Checks for partitions that processes at own addresses have left.
    pub(super) left: Option<EndChecks>,
    asked: Vec<(EndChecks, Destination, u32)>,
}

impl Ends {
    /// A process has ended, it seems.
    pub(super) fn ask(&mut self, now: Instant, ended: Destination, interface: u32) {
        self.asked.push((EndChecks::begin(now), ended, interface));
    }

    pub(super) fn deadline(&self) -> Option<Instant> {
        self.asked.iter().map(|(looks, ..)| looks).chain(&self.left).map(|looks| looks.due).min()
    }

    /// Checks where that is due. Returns the connections whose peers have ended.
    pub(super) fn look(&mut self, now: Instant) -> Vec<ConnId> {
        let due: Vec<_> = self.asked.extract_if(.., |(looks, ..)| looks.due <= now).collect();
        let mut over = Vec::new();
        for (looks, ended, interface) in due {
            let with_it = self.records.iter().filter(|(_, record)| is_with(record, ended));
            let conns: Vec<_> = with_it.map(|(conn, _)| *conn).collect();
            if conns.is_empty() {
                continue;
            }
            match connect(&of_process(ended.dst, interface, ended.partition)) {
                Err(error) if error.kind() == io::ErrorKind::ConnectionRefused => {
                    over.extend(conns);
                }
                _ => self.asked.extend(looks.next(now).map(|looks| (looks, ended, interface))),
            }
        }
        over
    }
}

fn is_with(record: &ConnRecord, ended: Destination) -> bool {
    (record.local, record.remote) == (ended.src, ended.dst)
        && (ended.partition.is_none() || ended.partition == IdPartition::of_id(record.remote_id))
}
