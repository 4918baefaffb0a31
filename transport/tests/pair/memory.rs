//! SGEs, inline data, regions and protection domains (10.6, 11.2.6).

use roce_transport::{
    adapter::ObjectError,
    addr::Mtu,
    event::Disposition,
    mem::{Access, LKey, MrAttr, RegisterError, Reregister},
    qp::{PostError, QpCaps, QpType},
    wire::Operation as Op,
    work::{Data, RecvWr, Remote, SendWr, Sge, WcStatus},
};

use crate::common::{Buffer, Half, Options, Pair, Side, all_ok, pattern, pkt};

/// SGEs at odd addresses in reverse order.
fn pieces(buffer: &Buffer, lengths: &[usize]) -> Vec<Sge> {
    let mut at = buffer.len();
    lengths
        .iter()
        .map(|&length| {
            at -= length + 1;
            buffer.sge(at, length)
        })
        .collect()
}

fn bytes(buffer: &Buffer, sges: &[Sge]) -> Vec<u8> {
    let part = |sge: &Sge| {
        buffer.part((sge.address - buffer.region.address()) as usize, sge.length as usize)
    };
    sges.iter().flat_map(part).collect()
}

const GATHER: [usize; 9] = [1, 0, 7, 256, 255, 3, 513, 0, 2];
const SCATTER: [usize; 8] = [300, 1, 1, 0, 254, 2, 475, 4];

#[test]
fn gathered_and_scattered_at_odd_boundaries() {
    assert_eq!(GATHER.iter().sum::<usize>(), SCATTER.iter().sum::<usize>());
    for mtu in [Mtu::B256, Mtu::B512, Mtu::B4096] {
        let (mut pair, a, b) = Pair::connected(Options { mtu, ..Options::default() });
        let (near, back, far) =
            (pair.a.buffer(1100).fill(1), pair.a.buffer(1100), pair.b.buffer(1100));
        let gather = pieces(&near, &GATHER);
        let scatter = pieces(&far, &SCATTER);
        let written = pair.b.buffer(1037);
        pair.post_recv(&b, &RecvWr::new(1, scatter.clone()));
        pair.post_send(&a, &SendWr::send(1, Data::Sges(gather.iter().copied().collect())));
        pair.post_send(
            &a,
            &SendWr::write(2, written.remote(0), Data::Sges(gather.iter().copied().collect())),
        );
        let into = pieces(&back, &SCATTER);
        pair.post_send(
            &a,
            &SendWr::read(3, written.remote(0), Data::Sges(into.iter().copied().collect())),
        );
        pair.run();
        assert_eq!(a.send_outcomes(), [(1, Ok(0)), (2, Ok(0)), (3, Ok(1037))]);
        let expected = bytes(&near, &gather);
        assert_eq!(bytes(&far, &scatter), expected);
        assert_eq!(written.bytes(), expected);
        assert_eq!(bytes(&back, &into), expected);
        // gaps stay unchanged
        let total: u64 = far.bytes().iter().map(|&byte| u64::from(byte)).sum();
        assert_eq!(total, expected.iter().map(|&byte| u64::from(byte)).sum::<u64>());
    }
}

#[test]
fn an_empty_piece_needs_no_key() {
    let (mut pair, a, b) = Pair::connected(Options::default());
    let (near, far) = (pair.a.buffer(4).fill(1), pair.b.buffer(4));
    let empty = Sge { lkey: LKey(0xBAD), address: u64::MAX, length: 0 };
    pair.post_recv(&b, &RecvWr::new(1, [empty, far.all(), empty]));
    pair.post_send(&a, &SendWr::send(1, [empty, near.all(), empty]));
    pair.run();
    assert_eq!(a.send_outcomes(), all_ok([1], 0));
    assert_eq!(far.bytes(), near.bytes());
}

#[test]
fn no_bytes_need_no_key() {
    let unmapped = Remote { address: u64::MAX, rkey: roce_transport::mem::RKey(0xBAD) };
    let (mut pair, a, b) = Pair::connected(Options::default());
    pair.post_recv(&b, &RecvWr::new(9, []));
    pair.post_send(&a, &SendWr::write(1, unmapped, Data::empty()));
    pair.post_send(&a, &SendWr::read(2, unmapped, Data::empty()));
    pair.post_send(&a, &SendWr::write(3, unmapped, Data::empty()).with_immediate([1; 4]));
    pair.run();
    assert_eq!(a.send_outcomes(), all_ok([1, 2, 3], 0));
    assert_eq!(b.recv_outcomes(), all_ok([9], 0));
    assert_eq!(pair.trace.count(Side::B, Op::ReadResponseOnly), 1);
}

