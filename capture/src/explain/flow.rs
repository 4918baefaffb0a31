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
pub(super) struct Made {
    known: BTreeSet<(Address, Qpn, u32)>,
    count: BTreeMap<(Address, Qpn), u32>,
}

impl Made {
    pub(super) fn record(&mut self, packet: &ExplainedPacket) {
        let (qpn, id) = match packet.message.as_deref().map(|mad| &mad.message) {
            Some(Message::Req(req)) => (req.local_qpn, req.local_id),
            Some(Message::Rep(rep)) => (rep.local_qpn, rep.local_id),
            _ => return,
        };
        let end = packet.net.src();
        if self.known.insert((end, qpn, id)) {
            *self.count.entry((end, qpn)).or_default() += 1;
        }
    }

    pub(super) fn flow(&self, src: Address, dst: Address, qpn: Qpn) -> Flow {
        let connections = self.count.get(&(dst, qpn)).copied().unwrap_or_default();
        Flow { src, dst, qpn, connections }
    }
}

pub(super) fn flows(packets: &[ExplainedPacket]) -> Vec<Option<Flow>> {
    let mut made = Made::default();
    let mut flow = |packet: &ExplainedPacket| {
        if packet.why != Explanation::Damaged {
            made.record(packet);
        }
        let bth = packet.headers?.bth().to_owned();
        let connected = bth.opcode.service() != Service::Ud;
        connected.then(|| made.flow(packet.net.src(), packet.net.dst(), bth.dest_qp))
    };
    packets.iter().map(&mut flow).collect()
}
