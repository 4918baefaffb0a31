//! Several adapters behind one address.
//!
//! The upper six bits of QPNs and communication IDs are the adapter's [`IdPartition`]. A REQ goes
//! to the listener's adapter. A TIMEOUT REJ names only the peer's ID and follows the
//! [REQ](Requests).

use alloc::collections::VecDeque;
use core::{net::IpAddr, ops::RangeInclusive};

use crate::{
    addr::PKey,
    bounded,
    cm::{CmMad, ConnRecord, Message, ServiceId},
    ids::Qpn,
    wire::Packet,
};

const QPN_BITS: u32 = 18;
const ID_BITS: u32 = 26;
/// REQs remembered. A connection whose REJ is lost ends by a timeout.
const REQUESTS: usize = 256;

/// One adapter's part of the numbers, 1 to 62. The rest: QP0, QP1, multicast QPN, communication ID
/// 0.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct IdPartition(u8);

impl IdPartition {
    /// Number of partitions.
    pub const COUNT: u8 = 62;

    /// Partition with this number.
    #[must_use]
    pub const fn new(number: u8) -> Option<Self> {
        if 1 <= number && number <= Self::COUNT { Some(Self(number)) } else { None }
    }

    /// All partitions.
    pub fn all() -> impl Iterator<Item = Self> + Clone {
        (1..=Self::COUNT).map(Self)
    }

    /// The number.
    #[must_use]
    pub const fn get(self) -> u8 {
        self.0
    }

    /// Partition of a communication ID.
    #[must_use]
    pub const fn of_id(id: u32) -> Option<Self> {
        Self::new((id >> ID_BITS) as u8)
    }

    /// QPNs for [`AdapterConfig::qpns`](crate::adapter::AdapterConfig::qpns).
    #[must_use]
    pub const fn qpns(self) -> RangeInclusive<u32> {
        let first = (self.0 as u32) << QPN_BITS;
        first..=first | ((1 << QPN_BITS) - 1)
    }

    /// Communication IDs for [`CmConfig::ids`](crate::cm::CmConfig::ids).
    #[must_use]
    pub const fn ids(self) -> RangeInclusive<u32> {
        let first = (self.0 as u32) << ID_BITS;
        first..=first | ((1 << ID_BITS) - 1)
    }

    /// True if the adapter can have the connection.
    #[must_use]
    pub fn can_have(self, record: &ConnRecord) -> bool {
        let &ConnRecord { local, remote, pkey, local_id, .. } = record;
        self.ids().contains(&local_id)
            && remote.is_ipv4() == local.is_ipv4()
            && !remote.is_unspecified()
            && !remote.is_multicast()
            && remote != IpAddr::from([255; 4])
            && pkey != PKey(0)
    }
}

/// Addressee of a datagram.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Addressee {
    /// The partition's adapter.
    Partition(IdPartition),
    /// Listener of the service.
    Service(ServiceId),
    /// Not in the bytes.
    Unknown,
}

impl Addressee {
    /// Addressee of a UDP payload, unchecked.
    #[must_use]
    pub fn of(bytes: &[u8]) -> Self {
        let Some(qpn) = destination(bytes) else { return Self::Unknown };
        if qpn != Qpn::GSI {
            let partition = IdPartition::new((qpn.get() >> QPN_BITS) as u8);
            return partition.map_or(Self::Unknown, Self::Partition);
        }
        message(bytes).map_or(Self::Unknown, |message| Self::of_message(&message))
    }

    fn of_message(message: &Message) -> Self {
        let own_id = match message {
            Message::Req(req) => return Self::Service(req.service_id),
            Message::SidrReq(req) => return Self::Service(req.service_id),
            Message::Rej(rej) => rej.remote_id,
            Message::Mra(mra) => mra.remote_id,
            Message::Rep(rep) => rep.remote_id,
            Message::Rtu(rtu) => rtu.remote_id,
            Message::Dreq(dreq) => dreq.remote_id,
            Message::Drep(drep) => drep.remote_id,
            Message::Lap(lap) => lap.remote_id,
            Message::Apr(apr) => apr.remote_id,
            Message::SidrRep(rep) => rep.request_id,
        };
        IdPartition::of_id(own_id).map_or(Self::Unknown, Self::Partition)
    }
}

fn destination(bytes: &[u8]) -> Option<Qpn> {
    let &[_, high, middle, low] = bytes.get(4..)?.first_chunk()?;
    Some(Qpn::new(u32::from_be_bytes([0, high, middle, low])))
}

