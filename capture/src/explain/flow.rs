//! Flows: packets from one address to one queue pair. Packets name the receiver only.

use std::collections::{BTreeMap, BTreeSet};

use roce_transport::{addr::Qpn, cm::Message, wire::Service};

use super::{explained::ExplainedPacket, network::Address, reason::Explanation};

#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(super) struct Flow {
    pub(super) src: Address,
    pub(super) dst: Address,
    pub(super) qpn: Qpn,
    /// Connections of this queue pair so far: each is another flow.
    connections: u32,
}

/// Connections made by CM so far, by end.
#[derive(Default)]
struct Made {
    known: BTreeSet<(Address, Qpn, u32)>,
    count: BTreeMap<(Address, Qpn), u32>,
}

impl Made {
    fn record(&mut self, end: Address, qpn: Qpn, id: u32) {
        if self.known.insert((end, qpn, id)) {
            *self.count.entry((end, qpn)).or_default() += 1;
        }
    }

    fn flow(&self, src: Address, dst: Address, qpn: Qpn) -> Flow {
        let connections = self.count.get(&(dst, qpn)).copied().unwrap_or_default();
        Flow { src, dst, qpn, connections }
    }
}

/// Each packet's flow, and the pairs that CM messages show, then those of roce's comments.
pub(super) fn flows(packets: &[ExplainedPacket]) -> (Vec<Option<Flow>>, Vec<(Flow, Flow)>) {
    let (mut made, mut requests) = (Made::default(), BTreeMap::new());
    let (mut flows, mut pairs, mut by_comments) = (Vec::new(), Vec::new(), BTreeSet::new());
    for packet in packets {
        let (src, dst) = (packet.net.src(), packet.net.dst());
        let is_whole = packet.why != Explanation::Damaged;
        match packet.message.as_deref().map(|mad| &mad.message) {
            Some(Message::Req(req)) if is_whole => {
                made.record(src, req.local_qpn, req.local_id);
                requests.insert((src, dst, req.local_id), req.local_qpn);
            }
            Some(Message::Rep(rep)) if is_whole => {
                made.record(src, rep.local_qpn, rep.local_id);
                if let Some(&qpn) = requests.get(&(dst, src, rep.remote_id)) {
                    pairs.push((made.flow(dst, src, rep.local_qpn), made.flow(src, dst, qpn)));
                }
            }
            _ => {}
        }
        let connected = packet.headers.filter(|it| it.bth().opcode.service() != Service::Ud);
        let flow = connected.map(|headers| made.flow(src, dst, headers.bth().dest_qp));
        if let (Some(flow), Some(qpn), true) = (flow, packet.sender_qp, is_whole) {
            by_comments.insert((flow, made.flow(dst, src, qpn)));
        }
        flows.push(flow);
    }
    pairs.extend(by_comments);
    (flows, pairs)
}
