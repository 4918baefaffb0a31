//! Attacks by senders or peers; docs/security.md names each threat.

use std::collections::BTreeSet;

use roce_transport::{
    adapter::{Adapter, AdapterConfig, Limits, ObjectError, ObjectKind},
    addr::{QKey, Qpn},
    event::{Disposition, DropReason, Refusal},
    mem::{Access, MrAttr, RKey, RegisterError, WindowBind, WindowId, WindowType},
    qp::{QpCaps, QpInit, QpType, State},
    wire::{Ext, Headers, NakCode, NetHeader, Opcode, Operation as Op, Syndrome},
    work::{Data, RecvWr, Remote, SendWr, SrqAttr, WcStatus},
};

use crate::common::{ALL_RIGHTS, Half, Options, Pair, Pkt, nak, pkt, qp_init, refused_with};

const RIGHTS: Access = Access::REMOTE_READ.union(Access::REMOTE_CHANGE).union(Access::FLUSH_GLOBAL);

fn options() -> Options {
    Options { access: RIGHTS, ..Options::default() }
}

fn requests(psn: u32, remote: Remote) -> [Pkt; 6] {
    [
        pkt(Op::WriteOnly, psn).reth(remote, 8).payload(&[7; 8]),
        pkt(Op::ReadRequest, psn).reth(remote, 8),
        pkt(Op::FetchAdd, psn).atomic(remote, 1, 0),
        pkt(Op::CmpSwap, psn).atomic(remote, 7, 0),
        pkt(Op::AtomicWrite, psn).reth(remote, 8).payload(&[7; 8]),
        pkt(Op::Flush, psn).flush(1, 0, remote, 8),
    ]
}

#[test]
fn keys_are_random_and_not_given_again_soon() {
    let mut half = Half::new(Options::default());
    let pd = half.node.pd;
    let mut keys = Vec::new();
    for n in 0..4000 {
        let buffer = half.node.buffer_with(8, Access::empty());
        keys.extend([buffer.region.lkey().0, buffer.region.rkey().0]);
        half.node.adapter.deregister(&buffer.region).unwrap();
        if n % 16 == 0 {
            let rkey = half.node.adapter.alloc_window(pd, WindowType::Type1).unwrap();
            keys.push(rkey.0);
            half.node.adapter.dealloc_window(WindowId::of(rkey)).unwrap();
        }
    }
    for (n, key) in keys.iter().enumerate() {
        assert!(!keys[n + 1..].iter().take(4096).any(|other| other == key), "key {n} comes again");
    }
    for bit in 0..32 {
        let ones = keys.iter().filter(|&key| key >> bit & 1 == 1).count();
        assert!(
            (45..55).contains(&(ones * 100 / keys.len())),
            "bit {bit} is set in {ones} of {}",
            keys.len()
        );
    }
}

#[test]
fn another_seed_gives_other_numbers() {
    let numbers = |seed: u8| {
        let mut node =
            crate::common::Node::new([10, 0, 0, 1].into(), seed, crate::common::UDP_SEGMENT);
        let buffer = node.buffer(8);
        let qp = node.qp(crate::common::Side::A, QpType::Rc, &Options::default());
        [
            buffer.region.rkey().0,
            buffer.region.lkey().0,
            qp.qpn.get(),
            node.adapter.random_psn().get(),
        ]
    };
    assert_eq!(numbers(1), numbers(1));
    let all: BTreeSet<u32> = (0..50).flat_map(numbers).collect();
    assert_eq!(all.len(), 200);
}

#[test]
fn a_wrong_guess_costs_the_connection() {
    for index in 0..6 {
        let mut half = Half::new(options());
        let memory = half.buffer(8);
        let guess = Remote { rkey: RKey(memory.region.rkey().0 ^ 1), ..memory.remote(0) };
        half.exchange(&requests(0x200, guess)[index], &[nak(NakCode::RemoteAccessError, 0x200, 0)]);
        assert_eq!(half.state(), State::Err);
        for packet in requests(0x200, memory.remote(0)) {
            assert_eq!(half.send(&packet), Disposition::Dropped(DropReason::QpState));
        }
        half.expect_nothing();
        assert_eq!(memory.bytes(), [0; 8]);
    }
}

