//! Ends connections of dead processes at local addresses, and connections to dead peers.

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

#[derive(Default)]
pub(super) struct EndedProcesses(Vec<EndedProcess>);

struct EndedProcess {
    address: IpAddr,
    partition: IdPartition,
    /// Connections still to end.
    records: Vec<ConnRecord>,
    /// Connections without the peer's response.
    ending: Vec<ConnId>,
}

impl EndedProcesses {
    pub(super) fn attend(&mut self, now: Instant, adapter: &mut Adapter, link: &mut dyn Link) {
        let Some(sharing) = link.sharing() else { return };
        while let Some(ended) = sharing.poll_ended() {
            match ended {
                Ended::There(conns) => {
                    conns.into_iter().for_each(|conn| adapter.cm_mut().end_by_peer(now, conn));
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
    /// True once all peers responded or timed out.
    fn end(&mut self, now: Instant, adapter: &mut Adapter, sharing: &mut dyn SharingLink) -> bool {
        while let Some(record) = self.records.pop() {
            match adapter.cm_end_for_another(now, &record) {
                Ok(conn) => self.ending.push(conn),
                Err(ConnError::TooMany(_)) => {
                    self.records.push(record);
                    break;
                }
                Err(_) => {} // no process can have had this record
            }
        }
        while self.ending.pop_if(|conn| adapter.cm().state(*conn).is_none()).is_some() {}
        let is_done = self.records.is_empty() && self.ending.is_empty();
        if is_done {
            sharing.settle(self.address, self.partition);
        }
        is_done
    }
}

#[cfg(test)]
mod tests {
    use std::{collections::VecDeque, io, os::fd::BorrowedFd, time::Duration};

    use roce_transport::{
        adapter::{AdapterConfig, SourcePort, Transmit, TransmitLimits},
        addr::PKey,
        cm::{CmConfig, ServiceId},
        ids::Qpn,
    };

    use super::*;
    use crate::link::{Datagram, SharedRuns};

    const OWN: [u8; 4] = [10, 0, 0, 1];

    #[derive(Default)]
    struct Reporting {
        ended: VecDeque<Ended>,
        settled: Vec<IdPartition>,
    }

    impl Link for Reporting {
        fn addresses(&self) -> Vec<IpAddr> {
            vec![OWN.into()]
        }

        fn limits(&self) -> TransmitLimits {
            TransmitLimits::SINGLE
        }

        fn source_port(&self) -> SourcePort {
            SourcePort::Fixed(4791)
        }

        fn send(&mut self, _: Instant, _: &[u8], runs: &[Transmit]) -> io::Result<usize> {
            Ok(runs.len())
        }

        fn receive(&mut self, _: Instant, _: &mut dyn FnMut(&Datagram<'_>)) -> io::Result<usize> {
            Ok(0)
        }

        fn descriptors(&self) -> Vec<BorrowedFd<'_>> {
            Vec::new()
        }

        fn sharing(&mut self) -> Option<&mut dyn SharingLink> {
            Some(self)
        }
    }

    impl SharingLink for Reporting {
        fn partition(&self) -> Option<IdPartition> {
            None
        }

        fn claim(&mut self, _: ServiceId, _: IpAddr) -> io::Result<()> {
            Ok(())
        }

        fn is_claimed(&self, _: ServiceId, _: IpAddr) -> bool {
            false
        }

        fn release(&mut self, _: ServiceId, _: IpAddr) {}

        fn keep_record(&mut self, _: Instant, _: ConnId, _: &ConnRecord) {}

        fn discard_record(&mut self, _: ConnId) {}

        fn poll_ended(&mut self) -> Option<Ended> {
            self.ended.pop_front()
        }

        fn settle(&mut self, _: IpAddr, partition: IdPartition) {
            self.settled.push(partition);
        }

        fn shared_runs(&self) -> SharedRuns {
            SharedRuns::default()
        }

        fn forwarded(&self) -> u64 {
            0
        }
    }

    #[test]
    fn every_peer_is_told_and_then_all_is_settled() {
        let [one, other] = [5, 6].map(|number| IdPartition::new(number).unwrap());
        let cm = CmConfig {
            ids: IdPartition::new(1).unwrap().ids(),
            max_connections: 2,
            max_retries: 0,
            ..CmConfig::default()
        };
        let mut adapter = Adapter::new(AdapterConfig { cm, ..AdapterConfig::new([0; 32]) });
        adapter.set_gids(vec![IpAddr::from(OWN).into()]);
        let record = |partition: IdPartition, number: u32| ConnRecord {
            local: OWN.into(),
            remote: [10, 0, 0, 2].into(),
            pkey: PKey::DEFAULT,
            local_id: partition.ids().start() + number,
            remote_id: number,
            local_qpn: Qpn::new(2),
            remote_qpn: Qpn::new(3),
        };
        let here = |partition, count| Ended::Here {
            address: OWN.into(),
            partition,
            records: (0..count).map(|number| record(partition, number)).collect(),
        };
        // a duplicate, and one at a foreign address
        let Ended::Here { mut records, .. } = here(other, 1) else { unreachable!() };
        records.push(records[0]);
        records.push(ConnRecord { local: [10, 0, 0, 9].into(), ..record(other, 1) });
        let twice = Ended::Here { address: OWN.into(), partition: other, records };
        let mut link = Reporting { ended: [here(one, 5), twice].into(), ..Reporting::default() };
        let mut ended = EndedProcesses::default();
        let mut reported = 0;
        for second in 0..20 {
            let now = Instant::ZERO.plus(Duration::from_secs(second));
            adapter.handle_timeout(now);
            ended.attend(now, &mut adapter, &mut link);
            assert!(adapter.cm().count() <= 2);
            let mut buffer = roce_transport::adapter::TransmitBuffer::new(1 << 16, link.limits());
            adapter.poll_transmit(now, &mut buffer);
            reported += buffer.runs().len();
        }
        assert_eq!((reported, adapter.cm().count()), (6, 0));
        assert_eq!((link.settled, ended.0.len()), (vec![one, other], 0));
    }
}
