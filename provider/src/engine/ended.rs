//! Processes that have ended, and left connections: those at an own address, whose peers this one
//! tells, and those that were peers of its own connections.

use std::net::IpAddr;

use roce_transport::{
    adapter::Adapter,
    cm::{ConnError, ConnId, ConnRecord},
    share::IdPartition,
    time::Instant,
};
use tracing::info;

use crate::{
    cancel::Uncancelled,
    link::{Ended, Link, SharingLink},
};

/// Processes at own addresses whose peers are being told.
#[derive(Default)]
pub(super) struct EndedProcesses(Vec<EndedProcess>);

struct EndedProcess {
    address: IpAddr,
    partition: IdPartition,
    /// Connections whose peers are still to be told.
    records: Vec<ConnRecord>,
    /// Connections whose peers have not answered yet.
    ending: Vec<ConnId>,
}

impl EndedProcesses {
    /// Hears of processes that have ended, and goes on with those that it has heard of.
    pub(super) fn attend(&mut self, now: Instant, adapter: &mut Adapter, link: &mut dyn Link) {
        let Some(sharing) = link.sharing() else { return };
        while let Some(ended) = sharing.poll_ended() {
            match ended {
                Ended::There(conns) => {
                    conns.into_iter().for_each(|conn| adapter.cm_peer_ended(now, conn));
                }
                Ended::Here { address, partition, records } => {
                    let (partition_id, connections) = (partition.get(), records.len());
                    info!(%address, partition = partition_id, connections, "a process has ended");
                    let ending = Vec::new();
                    self.0.push(EndedProcess { address, partition, records, ending });
                }
            }
        }
        if !self.0.is_empty() {
            let _uncancelled = Uncancelled::begin();
            self.0.retain_mut(|process| !process.end(now, adapter, sharing));
        }
    }
}

impl EndedProcess {
    /// Tells peers, as many at once as the adapter can. Returns true when all have answered, or do
    /// not answer any more.
    fn end(&mut self, now: Instant, adapter: &mut Adapter, sharing: &mut dyn SharingLink) -> bool {
        while let Some(record) = self.records.pop() {
            match adapter.cm_end_for_another(now, &record) {
                Ok(conn) => self.ending.push(conn),
                Err(ConnError::TooMany(_)) => {
                    self.records.push(record);
                    break;
                }
                Err(_) => {} // what no process can have had
            }
        }
        while self.ending.pop_if(|conn| adapter.cm_state(*conn).is_none()).is_some() {}
        let is_done = self.records.is_empty() && self.ending.is_empty();
        if is_done {
            sharing.settle(self.address, self.partition);
        }
        is_done
    }
}
