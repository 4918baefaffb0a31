//! Assigns packets to connections, and derives path MTUs.

use std::collections::BTreeMap;

use roce_transport::{
    addr::{Mtu, Qpn},
    cm::Message,
    wire::{Ext, PacketPosition, Service},
};

use super::{
    connection::{Connection, EndPoint},
    explained::ExplainedPacket,
    flow::Flow,
    network::Address,
    pairing::Pairs,
    reason::Explanation,
};

pub(super) fn place(
    packet: &ExplainedPacket,
    flow: Option<Flow>,
    pairs: &Pairs,
    by_flow: &mut BTreeMap<Flow, (usize, bool)>,
    by_datagram: &mut BTreeMap<(Address, Address, Qpn), usize>,
    connections: &mut Vec<Connection>,
) -> Option<(usize, bool)> {
    let headers = packet.headers?;
    let bth = headers.bth();
    let new = |ends, service| Connection {
        service,
        ends,
        one_of: 0,
        summaries: Default::default(),
        mtu: None,
        mtu_at_least: false,
        by_messages: false,
        time: (packet.at, packet.at),
    };
    let end = |address, qpn| EndPoint { address, qpn };
    let (src, dst) = (packet.net.src(), packet.net.dst());
    if bth.opcode.service() == Service::Ud {
        let source = match headers.ext() {
            Ext::Deth(deth) | Ext::DethImm(deth, _) => Some(deth.source_qp),
            _ => None,
        };
        // both CM directions are one connection
        let key = match bth.dest_qp == Qpn::GSI && src > dst {
            true => (dst, src, bth.dest_qp),
            false => (src, dst, bth.dest_qp),
        };
        let known = by_datagram.get(&key).copied();
        let index = known.unwrap_or_else(|| {
            by_datagram.insert(key, connections.len());
            let ends = [end(src, source), end(dst, Some(bth.dest_qp))];
            connections.push(new(ends, Service::Ud));
            connections.len() - 1
        });
        return Some((index, connections[index].ends[0].address != src));
    }
    let flow = flow?;
    if let Some(&place) = by_flow.get(&flow) {
        let service = &mut connections[place.0].service;
        if *service == Service::Cnp {
            *service = bth.opcode.service(); // first packet to show it
        }
        return Some(place);
    }
    if packet.why == Explanation::Damaged {
        return None; // any queue pair may have sent it
    }
    let other = pairs.other(&flow);
    let ends = [end(src, other.map(|other| other.qpn)), end(dst, Some(bth.dest_qp))];
    let index = connections.len();
    let one_of = pairs.candidates(&flow);
    connections.push(Connection { one_of, ..new(ends, bth.opcode.service()) });
    by_flow.insert(flow, (index, false));
    if let Some(other) = other {
        by_flow.insert(other, (index, true));
    }
    Some((index, false))
}

pub(super) fn set_mtus(packets: &[ExplainedPacket], connections: &mut [Connection]) {
    let mut agreed = BTreeMap::new();
    for packet in packets {
        if let Some(Message::Req(req)) = packet.message.as_deref().map(|mad| &mad.message)
            && (1..=5).contains(&req.path_mtu)
        {
            agreed.insert((packet.net.src(), req.local_qpn), 128_u32 << req.path_mtu);
        }
    }
    for connection in connections.iter_mut() {
        let ends = connection.ends.iter();
        let named = ends.filter_map(|end| agreed.get(&(end.address, end.qpn?)));
        connection.mtu = named.copied().next();
        connection.by_messages = connection.mtu.is_some();
    }
    // longest payload, and longest middle packet, which has the path MTU
    let mut longest = vec![(0, 0); connections.len()];
    for packet in packets.iter().filter(|packet| packet.why != Explanation::Damaged) {
        let headers = packet.headers.filter(|it| it.bth().opcode.service() != Service::Cnp);
        if let (Some(index), Some(headers)) = (packet.connection, headers) {
            let (any, within) = &mut longest[index];
            *any = packet.payload.max(*any);
            let place = headers.bth().opcode.operation().position();
            if matches!(place, PacketPosition::First | PacketPosition::Middle) {
                *within = packet.payload.max(*within);
            }
        }
    }
    for (connection, (any, within)) in connections.iter_mut().zip(longest) {
        if connection.mtu.is_none() && connection.service != Service::Ud {
            let fits = |mtu: &Mtu| mtu.bytes() as usize >= any;
            let least = Mtu::ALL.into_iter().find(fits).map(Mtu::bytes);
            connection.mtu = least.filter(|_| any > 0);
            connection.mtu_at_least = least.is_some_and(|mtu| within < mtu as usize);
        }
    }
}