#[test]
fn addresses_that_wrap() {
    for zero_based in [false, true] {
        for (address, length) in
            [(u64::MAX - 7, 8), (u64::MAX - 7, 0x10_0008), (0, 0x4000_0000), (!7, 16)]
        {
            for index in 0..6 {
                let mut half = Half::new(options());
                let memory = half.buffer(64);
                let pd = half.node.pd;
                let rkey = half.node.adapter.alloc_window(pd, WindowType::Type2B).unwrap();
                let (region, first) = (memory.region.lkey(), memory.region.address());
                let bind = WindowBind {
                    rkey,
                    region,
                    address: first,
                    length: 64,
                    access: RIGHTS,
                    zero_based,
                };
                half.post_send(&SendWr::bind_window(1, bind));
                half.take();
                let remote = Remote { address, rkey };
                let word = index == 2 || index == 3;
                if word && address == 0 && zero_based {
                    continue; // eight bytes are inside
                }
                let packet = match requests(0x200, remote)[index].clone() {
                    // an unfinished WRITE; an ATOMIC WRITE always has eight bytes
                    Pkt { operation: Op::WriteOnly, .. } => pkt(Op::WriteFirst, 0x200)
                        .reth(remote, length.max(1025))
                        .payload(&[7; 1024]),
                    Pkt { operation: Op::ReadRequest, .. } => {
                        pkt(Op::ReadRequest, 0x200).reth(remote, length)
                    }
                    Pkt { operation: Op::Flush, .. } => {
                        pkt(Op::Flush, 0x200).flush(1, 0, remote, length)
                    }
                    Pkt { operation: Op::AtomicWrite, .. } if address == 0 && zero_based => {
                        continue;
                    }
                    packet => packet,
                };
                half.exchange(&packet, &[nak(NakCode::RemoteAccessError, 0x200, 0)]);
                assert_eq!(memory.bytes(), [0; 64], "{packet:?}");
            }
        }
    }
}

/// The attempt fails the attacker's connection alone.
#[test]
fn a_window_of_another_connection_cannot_be_invalidated() {
    for window_type in [WindowType::Type1, WindowType::Type2A, WindowType::Type2B] {
        let (mut pair, user, owner) = Pair::connected(options());
        let (thief, victim) = pair.connect(options());
        let (near, far, pd) = (pair.a.buffer(8).fill(5), pair.b.buffer(64), pair.b.pd);
        let rkey = pair.b.adapter.alloc_window(pd, window_type).unwrap();
        let (region, address) = (far.region.lkey(), far.region.address());
        let bind =
            WindowBind { rkey, region, address, length: 64, access: RIGHTS, zero_based: false };
        pair.post_send(&owner, &SendWr::bind_window(1, bind));
        pair.post_recv(&victim, &RecvWr::new(2, []));
        pair.run();
        pair.post_send(&thief, &SendWr::send_invalidate(3, rkey, Data::empty()));
        pair.run();
        assert_eq!(victim.recv_outcomes(), [(2, Err(WcStatus::RemInvReqErr))]);
        assert_eq!((pair.state(&victim), pair.state(&owner)), (State::Err, State::Rts));
        pair.post_send(&user, &SendWr::write(4, Remote { address, rkey }, near.all()));
        pair.run();
        assert_eq!(user.send_outcomes(), [(4, Ok(0))]);
        assert_eq!(far.part(0, 8), near.bytes());
    }
}

#[test]
fn a_flood_at_a_queue_pair_that_is_not_connected() {
    let mut half = Half::reset(options());
    let memory = half.buffer(8);
    let qpn = half.qp.qpn;
    half.node.adapter.to_init(qpn, &roce_transport::qp::Init::default()).unwrap();
    half.post_recv(&RecvWr::new(1, [memory.all()]));
    half.node.drain_events();
    for psn in 0..2000 {
        for packet in requests(psn, memory.remote(0)) {
            assert_eq!(half.send(&packet), Disposition::Dropped(DropReason::QpState));
        }
    }
    let mut bth = half.bth(&pkt(Op::SendOnly, 0));
    bth.dest_qp = Qpn::new(qpn.get() ^ 1);
    for _ in 0..2000 {
        let headers = Headers::new(bth, Ext::None).unwrap();
        assert_eq!(
            half.send_as(&half.net(), headers, b""),
            Disposition::Dropped(DropReason::UnknownQp)
        );
    }
    half.expect_nothing();
    assert_eq!(
        (half.node.events.len(), half.qp.received().len(), memory.bytes()),
        (0, 0, vec![0; 8])
    );
    assert_eq!(half.node.adapter.poll_timeout(), None);
}

/// A small READ cannot flood a third host.
#[test]
fn a_read_with_another_source_gets_no_response() {
    let mut half = Half::new(options());
    let memory = half.buffer(4096);
    for src in [[10, 0, 0, 3], [10, 0, 0, 1], [127, 0, 0, 1], [255, 255, 255, 255]] {
        let packet = pkt(Op::ReadRequest, 0x200).reth(memory.remote(0), 4096);
        let net = NetHeader { src: src.into(), ..half.net() };
        let headers = Headers::new(half.bth(&packet), packet.ext).unwrap();
        assert_eq!(
            half.send_as(&net, headers, b""),
            Disposition::Dropped(DropReason::SourceAddress)
        );
    }
    half.expect_nothing();
    half.send(&pkt(Op::ReadRequest, 0x200).reth(memory.remote(0), 4096));
    half.node.adapter.poll_transmit(half.now, &mut half.node.transmit);
    let to: BTreeSet<_> = half.node.transmit.datagrams().map(|(net, _)| net.dst).collect();
    assert_eq!(to, [Half::PEER_IP].into());
}