/// SGEs are read when packets are built.
#[test]
fn inline_data_is_a_copy() {
    let mut half = Half::new(Options::default());
    let from = half.buffer(4);
    from.put(0, b"then");
    half.post_send(&SendWr::send(1, Data::inline(&from.bytes())));
    half.post_send(&SendWr::send(2, from.all()));
    from.put(0, b"now!");
    half.expect(&[
        pkt(Op::SendOnly, 0x100).payload(b"then").ask(),
        pkt(Op::SendOnly, 0x101).payload(b"now!").ask(),
    ]);
}

#[test]
fn inline_data_of_several_packets_comes_again() {
    let caps = QpCaps { max_inline_data: 512, ..QpCaps::default() };
    let mut half = Half::new(Options { mtu: Mtu::B256, timeout: 8, caps, ..Options::default() });
    let bytes = pattern(1, 500);
    half.post_send(&SendWr::send(1, Data::inline(&bytes)));
    let packets = half.take();
    assert_eq!(packets.iter().flat_map(|packet| packet.payload.clone()).collect::<Vec<_>>(), bytes);
    half.advance(roce_transport::time::ack_timeout(8).unwrap());
    half.expect(&packets);
}

#[test]
fn what_cannot_be_posted() {
    let caps = QpCaps {
        max_send_wr: 2,
        max_recv_wr: 1,
        max_send_sge: 1,
        max_recv_sge: 1,
        max_inline_data: 8,
    };
    let (mut pair, a, _b) = Pair::connected(Options { caps, ..Options::default() });
    let near = pair.a.buffer(8);
    let send = |data: Data| SendWr::send(1, data);
    assert_eq!(
        pair.try_post_send(&a, &send([near.all(), near.all()].into())),
        Err(PostError::TooManySges { limit: 1 })
    );
    assert_eq!(
        pair.try_post_send(&a, &send(Data::inline(&[0; 9]))),
        Err(PostError::InlineTooLong { limit: 8 })
    );
    let read = SendWr::read(1, near.remote(0), Data::inline(&[0; 4]));
    assert_eq!(pair.try_post_send(&a, &read), Err(PostError::InlineRead));
    let huge = Sge { length: (1 << 30) + 1, ..near.all() };
    assert_eq!(pair.try_post_send(&a, &send(huge.into())), Err(PostError::TooLong));
    let datagram = SendWr::send_to(1, pair.b.destination(a.qpn), Data::empty());
    assert_eq!(pair.try_post_send(&a, &datagram), Err(PostError::WrongOperation(QpType::Rc)));
    pair.post_send(&a, &send(Data::empty()));
    pair.post_send(&a, &send(Data::empty()));
    assert_eq!(pair.try_post_send(&a, &send(Data::empty())), Err(PostError::QueueFull));
    let two = RecvWr::new(1, [near.all(), near.all()]);
    assert_eq!(pair.try_post_recv(&a, &two), Err(PostError::TooManySges { limit: 1 }));
    pair.post_recv(&a, &RecvWr::new(1, []));
    assert_eq!(pair.try_post_recv(&a, &RecvWr::new(1, [])), Err(PostError::QueueFull));
}

#[test]
fn memory_lives_as_long_as_a_request_that_uses_it() {
    let mut half = Half::new(Options::default());
    let from = half.buffer(8);
    half.post_send(&SendWr::send(1, from.all()));
    let weak = std::sync::Arc::downgrade(from.region.memory());
    let region = from.region.clone();
    half.node.adapter.deregister(&region).unwrap();
    drop((from, region));
    assert!(weak.upgrade().is_some());
    half.take();
    assert!(weak.upgrade().is_none(), "the request has failed and is gone");
}