fn message(bytes: &[u8]) -> Option<Message> {
    if destination(bytes)? != Qpn::GSI {
        return None;
    }
    let packet = Packet::parse(bytes).ok()?;
    CmMad::parse(packet.payload).ok().map(|mad| mad.message)
}

/// Latest REQs, for a REJ without the receiver's communication ID.
#[derive(Default, Debug)]
pub struct Requests(VecDeque<(Requester, ServiceId)>);

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct Requester {
    address: IpAddr,
    guid: u64,
    id: u32,
}

impl Requests {
    /// Addressee of a UDP payload; remembers REQs.
    pub fn addressee(&mut self, address: IpAddr, bytes: &[u8]) -> Addressee {
        let addressee = Addressee::of(bytes);
        if matches!(addressee, Addressee::Partition(_)) {
            return addressee;
        }
        match message(bytes) {
            Some(Message::Req(req)) => {
                let requester = Requester { address, guid: req.local_ca_guid, id: req.local_id };
                self.remember(requester, req.service_id);
                addressee
            }
            Some(Message::Rej(rej)) if rej.remote_id == 0 => {
                let Some(guid) = rej.requester_guid() else { return addressee };
                let requester = Requester { address, guid, id: rej.local_id };
                self.service(requester).map_or(addressee, Addressee::Service)
            }
            _ => addressee,
        }
    }

    fn remember(&mut self, requester: Requester, service: ServiceId) {
        if self.service(requester) == Some(service) {
            return; // retransmitted
        }
        bounded::push(&mut self.0, (requester, service), REQUESTS);
    }

    fn service(&self, requester: Requester) -> Option<ServiceId> {
        let mut last = self.0.iter().rev();
        last.find(|(other, _)| *other == requester).map(|(_, service)| *service)
    }
}

#[cfg(test)]
mod tests {
    use alloc::{vec, vec::Vec};

    use super::*;
    use crate::{
        addr::QKey,
        cm::{About, PrivateData, Rej, RejectReason, Req, Rtu},
        wire::{Bth, Deth, Ext, Headers, ICRC_LEN, MAD_LEN, Opcode, Operation, Service},
    };

    fn packet(qpn: u32, payload: &[u8]) -> Vec<u8> {
        let bth = Bth::new(
            Opcode::known(Service::Ud, Operation::SendOnly),
            Qpn::new(qpn),
            crate::psn::Psn::new(0),
        );
        let headers = Headers::built(bth, Ext::Deth(Deth { qkey: QKey::GSI, source_qp: Qpn::GSI }));
        let mut bytes = vec![0; 64];
        let length = headers.encode(payload.len(), &mut bytes);
        bytes.truncate(length);
        bytes.extend_from_slice(payload);
        bytes.extend_from_slice(&[0; ICRC_LEN]);
        bytes
    }

    fn message(attribute: u8, words: [u32; 4]) -> Addressee {
        let rtu =
            Message::Rtu(Rtu { local_id: 0, remote_id: 0, private_data: PrivateData::default() });
        let mut mad = CmMad { transaction: 1, modifier: 0, message: rtu }.encode();
        mad[17] = attribute;
        mad[24..40].copy_from_slice(&words.map(u32::to_be_bytes).concat());
        Addressee::of(&packet(1, &mad))
    }

    #[test]
    fn slots_divide_the_numbers() {
        assert_eq!(IdPartition::new(0), None);
        assert_eq!(IdPartition::new(63), None);
        let partitions: Vec<IdPartition> =
            (1..=IdPartition::COUNT).map(|number| IdPartition::new(number).unwrap()).collect();
        for pair in partitions.windows(2) {
            assert_eq!(pair[0].qpns().end() + 1, *pair[1].qpns().start());
            assert_eq!(pair[0].ids().end() + 1, *pair[1].ids().start());
        }
        assert_eq!(
            (*partitions[0].qpns().start(), *partitions[61].qpns().end()),
            (0x04_0000, 0xFB_FFFF)
        );
        assert_eq!(
            (*partitions[0].ids().start(), *partitions[61].ids().end()),
            (0x0400_0000, 0xFBFF_FFFF)
        );
    }

    #[test]
    fn a_packet_is_for_the_slot_of_its_queue_pair() {
        for partition in IdPartition::all() {
            for qpn in [*partition.qpns().start(), *partition.qpns().end()] {
                assert_eq!(Addressee::of(&packet(qpn, b"data")), Addressee::Partition(partition));
            }
        }
        for nobodys in [0, 2, 0x03_FFFF, 0xFC_0000, 0xFF_FFFF] {
            assert_eq!(Addressee::of(&packet(nobodys, b"")), Addressee::Unknown);
        }
        for length in 0..8 {
            assert_eq!(Addressee::of(&packet(0x04_0000, b"")[..length]), Addressee::Unknown);
        }
    }

