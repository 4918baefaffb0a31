//! Messages taken from one adapter, changed, and delivered to the other.

use std::net::{IpAddr, Ipv4Addr};

use roce_transport::{
    addr::{QKey, Qpn},
    cm::{CmMad, Message, Req},
    event::Disposition,
    psn::Psn,
    wire::{Bth, Datagram, Deth, Ext, Headers, NetHeader, Opcode, Operation, Packet, Service},
};

use crate::common::{Pair, Side, encode, net};

pub(crate) const GSI_QKEY: QKey = QKey(0x8001_0000);
pub(crate) const OTHER_HOST: IpAddr = IpAddr::V4(Ipv4Addr::new(10, 0, 0, 66));

pub(crate) fn sent(pair: &mut Pair, side: Side) -> Vec<CmMad> {
    let now = pair.now;
    let node = pair.node(side);
    node.transmit.clear();
    node.adapter.poll_transmit(now, &mut node.transmit);
    let mads = node.transmit.datagrams().filter_map(|(_, bytes)| mad_of(bytes)).collect();
    node.transmit.clear();
    mads
}

pub(crate) fn mad_of(bytes: &[u8]) -> Option<CmMad> {
    let packet =
        Packet::parse(bytes).ok().filter(|packet| packet.headers.bth().dest_qp == Qpn::GSI)?;
    Some(CmMad::parse(packet.payload).unwrap())
}

pub(crate) fn deliver(pair: &mut Pair, side: Side, mad: &CmMad) -> Disposition {
    let from = pair.node(side.other()).ip;
    deliver_from(pair, side, from, mad)
}

pub(crate) fn deliver_from(pair: &mut Pair, side: Side, from: IpAddr, mad: &CmMad) -> Disposition {
    deliver_bytes(pair, side, from, &mad.encode(), GSI_QKEY)
}

pub(crate) fn deliver_bytes(
    pair: &mut Pair,
    side: Side,
    from: IpAddr,
    payload: &[u8],
    qkey: QKey,
) -> Disposition {
    let now = pair.now;
    let node = pair.node(side);
    let net = NetHeader { src_port: 0xD872, ..net(from, node.ip) };
    // with ack_req, as in the kernel
    let mut bth =
        Bth::new(Opcode::new(Service::Ud, Operation::SendOnly).unwrap(), Qpn::GSI, Psn::new(5));
    bth.ack_req = true;
    let headers = Headers::new(bth, Ext::Deth(Deth { qkey, source_qp: Qpn::GSI })).unwrap();
    let disposition = node
        .adapter
        .handle_datagram(now, &Datagram::new(&net, &encode(&net, headers, payload)))
        .disposition;
    node.drain_events();
    disposition
}

pub(crate) fn change_req(mut mad: CmMad, change: impl FnOnce(&mut Req)) -> CmMad {
    let Message::Req(req) = &mut mad.message else { panic!("{mad:?}") };
    change(req);
    mad
}
