//! Path of a packet from link to queue pair (9.6).
//!
//! Checks are ordered by cost; nothing changes before the ICRC check.

use super::Adapter;
use crate::{
    addr::{Gid, PKey},
    event::{Disposition, DropReason},
    ids::Qpn,
    qp::{Common, Env, QpType, State},
    time::Instant,
    wire::{
        Bth, Datagram, DatagramRun, IcrcMatch, NetHeader, Operation, Packet, Predictable,
        Predicted, Service, verify_icrc, verify_icrc_of,
    },
};

/// Result of [`handle_datagram`](super::Adapter::handle_datagram).
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
#[non_exhaustive]
pub struct Receipt {
    /// Outcome.
    pub disposition: Disposition,
    /// ICRC check.
    pub icrc: IcrcCheck,
}

/// Result of an ICRC check.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum IcrcCheck {
    /// Not checked: dropped before.
    Skipped,
    /// Not checked: the datagram never left this host.
    Trusted,
    /// Right.
    Right(IcrcMatch),
    /// Wrong.
    Wrong,
}

impl Receipt {
    /// Network header with the identification that matches the ICRC, [skipped](IcrcCheck::Skipped)
    /// or not.
    #[must_use]
    pub fn identify(&self, datagram: &Datagram<'_>) -> NetHeader {
        let found = match self.icrc {
            IcrcCheck::Skipped => verify_icrc(datagram.net, datagram.bytes),
            IcrcCheck::Right(found) => Some(found),
            IcrcCheck::Trusted | IcrcCheck::Wrong => None,
        };
        found.map_or(*datagram.net, |found| found.identify(datagram.net))
    }
}

/// An expected middle packet, which others of its run may follow.
#[derive(Clone, Copy)]
struct Middle {
    index: usize,
    operation: Operation,
}

enum Destination {
    QueuePair(usize),
    Multicast(Gid),
    /// QP1, with the partition.
    Gsi(PKey),
}

impl Adapter {
    /// Handles a run, a final acknowledgement first: only its length puts it last, and it completes
    /// messages that the requests respond to.
    pub fn handle_run(&mut self, now: Instant, run: &DatagramRun<'_>) {
        if run.bytes.len() <= run.segment {
            let DatagramRun { net, bytes, meta, .. } = *run;
            let datagram = Datagram { net, bytes, meta };
            if self.receive_expected(now, &datagram).is_none() {
                self.handle_any(now, &datagram);
            }
            return;
        }
        let mut net = *run.net;
        let (bytes, acknowledgement) = run.split_acknowledgement();
        if let Some(bytes) = acknowledgement {
            let before = run.bytes.len() - bytes.len();
            let ident = (0..before / run.segment.max(1)).fold(net.ident, |ident, _| ident.next());
            self.handle(now, &Datagram { net: &NetHeader { ident, ..net }, bytes, meta: run.meta });
        }
        let run = DatagramRun { bytes, ..*run };
        let mut payloads = run.payloads().peekable();
        while let Some(bytes) = payloads.next() {
            let datagram = Datagram { net: &net, bytes, meta: run.meta };
            let (_, middle) = self.handle(now, &datagram);
            net.ident = net.ident.next();
            let Some(middle) = middle else { continue };
            let mut taken = false;
            while payloads
                .next_if(|next| {
                    let datagram = Datagram { net: &net, bytes: next, meta: run.meta };
                    self.receive_next(middle, bytes, &datagram)
                })
                .is_some()
            {
                net.ident = net.ident.next();
                taken = true;
            }
            if taken && middle.operation.is_response() {
                self.with_qp(middle.index, now, |qp, env| qp.record_responses(env));
            }
        }
    }

    /// Handles a datagram from the link.
    pub fn handle_datagram(&mut self, now: Instant, datagram: &Datagram<'_>) -> Receipt {
        self.handle(now, datagram).0
    }

    /// Also returns how the run may continue.
    fn handle(&mut self, now: Instant, datagram: &Datagram<'_>) -> (Receipt, Option<Middle>) {
        self.receive_expected(now, datagram)
            .unwrap_or_else(|| (self.handle_any(now, datagram), None))
    }

