//! Addresses and memory that a [`UdpLink`] shares with other processes.

use std::{io, net::IpAddr};

use roce_transport::{
    cm::{ConnId, ConnRecord, ServiceId},
    share::IdPartition,
    time::Instant,
};

use super::UdpLink;
use crate::link::{Ended, Preparation, SharedRuns, SharingLink, ensure, share::Service};

impl SharingLink for UdpLink {
    fn partition(&self) -> Option<IdPartition> {
        self.partition
    }

    fn prepare_claim(
        &mut self,
        service: ServiceId,
        address: IpAddr,
        claim: bool,
    ) -> Option<Preparation<io::Error>> {
        let control = self.clients.at(address)?.control()?.clone();
        Some(Box::new(move || {
            control.ask(service, claim)?;
            Ok(Box::new(()))
        }))
    }

    fn claim(&mut self, service: ServiceId, address: IpAddr) -> io::Result<()> {
        let is_taken = self.service.as_ref().is_some_and(|it| it.is_claimed(service, address));
        ensure(!is_taken, io::ErrorKind::AddrInUse)?;
        match (self.clients.at(address), &mut self.sharing) {
            (Some(client), _) => client.claim(service),
            (None, Some(sharing)) => sharing.claim(service, address)?,
            (None, None) => {}
        }
        Ok(())
    }

    fn is_claimed(&self, service: ServiceId, address: IpAddr) -> bool {
        self.service.as_ref().is_some_and(|it| it.is_claimed(service, address))
            || self.sharing.as_ref().is_some_and(|it| it.is_claimed(service, address))
    }

    fn release(&mut self, service: ServiceId, address: IpAddr) {
        match (self.clients.at(address), &mut self.sharing) {
            (Some(client), _) => client.release(service),
            (None, Some(sharing)) => sharing.release(service, address),
            (None, None) => {}
        }
    }

    fn keep_record(&mut self, now: Instant, conn: ConnId, record: &ConnRecord) {
        self.clients.keep_record(conn, record);
        self.sharing.iter_mut().for_each(|sharing| sharing.keep_record(now, conn, record));
    }

    fn discard_record(&mut self, conn: ConnId) {
        self.clients.discard_record(conn);
        self.sharing.iter_mut().for_each(|sharing| sharing.discard_record(conn));
    }

    fn poll_ended(&mut self) -> Option<Ended> {
        let of_clients = self.service.as_mut().and_then(Service::poll_ended);
        of_clients.or_else(|| self.sharing.as_mut().and_then(|it| it.ended.pop_front()))
    }

    fn settle(&mut self, address: IpAddr, partition: IdPartition) {
        self.sharing.iter_mut().for_each(|sharing| sharing.settle(address, partition));
    }

    fn shared_runs(&self) -> SharedRuns {
        self.sharing.as_ref().map(|sharing| sharing.paths.sent).unwrap_or_default()
    }

    fn forwarded(&self) -> u64 {
        let by_service = self.service.as_ref().map_or(0, |service| service.forwarded);
        by_service + self.sharing.as_ref().map_or(0, |sharing| sharing.paths.forwarded)
    }
}