#[test]
fn a_region_registered_again() {
    for combination in 0..8 {
        let mut half = Half::new(Options::default());
        let node = &mut half.node;
        let (own, other) = (node.pd, node.adapter.alloc_pd().unwrap());
        let old = node.buffer_in(other, 16, Access::LOCAL_WRITE | Access::REMOTE_WRITE);
        let new = node.buffer_in(own, 8, Access::empty());
        let memory = (new.region.memory().clone(), 0x9000);
        let change = Reregister {
            pd: (combination & 1 != 0).then_some(own),
            memory: (combination & 2 != 0).then_some(memory),
            access: (combination & 4 != 0).then_some(Access::REMOTE_READ),
        };
        let region = node.adapter.reregister(&old.region, change).unwrap();
        assert_eq!((region.lkey(), region.rkey()), (old.region.lkey(), old.region.rkey()));
        assert_eq!(
            region.address(),
            if combination & 2 != 0 { 0x9000 } else { old.region.address() }
        );
        assert_eq!(region.length(), if combination & 2 != 0 { 8 } else { 16 });
        let rights = if combination & 4 != 0 { Access::REMOTE_READ } else { old.region.access() };
        assert_eq!(region.access(), rights);
        let again = node.adapter.reregister(&old.region, Reregister::default());
        assert_eq!(again.map(|_| ()), Err(RegisterError::Deregistered));
        assert_eq!(
            node.adapter.deregister(&old.region),
            Ok(()),
            "which does nothing, the region being gone"
        );

        let write = pkt(Op::WriteOnly, 0x200)
            .reth(Remote { address: region.address(), rkey: region.rkey() }, 4);
        let disposition = half.send(&write.payload(&[9; 4]));
        let written = combination & 1 != 0 && combination & 4 == 0;
        assert_eq!(disposition == Disposition::Executed, written, "{combination}");
        let bytes = if combination & 2 != 0 { new.part(0, 4) } else { old.part(0, 4) };
        assert_eq!(bytes == [9; 4], written);
        assert_eq!(half.node.adapter.dealloc_pd(other) == Ok(()), combination & 1 != 0);
    }
}

#[test]
fn a_region_that_cannot_be_registered_so() {
    let mut half = Half::new(Options::default());
    let far = half.node.buffer_with(8, Access::LOCAL_WRITE | Access::REMOTE_WRITE);
    let memory = far.region.memory().clone();
    let gone = half.node.adapter.alloc_pd().unwrap();
    half.node.adapter.dealloc_pd(gone).unwrap();
    let changes = [
        (Reregister { pd: Some(gone), ..Reregister::default() }, RegisterError::UnknownPd),
        (
            Reregister { access: Some(Access::REMOTE_WRITE), ..Reregister::default() },
            RegisterError::RemoteWithoutLocalWrite,
        ),
        (
            Reregister { access: Some(Access::FLUSH_PERSISTENT), ..Reregister::default() },
            RegisterError::NotPersistent,
        ),
        (
            Reregister { memory: Some((memory, u64::MAX)), ..Reregister::default() },
            RegisterError::AddressOverflow,
        ),
    ];
    for (change, error) in changes {
        assert_eq!(half.node.adapter.reregister(&far.region, change).map(|_| ()), Err(error));
    }
    assert_eq!(
        half.send(&pkt(Op::WriteOnly, 0x200).reth(far.remote(0), 8).payload(&[9; 8])),
        Disposition::Executed
    );
    assert_eq!(far.bytes(), [9; 8]);
}

#[test]
fn requests_across_a_new_registration() {
    let mut half = Half::new(Options::default());
    let near = half.buffer(8);
    half.post_recv(&RecvWr::new(1, [near.all()]));
    half.node.adapter.reregister(&near.region, Reregister::default()).unwrap();
    half.send(&pkt(Op::SendOnly, 0x200).payload(&[1; 8]));
    assert_eq!(half.qp.recv_outcomes(), [(1, Err(WcStatus::LocProtErr))]);
    let mut half = Half::new(Options::default());
    let near = half.buffer(8);
    half.node.adapter.reregister(&near.region, Reregister::default()).unwrap();
    half.post_recv(&RecvWr::new(1, [near.all()]));
    half.send(&pkt(Op::SendOnly, 0x200).payload(&[1; 8]));
    assert_eq!(half.qp.recv_outcomes(), [(1, Ok(8))]);
}

#[test]
fn regions_of_a_domain_keep_it_alive() {
    let mut node = Half::reset(Options::default()).node;
    let pd = node.adapter.alloc_pd().unwrap();
    let buffer = node.buffer_in(pd, 8, Access::empty());
    assert_eq!(node.adapter.dealloc_pd(pd), Err(ObjectError::InUse));
    assert_eq!(
        node.adapter.dealloc_pd(node.pd),
        Err(ObjectError::InUse),
        "a queue pair belongs to it"
    );
    node.adapter.deregister(&buffer.region).unwrap();
    assert_eq!(node.adapter.dealloc_pd(pd), Ok(()));
    assert_eq!(node.adapter.dealloc_pd(pd), Err(ObjectError::Unknown));
    let memory = buffer.region.memory().clone();
    assert_eq!(memory.len(), 8);
    let attr = MrAttr { memory, address: 0, access: Access::empty() };
    assert_eq!(node.adapter.register(pd, attr).map(|_| ()), Err(RegisterError::UnknownPd));
}