    #[inline(never)]
    fn handle_any(&mut self, now: Instant, datagram: &Datagram<'_>) -> Receipt {
        let mark = self.begin_record(now);
        let packet = Packet::parse(datagram.bytes);
        let counted = packet.as_ref().ok().and_then(|packet| self.counted_destination(packet));
        self.count_arrival(datagram.bytes);
        self.reports.counters.ecn_marked += u64::from(datagram.net.is_congested());
        self.reports.counters.receive_buffer_congestion += u64::from(datagram.meta.congested);
        let receipt = match packet {
            Ok(packet) => self.receive(now, datagram, &packet),
            Err(error) => Receipt {
                disposition: Disposition::Dropped(error.into()),
                icrc: IcrcCheck::Skipped,
            },
        };
        if let Disposition::Dropped(reason) = receipt.disposition {
            self.reports.counters.count_drop(reason);
        }
        self.count_since(counted);
        self.end_arrival(mark, now, datagram, receipt.disposition);
        receipt
    }

    /// Handles a [predicted](crate::qp) packet. `None`: nothing done.
    #[inline]
    fn receive_expected(
        &mut self,
        now: Instant,
        datagram: &Datagram<'_>,
    ) -> Option<(Receipt, Option<Middle>)> {
        let Datagram { net, bytes, meta } = *datagram;
        let packet = Predictable::parse(bytes)?;
        if !self.predicts() || net.is_congested() || meta.congested || meta.not_ready {
            return None;
        }
        let index = self.qps.find(packet.bth.dest_qp)?;
        let Self { qps, sending, resources, reports, .. } = self;
        let qp = &mut qps[index];
        if !qp.expects(net, &packet) {
            return None;
        }
        let icrc = Self::check_icrc(Some(&mut qp.common), datagram);
        if matches!(icrc, IcrcCheck::Wrong | IcrcCheck::Skipped) {
            return None;
        }
        let disposition = qp.take_expected(&packet, &mut Env::new(now, resources, reports))?;
        qp.set_lossless(meta.checksum_verified);
        if qp.may_send() {
            sending.make_ready(index);
        }
        if disposition != Disposition::Executed {
            self.reschedule(index, now);
        }
        self.check_cqs(now);
        self.count_arrival(bytes);
        self.count_icrc(icrc);
        self.reports.counters.received_writes +=
            u64::from(matches!(packet.kind, Predicted::Write(_)));
        let middle = match packet.kind {
            Predicted::Middle(operation) => Some(Middle { index, operation }),
            _ => None,
        };
        Some((Receipt { disposition, icrc }, middle))
    }

    const fn count_arrival(&mut self, bytes: &[u8]) {
        self.reports.counters.received_packets += 1;
        self.reports.counters.received_bytes += bytes.len() as u64;
    }

    /// Only PSN and payload may differ from `before`.
    fn receive_next(
        &mut self,
        Middle { index, operation }: Middle,
        before: &[u8],
        datagram: &Datagram<'_>,
    ) -> bool {
        let Some((psn, payload)) = Predictable::parse_like(before, datagram.bytes) else {
            return false;
        };
        let qp = &mut self.qps[index];
        if !qp.expects_middle(operation, psn, payload) {
            return false;
        }
        let icrc = Self::check_icrc(Some(&mut qp.common), datagram);
        let taken = !matches!(icrc, IcrcCheck::Wrong | IcrcCheck::Skipped)
            && qp.take_middle(operation, payload).is_some();
        if taken {
            self.count_arrival(datagram.bytes);
            self.count_icrc(icrc);
        }
        taken
    }

    fn receive(&mut self, now: Instant, datagram: &Datagram<'_>, packet: &Packet<'_>) -> Receipt {
        let dropped = |reason, icrc| Receipt { disposition: Disposition::Dropped(reason), icrc };
        let destination = match self.destination(datagram.net, packet) {
            Ok(destination) => destination,
            Err(reason) => return dropped(reason, IcrcCheck::Skipped),
        };
        let common = match destination {
            Destination::QueuePair(index) => self.qps.get_mut(index).map(|qp| &mut qp.common),
            _ => None,
        };
        let icrc = Self::check_icrc(common, datagram);
        self.count_icrc(icrc);
        let solved;
        let net = match icrc {
            IcrcCheck::Right(IcrcMatch::Exact) | IcrcCheck::Trusted => datagram.net,
            IcrcCheck::Right(found) => {
                solved = found.identify(datagram.net);
                &solved
            }
            IcrcCheck::Skipped | IcrcCheck::Wrong => return dropped(DropReason::Icrc, icrc),
        };
        let datagram = Datagram { net, ..*datagram };
        let disposition = match destination {
            Destination::QueuePair(index) => self.deliver(now, index, &datagram, packet),
            Destination::Multicast(group) => self.replicate(now, group, &datagram, packet),
            Destination::Gsi(pkey) => {
                self.receive_mad(now, net, packet, pkey).unwrap_or_else(Disposition::Dropped)
            }
        };
        Receipt { disposition, icrc }
    }

