//! Memory gone at access: the key is valid.

use std::sync::Arc;

use roce_transport::{
    addr::Mtu,
    event::{Event, Refusal},
    mem::{Access, AccessError, HeapMemory, Memory, MemoryFault, MrAttr, Region},
    qp::State,
    wire::{NakCode, Operation as Op, Syndrome},
    work::{RecvWr, Remote, SendWr, Sge, WcStatus},
};

use crate::common::{ALL_RIGHTS, Half, Options, Pair, nak, pkt};

/// Only 512 bytes of the region exist.
struct CutShort(HeapMemory);

impl Memory for CutShort {
    fn len(&self) -> u64 {
        self.0.len()
    }

    fn read_at(&self, offset: u64, to: &mut [u8]) -> Result<(), MemoryFault> {
        if offset + to.len() as u64 > 512 { Err(MemoryFault) } else { self.0.read_at(offset, to) }
    }

    fn write_at(&self, offset: u64, from: &[u8]) -> Result<(), MemoryFault> {
        if offset + from.len() as u64 > 512 {
            Err(MemoryFault)
        } else {
            self.0.write_at(offset, from)
        }
    }
}

const ADDRESS: u64 = 0x1000;

fn setup() -> (Half, Arc<Region>) {
    let mut half = Half::new(Options { mtu: Mtu::B256, access: ALL_RIGHTS, ..Options::default() });
    let attr = MrAttr {
        memory: Arc::new(CutShort(HeapMemory::new(1024))),
        address: ADDRESS,
        access: ALL_RIGHTS,
    };
    let region = half.node.adapter.register(half.node.pd, attr).unwrap();
    (half, region)
}

fn at(region: &Region, offset: u64) -> Remote {
    Remote { address: ADDRESS + offset, rkey: region.rkey() }
}

fn all(region: &Region) -> Sge {
    Sge { lkey: region.lkey(), address: ADDRESS, length: 1024 }
}

fn failed(mut half: Half, key: u32) {
    half.node.drain_events();
    let refusal = Refusal::Access(AccessError::Fault(key));
    assert_eq!(
        (half.state(), &half.node.events[..]),
        (State::Err, &[Event::QpRequestError(half.qp.qpn, refusal)][..])
    );
}

#[test]
fn a_target() {
    let (mut half, region) = setup();
    half.send(&pkt(Op::WriteFirst, 0x200).reth(at(&region, 0), 1024).payload(&[1; 256]));
    half.send(&pkt(Op::WriteMiddle, 0x201).payload(&[1; 256]));
    half.send(&pkt(Op::WriteMiddle, 0x202).payload(&[1; 256]));
    half.expect(&[nak(NakCode::RemoteOperationalError, 0x202, 0)]);
    failed(half, region.lkey().0);
}

#[test]
fn a_target_of_eight_bytes() {
    for operation in [Op::CmpSwap, Op::FetchAdd, Op::AtomicWrite] {
        let (mut half, region) = setup();
        let request = match operation {
            Op::AtomicWrite => pkt(operation, 0x200).reth(at(&region, 512), 8).payload(&[1; 8]),
            _ => pkt(operation, 0x200).atomic(at(&region, 512), 1, 0),
        };
        half.exchange(&request.ask(), &[nak(NakCode::RemoteOperationalError, 0x200, 0)]);
        failed(half, region.rkey().0);
    }
}

#[test]
fn the_source_of_a_read() {
    let (mut half, region) = setup();
    half.send(&pkt(Op::ReadRequest, 0x200).reth(at(&region, 0), 1024));
    let first = pkt(Op::ReadResponseFirst, 0x200).aeth(Syndrome::ACK, 1).payload(&[0; 256]);
    let second = pkt(Op::ReadResponseMiddle, 0x201).payload(&[0; 256]);
    half.expect(&[first, second, nak(NakCode::RemoteOperationalError, 0x202, 1)]);
    failed(half, region.lkey().0);
}

#[test]
fn a_receive_buffer() {
    let (mut half, region) = setup();
    half.post_recv(&RecvWr::new(1, [all(&region)]));
    half.send(&pkt(Op::SendFirst, 0x200).payload(&[1; 256]));
    half.send(&pkt(Op::SendMiddle, 0x201).payload(&[1; 256]));
    half.send(&pkt(Op::SendLast, 0x202).payload(&[1; 256]));
    half.expect(&[nak(NakCode::RemoteOperationalError, 0x202, 0)]);
    assert_eq!(half.qp.recv_outcomes(), [(1, Err(WcStatus::LocProtErr))]);
    assert_eq!(half.state(), State::Err);
}

#[test]
fn a_source() {
    let (mut half, region) = setup();
    half.post_send(&SendWr::write(1, at(&region, 0), all(&region)));
    assert_eq!(half.take().len(), 2);
    assert_eq!(half.qp.send_outcomes(), [(1, Err(WcStatus::LocProtErr))]);
    assert_eq!(half.state(), State::Err);
}

#[test]
fn where_a_response_goes() {
    let (mut half, region) = setup();
    half.post_send(&SendWr::read(1, at(&region, 0), all(&region)));
    half.take();
    half.send(&pkt(Op::ReadResponseFirst, 0x100).aeth(Syndrome::ACK, 1).payload(&[7; 256]));
    half.send(&pkt(Op::ReadResponseMiddle, 0x101).payload(&[7; 256]));
    half.send(&pkt(Op::ReadResponseMiddle, 0x102).payload(&[7; 256]));
    assert_eq!(half.qp.send_outcomes(), [(1, Err(WcStatus::LocProtErr))]);
    assert_eq!(half.state(), State::Err);
    let mut bytes = [0; 512];
    region.memory().read_at(0, &mut bytes).unwrap();
    assert_eq!(bytes, [7; 512]);

    let (mut half, region) = setup();
    let last = Sge { address: ADDRESS + 1016, length: 8, ..all(&region) };
    half.post_send(&SendWr::fetch_add(1, at(&region, 0), 1, last));
    half.take();
    half.send(&pkt(Op::AtomicAcknowledge, 0x100).atomic_ack(1, 5));
    assert_eq!(half.qp.send_outcomes(), [(1, Err(WcStatus::LocProtErr))]);
    assert_eq!(half.state(), State::Err);
}

#[test]
fn the_source_of_a_datagram() {
    let mut pair = Pair::new();
    let (a, b) = pair.datagrams(Options::default());
    let attr = MrAttr {
        memory: Arc::new(CutShort(HeapMemory::new(1024))),
        address: ADDRESS,
        access: Access::empty(),
    };
    let pd = pair.a.pd;
    let region = pair.a.adapter.register(pd, attr).unwrap();
    let to = pair.b.destination(b.qpn);
    pair.post_send(&a, &SendWr::send_to(1, to, all(&region)));
    pair.run();
    assert_eq!(a.send_outcomes(), [(1, Err(WcStatus::LocProtErr))]);
    assert_eq!(pair.state(&a), State::Sqe);
}