    #[test]
    fn a_message_is_for_whoever_it_names() {
        let (own, peers) = (0x1234_5678, 0xFFFF_FFFF);
        let partition = IdPartition::new(4).unwrap();
        assert!(partition.ids().contains(&own));
        // MRA, REJ, REP, RTU, DREQ, DREP; LAP, APR
        for attribute in (0x11..=0x16).chain([0x19, 0x1A]) {
            assert_eq!(message(attribute, [peers, own, 0, 0]), Addressee::Partition(partition));
        }
        let [sidr_req, sidr_rep, nothing] = [0x17, 0x18, 0x1B];
        assert_eq!(message(sidr_rep, [own, 0, 0, 0]), Addressee::Partition(partition));
        for asking in [0x10, sidr_req] {
            assert_eq!(
                message(asking, [own, 0, 0, 0x0106_1234]),
                Addressee::Service(ServiceId(0x0106_1234))
            );
        }
        assert_eq!(message(0x12, [own, 0, 0, 0]), Addressee::Unknown);
        assert_eq!(message(0x14, [own, 0, 0, 0]), Addressee::Unknown);
        assert_eq!(message(nothing, [own, own, 0, 0]), Addressee::Unknown);
        assert_eq!(Addressee::of(&packet(1, &[0; MAD_LEN])), Addressee::Unknown);
        assert_eq!(Addressee::of(&packet(1, b"")), Addressee::Unknown);
    }

    const PEER: IpAddr = IpAddr::V4(core::net::Ipv4Addr::new(10, 0, 0, 2));
    const GUID: u64 = 0x0202_0304_0506_0708;

    fn request(service: u64, guid: u64, id: u32) -> Vec<u8> {
        let req = Req {
            local_id: id,
            local_ca_guid: guid,
            service_id: ServiceId(service),
            ..Req::default()
        };
        packet(1, &CmMad::new(1, Message::Req(alloc::boxed::Box::new(req))).encode())
    }

    fn given_up(guid: u64, id: u32) -> Vec<u8> {
        let rej =
            Rej::new(id, 0, About::Other, RejectReason::TIMEOUT).with_info(&guid.to_be_bytes());
        packet(1, &CmMad::new(1, Message::Rej(alloc::boxed::Box::new(rej))).encode())
    }

    #[test]
    fn what_a_peer_gives_up_is_for_the_service_that_it_asked_for() {
        let mut requests = Requests::default();
        let service = Addressee::Service(ServiceId(7));
        assert_eq!(requests.addressee(PEER, &given_up(GUID, 5)), Addressee::Unknown);
        for _ in 0..2 {
            assert_eq!(requests.addressee(PEER, &request(7, GUID, 5)), service);
        }
        assert_eq!(requests.0.len(), 1);
        assert_eq!(requests.addressee(PEER, &given_up(GUID, 5)), service);
        let another = IpAddr::V4(core::net::Ipv4Addr::new(10, 0, 0, 3));
        for (address, guid, id) in [(another, GUID, 5), (PEER, GUID + 1, 5), (PEER, GUID, 6)] {
            assert_eq!(requests.addressee(address, &given_up(guid, id)), Addressee::Unknown);
        }
        let mut elsewhere = given_up(GUID, 5);
        elsewhere[7] = 2; // not QP1
        assert_eq!(requests.addressee(PEER, &elsewhere), Addressee::Unknown);
        // the peer has reused the number
        requests.addressee(PEER, &request(8, GUID, 5));
        let other = Addressee::Service(ServiceId(8));
        assert_eq!(requests.addressee(PEER, &given_up(GUID, 5)), other);
    }

    #[test]
    fn a_bounded_number_of_requests_is_remembered() {
        let mut requests = Requests::default();
        for id in 0..=REQUESTS as u32 {
            requests.addressee(PEER, &request(7, GUID, id));
        }
        assert_eq!(requests.0.len(), REQUESTS);
        assert_eq!(requests.addressee(PEER, &given_up(GUID, 0)), Addressee::Unknown);
        let last = requests.addressee(PEER, &given_up(GUID, REQUESTS as u32));
        assert_eq!(last, Addressee::Service(ServiceId(7)));
    }
}