/// Without the PSN an attacker hits 512 responses at most, or one request, in 16 million.
#[test]
fn psns_far_outside() {
    let mut half = Half::new(options());
    let memory = half.buffer(8);
    half.post_send(&SendWr::write(1, memory.remote(0), Data::inline(&[1])));
    half.take();
    let before = half.node.adapter.query_qp(half.qp.qpn).unwrap();
    for n in 1..4000 {
        let psn = 0x200 + n * 4194;
        if psn & 0xFF_FFFF == 0x200 {
            continue;
        }
        for packet in requests(psn & 0xFF_FFFF, memory.remote(0)) {
            assert!(!matches!(half.send(&packet), Disposition::Executed), "{packet:?}");
        }
        let response = pkt(Op::Acknowledge, psn & 0xFF_FFFF).aeth(Syndrome::ACK, 0);
        let disposition = half.send(&response);
        assert!(matches!(disposition, Disposition::Dropped(_)), "{disposition}");
    }
    assert_eq!(memory.bytes(), [0; 8]);
    assert_eq!(half.node.adapter.query_qp(half.qp.qpn).unwrap(), before);
    assert!(half.take().len() <= 2, "one NAK, and one acknowledgement of what is past");
    assert_eq!(half.qp.send_outcomes(), []);
}

/// CNPs count once per 50 µs, and not from other addresses.
#[test]
fn forged_notifications_slow_down_and_nothing_else() {
    let mut half = Half::new(options());
    half.post_send(&SendWr::send(1, Data::empty()));
    half.take();
    let before = half.node.adapter.query_qp(half.qp.qpn).unwrap();
    let mut bth = half.bth(&pkt(Op::SendOnly, 0x100));
    bth.opcode = Opcode::CNP;
    let headers = Headers::new(bth, Ext::None).unwrap();
    let other_source = NetHeader { src: [10, 0, 0, 3].into(), ..half.net() };
    for _ in 0..1000 {
        assert_eq!(half.send_as(&half.net(), headers, &[0; 16]), Disposition::Congestion);
        assert_eq!(
            half.send_as(&other_source, headers, &[0; 16]),
            Disposition::Dropped(DropReason::SourceAddress)
        );
    }
    half.expect_nothing();
    let after = half.node.adapter.query_qp(half.qp.qpn).unwrap();
    assert_eq!(after.congestion.cnp_received, 1000);
    let mut otherwise = after;
    assert!(after.window >= before.window / 10 * 8, "they came at once, and count as one");
    assert!(after.rate.is_some_and(|rate| rate >= 10_000_000));
    otherwise.congestion = before.congestion;
    (otherwise.window, otherwise.rate) = (before.window, before.rate);
    assert_eq!(otherwise, before);
    assert_eq!((half.node.adapter.counters().cnp_received, half.node.events.len()), (1000, 0));
}

/// A wrong queue key looks like an unknown queue pair, except in counters.
#[test]
fn a_guessed_queue_key() {
    let mut pair = Pair::new();
    let (a, b) = pair.datagrams(Options::default());
    let memory = pair.b.buffer(100);
    pair.post_recv(&b, &RecvWr::new(1, [memory.all()]));
    pair.allow(DropReason::QKey);
    for guess in 0..64 {
        let mut to = pair.b.destination(b.qpn);
        to.qkey = QKey(to.qkey.0 ^ 1 << (guess % 31));
        pair.post_send(&a, &SendWr::send_to(guess, to, Data::inline(b"guess")));
        pair.run();
    }
    assert_eq!(
        (pair.dropped(DropReason::QKey), b.recv_outcomes(), memory.bytes()),
        (64, vec![], vec![0; 100])
    );
    assert_eq!(pair.trace.from(crate::common::Side::B).count(), 0);
}

/// Excess READs end the connection.
#[test]
fn a_flood_of_reads() {
    let mut half = Half::new(Options { max_dest_rd_atomic: 4, ..options() });
    let memory = half.buffer(1 << 20);
    let read = |psn: u32| pkt(Op::ReadRequest, psn).reth(memory.remote(0), 1 << 20);
    let mut accepted = 0;
    for n in 0..100 {
        accepted += usize::from(half.send(&read(0x200 + n * 1024)) == Disposition::Executed);
    }
    assert_eq!((accepted, half.state()), (4, State::Err));
    let responses = half.take();
    assert_eq!(responses.len(), 4 * 1024 + 1, "the four that were agreed on, and the NAK");
}

