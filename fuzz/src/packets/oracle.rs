//! Each request completes once and in order; each packet is accounted for.

use std::collections::{BTreeSet, VecDeque};

use roce_transport::{
    event::{Disposition, DropReason},
    qp::QpInfo,
    wire::{NakCode, Syndrome},
    work::Wc,
};

use super::world::{Queues, World};

/// Per step.
const EVENTS_MAX: usize = 64;

/// Outstanding requests, and the fate of every packet.
pub(super) struct Ledger {
    pub(super) completions: Vec<Wc>,
    last_id: u64,
    /// Per member, oldest first; sends with whether success gives a completion.
    sends: Vec<VecDeque<(u64, bool)>>,
    receives: Vec<VecDeque<u64>>,
    /// In, or taken from, a shared receive queue.
    shared: BTreeSet<u64>,
    sent: u64,
    received: u64,
    dropped: Vec<u64>,
    repeated: u64,
    congestion: u64,
    sequence_naks: u64,
    rnr_naks: u64,
    refused_copies: u64,
}

impl Ledger {
    pub(super) fn new(members: usize) -> Self {
        Self {
            completions: Vec::new(),
            last_id: 0,
            sends: vec![VecDeque::new(); members],
            receives: vec![VecDeque::new(); members],
            shared: BTreeSet::new(),
            sent: 0,
            received: 0,
            dropped: vec![0; DropReason::ALL.len()],
            repeated: 0,
            congestion: 0,
            sequence_naks: 0,
            rnr_naks: 0,
            refused_copies: 0,
        }
    }

    pub(super) const fn next_id(&mut self) -> u64 {
        self.last_id += 1;
        self.last_id
    }

    pub(super) fn posted_send(&mut self, world: &World, member: usize, id: u64, signaled: bool) {
        if world.members[member].queues != Queues::Tiny {
            self.sends[member].push_back((id, signaled));
        }
    }

    pub(super) fn posted_receive(&mut self, world: &World, member: usize, id: u64) {
        match world.members[member].queues {
            Queues::Own => self.receives[member].push_back(id),
            Queues::Shared | Queues::Xrc => drop(self.shared.insert(id)),
            Queues::Tiny => {}
        }
    }

    /// RESET drops posted requests.
    pub(super) fn forget(&mut self, member: usize) {
        self.sends[member].clear();
        self.receives[member].clear();
    }

    fn completed_send(&mut self, member: usize, wc: &Wc) {
        loop {
            let (id, signaled) =
                self.sends[member].pop_front().unwrap_or_else(|| panic!("never posted: {wc:?}"));
            if id == wc.wr_id {
                assert!(
                    signaled || wc.result.is_err(),
                    "an unsignaled success was told of: {wc:?}"
                );
                return;
            }
            assert!(!signaled, "request {id} has no completion, but a later one has: {wc:?}");
        }
    }

    fn completed_receive(&mut self, member: usize, queues: Queues, wc: &Wc) {
        if matches!(queues, Queues::Shared | Queues::Xrc) {
            assert!(self.shared.remove(&wc.wr_id), "never posted, or completed before: {wc:?}");
        } else {
            assert_eq!(
                self.receives[member].pop_front(),
                Some(wc.wr_id),
                "receive requests complete in their order: {wc:?}"
            );
        }
    }

    pub(super) fn take_completions(&mut self, world: &World) {
        let member_of = |wc: &Wc| {
            let member = world.members.iter().position(|member| member.qpn == wc.qpn);
            member.expect("a queue pair that exists")
        };
        while let Some(wc) = world.send_cq.pop() {
            self.completed_send(member_of(&wc), &wc);
            self.completions.push(wc);
            assert!(wc.result.map_or_else(|error| !error.to_string().is_empty(), |_| true));
        }
        while let Some(wc) = world.recv_cq.pop() {
            let member = member_of(&wc);
            self.completed_receive(member, world.members[member].queues, &wc);
            self.completions.push(wc);
        }
        assert!(!world.send_cq.has_overrun() && !world.recv_cq.has_overrun());
    }

