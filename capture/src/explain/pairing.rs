//! Which two flows are the two directions of a connection. A packet names the receiver's queue pair
//! alone, so its sender's is found by messages of connection management, or by answers that fit.

use std::collections::{BTreeMap, BTreeSet};

use roce_transport::{
    addr::Qpn,
    cm::Message,
    psn::Psn,
    wire::{Operation, Service},
};

use super::{explained::ExplainedPacket, network::Address};

/// Packets to one queue pair from one address.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(super) struct Flow {
    pub(super) src: Address,
    pub(super) dst: Address,
    pub(super) qpn: Qpn,
}

impl Flow {
    /// The flow of a packet of a connection.
    pub(super) fn of(packet: &ExplainedPacket) -> Option<Self> {
        let bth = packet.headers?.bth().to_owned();
        let connected = !matches!(bth.opcode.service(), Service::Ud);
        let (src, dst) = (packet.net.src(), packet.net.dst());
        connected.then_some(Self { src, dst, qpn: bth.dest_qp })
    }
}

/// Requests that a flow has carried, as a range of PSNs.
#[derive(Default)]
struct Range {
    first: Option<Psn>,
    end: Psn,
}

/// The other direction of each flow that has one.
pub(super) fn pairs(packets: &[ExplainedPacket]) -> BTreeMap<Flow, Flow> {
    let mut found = BTreeMap::new();
    let mut pair = |one: Flow, other: Flow| {
        if !found.contains_key(&one) && !found.contains_key(&other) {
            found.insert(one, other);
            found.insert(other, one);
        }
    };
    for (one, other) in by_messages(packets) {
        pair(one, other);
    }
    let mut votes: BTreeMap<(Flow, Flow), usize> = BTreeMap::new();
    let mut ranges: BTreeMap<Flow, Range> = BTreeMap::new();
    let mut flows: BTreeMap<(Address, Address), BTreeSet<Flow>> = BTreeMap::new();
    for packet in packets {
        let (Some(flow), Some(headers)) = (Flow::of(packet), packet.headers) else { continue };
        let bth = headers.bth();
        if bth.opcode.service() == Service::Cnp {
            continue;
        }
        flows.entry((flow.src, flow.dst)).or_default().insert(flow);
        if bth.opcode.operation().is_response() {
            let answers = |(candidate, range): (&Flow, &Range)| {
                let fits = range
                    .first
                    .is_some_and(|first| !bth.psn.is_before(first) && bth.psn.is_before(range.end));
                (candidate.src == flow.dst && candidate.dst == flow.src && fits)
                    .then_some(*candidate)
            };
            let mut candidates = ranges.iter().filter_map(answers);
            if let (Some(only), None) = (candidates.next(), candidates.next()) {
                *votes.entry((only, flow)).or_default() += 1;
            }
            continue;
        }
        let range = ranges.entry(flow).or_default();
        range.first.get_or_insert(bth.psn);
        // as many as a READ's answer can have at the smallest path MTU
        let packets = match (bth.opcode.operation(), headers.ext().reth()) {
            (Operation::ReadRequest, Some(reth)) => reth.dma_length.div_ceil(256).clamp(1, 1 << 22),
            _ => 1,
        };
        let end = bth.psn.plus(packets);
        if range.end.is_before(end) || range.first == Some(bth.psn) {
            range.end = end;
        }
    }
    let mut votes: Vec<_> = votes.into_iter().map(|(pair, count)| (count, pair)).collect();
    votes.sort_by(|a, b| b.cmp(a));
    for (_, (one, other)) in votes {
        pair(one, other);
    }
    // what is left between two addresses, if it is one each way
    for ((src, dst), there) in &flows {
        let Some(back) = flows.get(&(*dst, *src)) else { continue };
        let mut there = there.iter().filter(|flow| !found.contains_key(flow));
        let mut back = back.iter().filter(|flow| !found.contains_key(flow));
        if let (Some(&one), None, Some(&other), None) =
            (there.next(), there.next(), back.next(), back.next())
        {
            drop((there, back));
            if one != other {
                found.insert(one, other);
                found.insert(other, one);
            }
        }
    }
    found
}

/// Queue pairs that a request and its reply name.
fn by_messages(packets: &[ExplainedPacket]) -> Vec<(Flow, Flow)> {
    let mut requests = BTreeMap::new();
    let mut pairs = Vec::new();
    for packet in packets {
        let (src, dst) = (packet.net.src(), packet.net.dst());
        match packet.message.as_deref().map(|mad| &mad.message) {
            Some(Message::Req(req)) => {
                requests.insert((src, dst, req.local_id), req.local_qpn);
            }
            Some(Message::Rep(rep)) => {
                if let Some(&qpn) = requests.get(&(dst, src, rep.remote_id)) {
                    let there = Flow { src: dst, dst: src, qpn: rep.local_qpn };
                    pairs.push((there, Flow { src, dst, qpn }));
                }
            }
            _ => {}
        }
    }
    pairs
}
