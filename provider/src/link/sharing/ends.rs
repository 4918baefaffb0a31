//! Processes that seem to have ended.
//!
//! A process has ended, and its connections with it, if its channel is closed and nobody has its
//! name.

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

/// Time between the first two checks. The interval doubles each time.
const FIRST: Duration = Duration::from_millis(1);
/// Number of checks: a process with much memory takes about a second to end.
const MOST: u32 = 11;

/// The next of several checks of a process. An ending process closes its descriptors in turn: locks
/// and names may outlast connections.
pub(super) struct LivenessProbe {
    pub(super) due: Instant,
    done: u32,
}

impl LivenessProbe {
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
    /// Checks for partitions left by processes at own addresses.
    pub(super) left: Option<LivenessProbe>,
    /// Checks of processes, with the address's interface.
    pub(super) pending: Vec<(LivenessProbe, Destination, u32)>,
}

impl Ends {
    pub(super) fn deadline(&self) -> Option<Instant> {
        self.pending.iter().map(|(probe, ..)| probe).chain(&self.left).map(|probe| probe.due).min()
    }

    /// Runs due checks. Returns connections whose peers have ended.
    pub(super) fn run_checks(&mut self, now: Instant) -> Vec<ConnId> {
        let due: Vec<_> = self.pending.extract_if(.., |(probe, ..)| probe.due <= now).collect();
        let mut dead = Vec::new();
        for (probe, ended, interface) in due {
            let with_it = self.records.iter().filter(|(_, record)| is_with(record, ended));
            let conns: Vec<_> = with_it.map(|(conn, _)| *conn).collect();
            if conns.is_empty() {
                continue;
            }
            match connect(&of_process(ended.dst, interface, ended.partition)) {
                Err(error) if error.kind() == io::ErrorKind::ConnectionRefused => {
                    dead.extend(conns);
                }
                _ => self.pending.extend(probe.next(now).map(|probe| (probe, ended, interface))),
            }
        }
        dead
    }
}

fn is_with(record: &ConnRecord, ended: Destination) -> bool {
    (record.local, record.remote) == (ended.src, ended.dst)
        && (ended.partition.is_none() || ended.partition == IdPartition::of_id(record.remote_id))
}
