//! Multicast (9.5.2, 10.5, A17.4.5). As in hardware and rxe, an attached sender receives its own
//! datagrams.

use super::Adapter;
use crate::{
    addr::Gid,
    event::{Disposition, DropReason},
    ids::Qpn,
    named::errors,
    qp::QpType,
    time::Instant,
    trace::{PacketRecord, What},
    wire::{Datagram, NetHeader, Packet, Service},
};

errors! {
    /// Attach or detach error; nothing changed.
    #[non_exhaustive]
    McastError {
        UnknownQp "no such queue pair";
        WrongService(QpType) "{0} queue pairs cannot join multicast groups; use a UD queue pair";
        NotMulticast(Gid) "{0} is not a multicast address";
        TooManyGroups { limit: usize } "too many multicast groups; at most {limit}";
        TooManyMembers { limit: usize }
            "too many queue pairs in the multicast group; at most {limit}";
        NotAttached(Gid) "the queue pair is not attached to {0}";
    }
}

impl Adapter {
    /// Attaches a UD queue pair (`ibv_attach_mcast`). True for the first member: the link must
    /// join.
    pub fn attach_mcast(&mut self, qpn: Qpn, group: Gid) -> Result<bool, McastError> {
        let index = self.datagram_qp(qpn)?;
        if !group.is_multicast() {
            return Err(McastError::NotMulticast(group));
        }
        let (groups, limit) = (self.groups.len(), self.limits.max_mcast_qp_attach);
        match self.groups.get_mut(&group) {
            Some(members) if members.contains(&index) => Ok(false),
            Some(members) if members.len() >= limit => Err(McastError::TooManyMembers { limit }),
            Some(members) => {
                members.push(index);
                Ok(false)
            }
            None if groups >= self.limits.max_mcast_grp => {
                Err(McastError::TooManyGroups { limit: self.limits.max_mcast_grp })
            }
            None if limit == 0 => Err(McastError::TooManyMembers { limit }),
            None => {
                self.groups.insert(group, [index].into());
                Ok(true)
            }
        }
    }

    /// Detaches a queue pair (`ibv_detach_mcast`). True for the last member: the link must leave.
    ///
    /// # Errors
    /// [`McastError::UnknownQp`], [`McastError::WrongService`], [`McastError::NotAttached`].
    pub fn detach_mcast(&mut self, qpn: Qpn, group: Gid) -> Result<bool, McastError> {
        let index = self.datagram_qp(qpn)?;
        let not_attached = McastError::NotAttached(group);
        let members = self.groups.get_mut(&group).ok_or(not_attached)?;
        let at = members.iter().position(|&member| member == index).ok_or(not_attached)?;
        members.remove(at);
        let last = members.is_empty();
        if last {
            self.groups.remove(&group);
        }
        Ok(last)
    }

    pub(super) fn detach_everywhere(&mut self, index: usize) {
        self.groups.retain(|_, members| {
            members.retain(|&member| member != index);
            !members.is_empty()
        });
    }

    /// Groups with members, or those of one queue pair.
    pub fn mcast_groups(&self, of: Option<Qpn>) -> impl Iterator<Item = Gid> {
        let index = of.map(|qpn| self.qps.index_of(qpn));
        self.groups
            .iter()
            .filter(move |(_, members)| {
                index.is_none_or(|index| index.is_some_and(|index| members.contains(&index)))
            })
            .map(|(group, _)| *group)
    }

    fn datagram_qp(&self, qpn: Qpn) -> Result<usize, McastError> {
        let index = self.qps.index_of(qpn).ok_or(McastError::UnknownQp)?;
        match self.qps[index].common.qp_type {
            QpType::Ud => Ok(index),
            other => Err(McastError::WrongService(other)),
        }
    }

    pub(super) fn check_multicast(
        &self,
        net: &NetHeader,
        packet: &Packet<'_>,
    ) -> Result<Gid, DropReason> {
        if packet.headers.bth().opcode.service() != Service::Ud {
            return Err(DropReason::WrongService);
        }
        if !net.dst.is_multicast() {
            return Err(DropReason::DestinationAddress);
        }
        let group = Gid::from(net.dst);
        if self.groups.contains_key(&group) { Ok(group) } else { Err(DropReason::NotAttached) }
    }

    /// Undeliverable copies count as drops.
    pub(super) fn replicate(
        &mut self,
        now: Instant,
        group: Gid,
        datagram: &Datagram<'_>,
        packet: &Packet<'_>,
    ) -> Disposition {
        self.reports.counters.multicast_packets += 1;
        // delivery cannot change the group, empty meanwhile
        let members = self.groups.get_mut(&group).map(core::mem::take).unwrap_or_default();
        let copies = members.len() as u32;
        let mut taken = 0;
        for &index in &members {
            let counted = self.counted_before(index);
            let mark = self.begin_record(now);
            let disposition = self.deliver_copy(now, index, datagram, packet);
            self.end_record(mark, now, self.qps[index].common.qpn, || {
                let packet = PacketRecord::new(datagram.net, packet);
                What::Arrived { packet, disposition }
            });
            match disposition {
                Disposition::Dropped(reason) => self.reports.counters.count_drop(reason),
                _ => taken += 1,
            }
            self.count_since(counted);
            if let Some(own) = self.qps.counted.get_mut(&index) {
                // the adapter counts the packet once
                own.received_packets += 1;
                own.received_bytes += datagram.bytes.len() as u64;
                own.multicast_packets += 1;
            }
        }
        self.groups.insert(group, members);
        Disposition::Replicated { taken, copies }
    }

    fn deliver_copy(
        &mut self,
        now: Instant,
        index: usize,
        datagram: &Datagram<'_>,
        packet: &Packet<'_>,
    ) -> Disposition {
        let bth = packet.headers.bth();
        match self.check_state(index, bth).and_then(|()| self.check_pkey(index, bth)) {
            Ok(()) => self.deliver(now, index, datagram, packet),
            Err(reason) => Disposition::Dropped(reason),
        }
    }
}