    fn destination(
        &mut self,
        net: &NetHeader,
        packet: &Packet<'_>,
    ) -> Result<Destination, DropReason> {
        let bth = packet.headers.bth();
        if bth.dest_qp == Qpn::MULTICAST {
            return self.check_multicast(net, packet).map(Destination::Multicast);
        }
        if bth.dest_qp == Qpn::GSI {
            return self.check_mad(packet).map(Destination::Gsi);
        }
        let index = self.qps.find(bth.dest_qp).ok_or(DropReason::UnknownQp)?;
        self.check_queue_pair(index, net, bth)?;
        self.check_pkey(index, bth)?;
        Ok(Destination::QueuePair(index))
    }

    fn check_queue_pair(&self, index: usize, net: &NetHeader, bth: &Bth) -> Result<(), DropReason> {
        let common = &self.qps[index].common;
        let (service, is_response) = (bth.opcode.service(), bth.opcode.operation().is_response());
        match common.qp_type {
            QpType::RawPacket => return Err(DropReason::WrongService),
            _ if service == Service::Cnp => {}
            qp_type if service != qp_type.service() => return Err(DropReason::WrongService),
            QpType::XrcInitiator if !is_response => return Err(DropReason::WrongRole),
            QpType::XrcTarget if is_response => return Err(DropReason::WrongRole),
            _ => {}
        }
        self.check_state(index, bth)?;
        if let Some(path) = &common.peer.path {
            if path.net.dst != net.src {
                return Err(DropReason::SourceAddress);
            }
            if path.net.src != net.dst {
                return Err(DropReason::DestinationAddress);
            }
            if path.net.frame.version() != net.frame.version() {
                return Err(DropReason::RoceVersion);
            }
        } else if !self.resources.gids.contains(net.dst.into()) {
            return Err(DropReason::DestinationAddress);
        }
        Ok(())
    }

    pub(super) fn check_state(&self, index: usize, bth: &Bth) -> Result<(), DropReason> {
        let takes = match self.qps[index].common.state {
            State::Rtr => !bth.opcode.operation().is_response(),
            State::Rts | State::Sqd | State::Sqe => true,
            State::Reset | State::Init | State::Err => false,
        };
        if takes { Ok(()) } else { Err(DropReason::QpState) }
    }

    /// Same partition, with a full member (C9-42 to C9-44).
    pub(super) fn check_pkey(&mut self, index: usize, bth: &Bth) -> Result<(), DropReason> {
        if self.qps[index].common.admission.pkey.matches(bth.pkey) {
            return Ok(());
        }
        self.reports.counters.pkey_violations += 1;
        Err(DropReason::PKey)
    }

    fn check_icrc(common: Option<&mut Common>, datagram: &Datagram<'_>) -> IcrcCheck {
        let Datagram { net, bytes, meta } = *datagram;
        if meta.checksum_verified {
            debug_assert!(
                datagram.lacks_icrc() || verify_icrc(net, bytes) == Some(IcrcMatch::Exact),
                "a wrong ICRC is marked as verified"
            );
            return IcrcCheck::Trusted;
        }
        let flow = common.and_then(|common| common.peer.flow_of(net));
        verify_icrc_of(flow, net, bytes).map_or(IcrcCheck::Wrong, IcrcCheck::Right)
    }

    const fn count_icrc(&mut self, icrc: IcrcCheck) {
        match icrc {
            IcrcCheck::Trusted => self.reports.counters.icrc_trusted += 1,
            IcrcCheck::Right(IcrcMatch::Exact) => self.reports.counters.icrc_exact += 1,
            IcrcCheck::Right(IcrcMatch::Solved { .. }) => self.reports.counters.icrc_solved += 1,
            IcrcCheck::Skipped | IcrcCheck::Wrong => {}
        }
    }

    pub(super) fn deliver(
        &mut self,
        now: Instant,
        index: usize,
        datagram: &Datagram<'_>,
        packet: &Packet<'_>,
    ) -> Disposition {
        if packet.headers.bth().opcode.service() == Service::Cnp {
            self.reports.counters.cnp_received += 1;
            self.sending.destinations.on_notification(index, now);
            self.with_qp(index, now, |qp, env| qp.handle_congestion(env));
            return Disposition::Congestion;
        }
        let disposition = self.with_qp(index, now, |qp, env| {
            env.not_ready = datagram.meta.not_ready;
            env.congested = datagram.meta.congested;
            qp.set_lossless(datagram.meta.checksum_verified);
            qp.handle(datagram.net, packet, datagram.bytes.len(), env)
        });
        self.reports.counters.count_request(packet.headers.bth().opcode.operation(), disposition);
        disposition
    }
}