    /// In ERR, except unsignaled successes and requests in the shared queue.
    pub(super) fn check_all_complete(&self, world: &World) {
        for (index, member) in world.members.iter().enumerate() {
            assert!(
                self.sends[index].iter().all(|&(_, signaled)| !signaled),
                "{}: a send was lost",
                member.qpn
            );
            assert!(self.receives[index].is_empty(), "{}: a receive was lost", member.qpn);
        }
    }

    pub(super) const fn sent(&mut self) {
        self.sent += 1;
    }

    pub(super) fn received(&mut self, disposition: Disposition) {
        assert!(!disposition.to_string().is_empty());
        self.received += 1;
        match disposition {
            Disposition::Dropped(reason) => self.dropped[reason as usize] += 1,
            Disposition::Replicated { taken, copies } => {
                self.refused_copies += u64::from(copies - taken);
            }
            Disposition::Duplicate => self.repeated += 1,
            Disposition::Congestion => self.congestion += 1,
            Disposition::Refused(Syndrome::Nak(NakCode::PsnSequenceError), _) => {
                self.sequence_naks += 1;
            }
            Disposition::Refused(Syndrome::RnrNak { .. }, _) => self.rnr_naks += 1,
            _ => {}
        }
    }

    pub(super) fn check_counters(&self, world: &World) {
        let counters = world.adapter.counters();
        assert_eq!(counters.sent_packets, self.sent, "packets sent");
        assert_eq!(counters.received_packets, self.received, "packets received");
        let mut refused_copies = 0;
        for &reason in DropReason::ALL {
            let whole = self.dropped[reason as usize];
            let copies = counters.dropped(reason).checked_sub(whole);
            refused_copies += copies.unwrap_or_else(|| panic!("drops: {reason}"));
            assert!(copies == Some(0) || OF_COPIES.contains(&reason), "drops: {reason}");
        }
        assert_eq!(refused_copies, self.refused_copies, "refused copies of multicast packets");
        let unchecked: u64 = BEFORE_ICRC.iter().map(|&reason| self.dropped[reason as usize]).sum();
        assert_eq!(
            counters.icrc_exact + counters.icrc_solved,
            self.received - unchecked,
            "right ICRCs"
        );
        assert_eq!(counters.duplicate_requests, self.repeated, "duplicates");
        assert_eq!(counters.cnp_received, self.congestion, "congestion notifications");
        assert_eq!(counters.sequence_naks_sent, self.sequence_naks, "sequence NAKs");
        assert_eq!(counters.rnr_naks_sent, self.rnr_naks, "RNR NAKs");
    }

    pub(super) fn take_events(world: &mut World) {
        let count = std::iter::from_fn(|| world.adapter.poll_event()).take(EVENTS_MAX + 1).count();
        assert!(count <= EVENTS_MAX, "more than {EVENTS_MAX} events in one step");
    }
}

/// Reasons to drop a packet of unproven origin.
const BEFORE_ICRC: [DropReason; 14] = [
    DropReason::TooShort,
    DropReason::Padding,
    DropReason::UnknownOpcode,
    DropReason::TransportVersion,
    DropReason::UnknownQp,
    DropReason::WrongService,
    DropReason::WrongRole,
    DropReason::QpState,
    DropReason::SourceAddress,
    DropReason::DestinationAddress,
    DropReason::RoceVersion,
    DropReason::NotAttached,
    DropReason::PKey,
    DropReason::Icrc,
];

/// Reasons to drop one copy of a multicast packet.
const OF_COPIES: [DropReason; 5] = [
    DropReason::QpState,
    DropReason::PKey,
    DropReason::QKey,
    DropReason::NoReceiveRequest,
    DropReason::TooLong,
];

/// The packet must have changed nothing.
pub(super) fn is_untrusted(disposition: Disposition) -> bool {
    matches!(disposition, Disposition::Dropped(reason) if BEFORE_ICRC.contains(&reason))
}

pub(super) fn snapshot(world: &World) -> Vec<Option<QpInfo>> {
    world.members.iter().map(|member| world.adapter.query_qp(member.qpn)).collect()
}