#[test]
fn every_resource_has_a_limit() {
    let limits = Limits {
        max_pd: 2,
        max_mr: 3,
        max_mw: 2,
        max_cq: 2,
        max_cqe: 16,
        max_qp: 2,
        max_srq: 2,
        max_xrcd: 1,
        max_qp_wr: 4,
        max_sge: 2,
        max_recv_sge: 2,
        max_srq_wr: 4,
        max_srq_sge: 2,
        max_inline_data: 8,
        ..Limits::default()
    };
    let mut adapter = Adapter::new(AdapterConfig { limits, ..AdapterConfig::new([1; 32]) });
    for _ in 0..3 {
        let pds = [(); 2].map(|()| adapter.alloc_pd().unwrap());
        let too_many = |what, limit| ObjectError::TooMany { what, limit };
        assert_eq!(adapter.alloc_pd(), Err(too_many(ObjectKind::ProtectionDomain, 2)));
        let attr = || MrAttr {
            memory: std::sync::Arc::new(roce_transport::mem::HeapMemory::new(8)),
            address: 0,
            access: ALL_RIGHTS,
        };
        let regions = [(); 3].map(|()| adapter.register(pds[0], attr()).unwrap());
        assert_eq!(adapter.register(pds[0], attr()).map(|_| ()), Err(RegisterError::TooMany(3)));
        let windows = [(); 2].map(|()| adapter.alloc_window(pds[0], WindowType::Type1).unwrap());
        assert_eq!(
            adapter.alloc_window(pds[0], WindowType::Type2B),
            Err(too_many(ObjectKind::MemoryWindow, 2))
        );
        let cqs = [(); 2].map(|()| adapter.create_cq(16).unwrap());
        assert_eq!(
            adapter.create_cq(16).map(|_| ()),
            Err(too_many(ObjectKind::CompletionQueue, 2))
        );
        let srq = SrqAttr { max_wr: 4, max_sge: 2 };
        let srqs = [(); 2].map(|()| adapter.create_srq(pds[0], srq).unwrap());
        assert_eq!(
            adapter.create_srq(pds[0], srq),
            Err(too_many(ObjectKind::SharedReceiveQueue, 2))
        );
        let xrcd = adapter.open_xrcd().unwrap();
        assert_eq!(adapter.open_xrcd(), Err(too_many(ObjectKind::XrcDomain, 1)));
        let caps = QpCaps {
            max_send_wr: 4,
            max_recv_wr: 4,
            max_send_sge: 2,
            max_recv_sge: 2,
            max_inline_data: 8,
        };
        let init = |caps| {
            let recv_cq = cqs[1].clone();
            QpInit { recv_cq, caps, ..qp_init(QpType::Rc, &cqs[0], pds[0]) }
        };
        let qps = [(); 2].map(|()| adapter.create_qp(init(caps)).unwrap());
        assert_eq!(adapter.create_qp(init(caps)), Err(too_many(ObjectKind::QueuePair, 2)));
        for caps in [
            QpCaps { max_send_wr: 5, ..caps },
            QpCaps { max_recv_wr: 5, ..caps },
            QpCaps { max_send_sge: 3, ..caps },
            QpCaps { max_recv_sge: 3, ..caps },
            QpCaps { max_inline_data: 9, ..caps },
        ] {
            assert!(
                matches!(adapter.create_qp(init(caps)), Err(ObjectError::Size { .. })),
                "{caps:?}"
            );
        }
        qps.into_iter().for_each(|qpn| adapter.destroy_qp(qpn).unwrap());
        srqs.into_iter().for_each(|srq| adapter.destroy_srq(srq).unwrap());
        cqs.iter().for_each(|cq| adapter.destroy_cq(cq.id()).unwrap());
        windows.into_iter().for_each(|rkey| adapter.dealloc_window(WindowId::of(rkey)).unwrap());
        regions.iter().for_each(|region| adapter.deregister(region).unwrap());
        adapter.close_xrcd(xrcd).unwrap();
        pds.into_iter().for_each(|pd| adapter.dealloc_pd(pd).unwrap());
    }
}

#[test]
fn a_message_longer_than_was_offered_spares_what_is_behind() {
    let mut half = Half::new(options());
    let memory = half.buffer(4096);
    half.post_recv(&RecvWr::new(1, [memory.sge(0, 1500)]));
    half.send(&pkt(Op::SendFirst, 0x200).payload(&[7; 1024]));
    let refusal = Refusal::BufferTooSmall { received: 2048, buffer: 1500 };
    let refused = refused_with(NakCode::InvalidRequest, refusal);
    assert_eq!(half.send(&pkt(Op::SendMiddle, 0x201).payload(&[7; 1024])), refused);
    assert_eq!(half.qp.recv_outcomes(), [(1, Err(WcStatus::LocLenErr))]);
    assert_eq!(memory.part(1024, 3072), [0; 3072]);
}
