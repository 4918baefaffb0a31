//! FLUSH and ATOMIC WRITE (annex A19).

use std::{
    sync::{Arc, Mutex},
    time::Duration,
};

use roce_transport::{
    event::{Disposition, DropReason, Refusal},
    mem::{Access, HeapMemory, Memory, MemoryFault, MrAttr, RKey, RegisterError},
    qp::{PostError, Quirks, State},
    wire::{Headers, NakCode, Operation as Op, Syndrome, rxe_flush_icrc},
    work::{Data, Placement, RecvWr, Remote, SendFlags, SendWr, WcOpcode, WcStatus},
};

use crate::common::{ALL_RIGHTS, Half, Options, Pair, ack, all_ok, nak, pkt, refused_with};

const FAR: Remote = Remote { address: 0x5000, rkey: RKey(0x1234) };
const BOTH: Placement = Placement::all();
const RIGHTS: Access =
    Access::REMOTE_WRITE.union(Access::FLUSH_GLOBAL).union(Access::FLUSH_PERSISTENT);

struct Lasting {
    heap: HeapMemory,
    persisted: Mutex<Vec<(u64, u64)>>,
}

impl Memory for Lasting {
    fn len(&self) -> u64 {
        self.heap.len()
    }

    fn read_at(&self, offset: u64, to: &mut [u8]) -> Result<(), MemoryFault> {
        self.heap.read_at(offset, to)
    }

    fn write_at(&self, offset: u64, from: &[u8]) -> Result<(), MemoryFault> {
        self.heap.write_at(offset, from)
    }

    fn is_persistent(&self) -> bool {
        true
    }

    fn persist(&self, offset: u64, length: u64) -> Result<(), MemoryFault> {
        self.persisted.lock().unwrap().push((offset, length));
        Ok(())
    }
}

fn lasting() -> Arc<Lasting> {
    Arc::new(Lasting { heap: HeapMemory::new(4096), persisted: Mutex::default() })
}

fn placement_ack(psn: u32, msn: u32) -> crate::common::Pkt {
    pkt(Op::ReadResponseOnly, psn).aeth(Syndrome::ACK, msn)
}

fn flusher() -> Half {
    Half::new(Options { access: RIGHTS, ..Options::default() })
}

#[test]
fn a_flush_on_the_wire() {
    let mut half = Half::new(Options::default());
    half.post_send(&SendWr::flush(1, FAR, 0x1000, Placement::GLOBAL));
    half.post_send(&SendWr::flush_all(2, FAR.rkey, BOTH));
    let whole = Remote { address: 0, ..FAR };
    half.expect(&[
        pkt(Op::Flush, 0x100).flush(1, 0, FAR, 0x1000).ask(),
        pkt(Op::Flush, 0x101).flush(3, 1, whole, 0).ask(),
    ]);
    half.send(&placement_ack(0x100, 1));
    half.send(&placement_ack(0x101, 2));
    let opcodes: Vec<_> =
        half.qp.sent().iter().map(|wc| wc.result.map(|ok| (ok.opcode, ok.byte_len))).collect();
    assert_eq!(opcodes, [Ok((WcOpcode::Flush, 0)); 2]);
}

#[test]
fn a_flush_is_carried_out() {
    let mut half = flusher();
    let memory = lasting();
    let attr =
        MrAttr { memory: memory.clone(), address: 0x1000, access: RIGHTS | Access::LOCAL_WRITE };
    let region = half.node.adapter.register(half.node.pd, attr).unwrap();
    let at = |address| Remote { address, rkey: region.rkey() };
    half.send(&pkt(Op::WriteOnly, 0x200).reth(at(0x1000), 4).payload(&[1; 4]));
    half.send(&pkt(Op::Flush, 0x201).flush(2, 0, at(0x1004), 10).ask());
    half.send(&pkt(Op::Flush, 0x202).flush(1, 0, at(0x1000), 4096).ask());
    half.send(&pkt(Op::Flush, 0x203).flush(3, 1, at(0), 0).ask());
    half.send(&pkt(Op::Flush, 0x204).flush(3, 0, at(0x2000), 0).ask());
    half.expect(&[
        placement_ack(0x201, 2),
        placement_ack(0x202, 3),
        placement_ack(0x203, 4),
        placement_ack(0x204, 5),
    ]);
    assert_eq!(*memory.persisted.lock().unwrap(), [(4, 10), (0, 4096), (4096, 0)]);
}

#[test]
fn between_two_adapters() {
    let (mut pair, a, b) = Pair::connected(Options { access: RIGHTS, ..Options::default() });
    let (near, far) = (pair.a.buffer(8).fill(9), pair.b.buffer(5000));
    let long = pair.a.buffer(5000).fill(1);
    for round in 0..3 {
        pair.post_send(&a, &SendWr::write(round * 3, far.remote(0), long.all()));
        pair.post_send(&a, &SendWr::flush(round * 3 + 1, far.remote(0), 5000, Placement::GLOBAL));
        pair.post_send(&a, &SendWr::atomic_write(round * 3 + 2, far.remote(8), near.all()));
    }
    pair.run();
    assert_eq!(a.send_outcomes(), all_ok(0..9, 0));
    assert_eq!(far.part(8, 8), near.bytes());
    assert_eq!(pair.state(&b), State::Rts);
}

#[test]
fn which_flushes_are_refused() {
    let global = Access::FLUSH_GLOBAL;
    let all = global | Access::FLUSH_PERSISTENT;
    let cases = [
        (all, ALL_RIGHTS, 0, 0, 8, NakCode::InvalidRequest, Some(Refusal::FlushKind)),
        (all, ALL_RIGHTS, 4, 0, 8, NakCode::InvalidRequest, Some(Refusal::FlushKind)),
        (all, ALL_RIGHTS, 1, 2, 8, NakCode::InvalidRequest, Some(Refusal::FlushKind)),
        (global, ALL_RIGHTS, 2, 0, 8, NakCode::InvalidRequest, Some(Refusal::NotEnabled)),
        (
            Access::FLUSH_PERSISTENT,
            ALL_RIGHTS,
            1,
            0,
            8,
            NakCode::InvalidRequest,
            Some(Refusal::NotEnabled),
        ),
        (all, ALL_RIGHTS, 2, 0, 8, NakCode::RemoteAccessError, None),
        (all, ALL_RIGHTS - global, 1, 1, 0, NakCode::RemoteAccessError, None),
        (all, ALL_RIGHTS, 1, 0, 9, NakCode::RemoteAccessError, None),
    ];
    for (granted, rights, placement, selectivity, length, code, refusal) in cases {
        let mut half = Half::new(Options { access: granted, ..Options::default() });
        let far = half.node.buffer_with(8, rights);
        let disposition =
            half.send(&pkt(Op::Flush, 0x200).flush(placement, selectivity, far.remote(0), length));
        let Disposition::Refused(syndrome, why) = disposition else { panic!("{disposition:?}") };
        assert_eq!(syndrome, Syndrome::Nak(code), "{placement} {selectivity} {why:?}");
        assert!(refusal.is_none_or(|refusal| refusal == why), "{why:?}");
        half.expect(&[nak(code, 0x200, 0)]);
        assert_eq!(half.state(), State::Err);
    }
}

#[test]
fn flush_and_atomic_write_stand_between_messages_and_have_their_lengths() {
    type Spoil = fn(Remote) -> crate::common::Pkt;
    let cases: [(Spoil, Refusal); 6] = [
        (|far| pkt(Op::Flush, 0x200).flush(1, 0, far, 8).payload(&[0; 4]), Refusal::Length),
        (|far| pkt(Op::AtomicWrite, 0x200).reth(far, 8).payload(&[0; 4]), Refusal::Length),
        (|far| pkt(Op::AtomicWrite, 0x200).reth(far, 8), Refusal::Length),
        (|far| pkt(Op::AtomicWrite, 0x200).reth(far, 4).payload(&[0; 8]), Refusal::Length),
        (|far| pkt(Op::AtomicWrite, 0x200).reth(far, 16).payload(&[0; 16]), Refusal::Length),
        (
            |far| {
                pkt(Op::AtomicWrite, 0x200)
                    .reth(Remote { address: far.address + 4, ..far }, 8)
                    .payload(&[0; 8])
            },
            Refusal::Misaligned,
        ),
    ];
    for (packet, refusal) in cases {
        let mut half = flusher();
        let packet = packet(half.buffer(16).remote(0));
        assert_eq!(half.send(&packet), refused_with(NakCode::InvalidRequest, refusal));
    }
    for operation in [Op::Flush, Op::AtomicWrite] {
        let mut half = flusher();
        let far = half.buffer(4096).remote(0);
        half.send(&pkt(Op::WriteFirst, 0x200).reth(far, 2000).payload(&[0; 1024]));
        let packet = match operation {
            Op::Flush => pkt(operation, 0x201).flush(1, 0, far, 8),
            _ => pkt(operation, 0x201).reth(far, 8).payload(&[0; 8]),
        };
        let refused = refused_with(NakCode::InvalidRequest, Refusal::OpcodeOrder);
        assert_eq!(half.send(&packet), refused);
    }
}

#[test]
fn an_atomic_write_on_the_wire() {
    let mut half = flusher();
    let (near, far) = (half.buffer(8).fill(3), half.buffer(16));
    half.post_send(&SendWr::atomic_write(1, FAR, near.all()));
    half.post_send(&SendWr::atomic_write(2, FAR, Data::inline(&[5; 8])));
    let request = |psn| pkt(Op::AtomicWrite, psn).reth(FAR, 8).ask();
    half.expect(&[request(0x100).payload(&near.bytes()), request(0x101).payload(&[5; 8])]);
    half.send(&placement_ack(0x100, 1));
    half.send(&placement_ack(0x101, 2));
    let opcodes: Vec<_> =
        half.qp.sent().iter().map(|wc| wc.result.map(|ok| (ok.opcode, ok.byte_len))).collect();
    assert_eq!(opcodes, [Ok((WcOpcode::AtomicWrite, 0)); 2]);

    half.send(&pkt(Op::AtomicWrite, 0x200).reth(far.remote(8), 8).payload(&[7; 8]).ask());
    half.expect(&[placement_ack(0x200, 1)]);
    assert_eq!(far.part(8, 8), [7; 8]);
    // a repeat has no effect on changed memory
    far.put(8, &[8; 8]);
    let again =
        half.send(&pkt(Op::AtomicWrite, 0x200).reth(far.remote(8), 8).payload(&[7; 8]).ask());
    assert_eq!(again, Disposition::Duplicate);
    half.expect(&[placement_ack(0x200, 1)]);
    assert_eq!(far.part(8, 8), [8; 8]);
}

#[test]
fn rights_for_an_atomic_write() {
    for (granted, rights, code) in [
        (Access::REMOTE_READ | Access::REMOTE_ATOMIC, ALL_RIGHTS, NakCode::InvalidRequest),
        (RIGHTS, ALL_RIGHTS - Access::REMOTE_WRITE, NakCode::RemoteAccessError),
    ] {
        let mut half = Half::new(Options { access: granted, ..Options::default() });
        let far = half.node.buffer_with(8, rights);
        half.send(&pkt(Op::AtomicWrite, 0x200).reth(far.remote(0), 8).payload(&[7; 8]));
        half.expect(&[nak(code, 0x200, 0)]);
        assert_eq!(far.bytes(), [0; 8]);
    }
}

/// An ATOMIC WRITE counts as a READ, a FLUSH does not.
#[test]
fn slots() {
    let mut half = Half::new(Options { max_rd_atomic: 1, ..Options::default() });
    for id in 0..3 {
        half.post_send(&SendWr::flush(id, FAR, 8, Placement::GLOBAL));
    }
    half.post_send(&SendWr::atomic_write(3, FAR, Data::inline(&[0; 8])));
    half.post_send(&SendWr::atomic_write(4, FAR, Data::inline(&[0; 8])));
    assert_eq!(half.take().len(), 4);
    half.send(&placement_ack(0x103, 4));
    assert_eq!(
        half.qp.send_outcomes(),
        all_ok(0..4, 0),
        "the answer to a later one shows that the earlier were carried out"
    );
    assert_eq!(half.take().len(), 1);

    // rxe evicts a READ for it
    let mut half = Half::new(Options {
        max_rd_atomic: 1,
        quirks: Quirks { rxe_flush: true },
        ..Options::default()
    });
    half.post_send(&SendWr::flush(1, FAR, 8, Placement::GLOBAL));
    half.post_send(&SendWr::flush(2, FAR, 8, Placement::GLOBAL));
    assert_eq!(half.take().len(), 1);
    half.send(&placement_ack(0x100, 1));
    assert_eq!(half.take().len(), 1);

    let mut half = Half::new(Options { max_rd_atomic: 0, ..Options::default() });
    half.post_send(&SendWr::flush(1, FAR, 8, Placement::GLOBAL));
    half.post_send(&SendWr::atomic_write(2, FAR, Data::inline(&[0; 8])));
    half.take();
    half.send(&placement_ack(0x100, 1));
    assert_eq!(half.qp.send_outcomes(), [(1, Ok(0)), (2, Err(WcStatus::LocQpOpErr))]);

    let mut half =
        Half::new(Options { max_dest_rd_atomic: 0, access: RIGHTS, ..Options::default() });
    let far = half.buffer(8);
    half.send(&pkt(Op::Flush, 0x200).flush(1, 0, far.remote(0), 8).ask());
    half.expect(&[placement_ack(0x200, 1)]);
    let disposition =
        half.send(&pkt(Op::AtomicWrite, 0x201).reth(far.remote(0), 8).payload(&[7; 8]));
    assert_eq!(disposition, refused_with(NakCode::InvalidRequest, Refusal::TooManyReads));
}

#[test]
fn a_fence_waits_for_an_atomic_write() {
    let mut half = Half::new(Options::default());
    half.post_send(&SendWr::atomic_write(1, FAR, Data::inline(&[0; 8])));
    half.post_send(&SendWr::send(2, Data::empty()).with_flags(SendFlags::FENCE));
    assert_eq!(half.take().len(), 1);
    half.exchange(&placement_ack(0x100, 1), &[pkt(Op::SendOnly, 0x101).ask()]);
}

#[test]
fn losses() {
    for lost in 1..=24 {
        let (mut pair, a, _) = Pair::connected(Options { access: RIGHTS, ..Options::default() });
        let far = pair.b.buffer(64);
        pair.allow_all(&[
            DropReason::OutOfSequence,
            DropReason::StaleResponse,
            DropReason::RecoveryUnderWay,
        ]);
        let rule = pair.fault(&format!("drop nth {lost}"));
        for id in 0..6 {
            let value = Data::inline(&[id as u8 + 1; 8]);
            pair.post_send(&a, &SendWr::atomic_write(2 * id, far.remote(8 * id as usize), value));
            pair.post_send(&a, &SendWr::flush(2 * id + 1, far.remote(0), 64, Placement::GLOBAL));
        }
        pair.run();
        pair.assert_hit(rule);
        assert_eq!(a.send_outcomes(), all_ok(0..12, 0), "packet {lost}");
        let expected: Vec<u8> = (0..6).flat_map(|id| [id + 1; 8]).chain([0; 16]).collect();
        assert_eq!(far.bytes(), expected);
    }
}

/// A response confirms execution, so an unknown request gets none: reconnected peers may reuse
/// PSNs.
#[test]
fn a_repeat_of_what_never_was() {
    let mut half = flusher();
    let far = half.buffer(8);
    half.post_recv(&RecvWr::new(1, []));
    half.send(&pkt(Op::SendOnly, 0x200));
    half.exchange(&pkt(Op::Flush, 0x201).flush(1, 0, far.remote(0), 8), &[placement_ack(0x201, 2)]);
    let atomic_write =
        |psn| pkt(Op::AtomicWrite, psn).reth(far.remote(0), 8).payload(&[7; 8]).ask();
    let flush = |psn| pkt(Op::Flush, psn).flush(1, 0, far.remote(0), 8).ask();
    for psn in [0x200, 0x1FF, 0x80_0202] {
        for packet in [atomic_write(psn), flush(psn)] {
            assert_eq!(
                half.send(&packet),
                Disposition::Dropped(DropReason::ReplayMissing),
                "{packet:?}"
            );
        }
    }
    half.expect_nothing();
    assert_eq!(far.bytes(), [0; 8]);
    assert_eq!(half.send(&flush(0x201)), Disposition::Duplicate);
    half.expect(&[placement_ack(0x201, 2)]);
}

#[test]
fn a_flood_of_flushes_and_atomic_writes() {
    for operation in [Op::Flush, Op::AtomicWrite] {
        let mut half = flusher();
        let far = half.buffer(8);
        let request = |psn| match operation {
            Op::Flush => pkt(operation, psn).flush(1, 0, far.remote(0), 8).ask(),
            _ => pkt(operation, psn).reth(far.remote(0), 8).payload(&[7; 8]).ask(),
        };
        let mut flood = |psns: std::ops::Range<u32>| {
            let busy = psns.filter(|&psn| {
                half.send(&request(psn)) == Disposition::Dropped(DropReason::ResponderBusy)
            });
            let busy = busy.count();
            (busy, half.take().len())
        };
        // after the first all are out of sequence
        let (busy, responses) = flood(0x200..0x200 + 512 + 100);
        assert!(busy == 1 && responses <= 513, "{operation:?}: {busy} {responses}");
        let (busy, responses) = flood(0x200..0x200 + 512 + 1);
        assert!(busy == 1 && responses <= 513, "{operation:?}: {busy} {responses}");
        assert_eq!(half.send(&request(0x200 + 512)), Disposition::Executed);
    }
}

#[test]
fn the_kernels_own_icrc() {
    // sent to rxe
    for rxe in [false, true] {
        let mut half = Half::new(Options {
            quirks: Quirks { rxe_flush: rxe },
            access: RIGHTS,
            ..Options::default()
        });
        half.post_send(&SendWr::flush(1, FAR, 8, Placement::GLOBAL));
        half.post_send(&SendWr::send(2, Data::empty()));
        half.node.adapter.poll_transmit(half.now, &mut half.node.transmit);
        let kinds: Vec<bool> = half
            .node
            .transmit
            .datagrams()
            .map(|(net, bytes)| {
                let (body, icrc) = bytes.split_at(bytes.len() - 4);
                let own = rxe_flush_icrc(&net, body).to_le_bytes() == icrc;
                assert!(own || roce_transport::wire::icrc(&net, body).to_le_bytes() == icrc);
                own
            })
            .collect();
        assert_eq!(kinds, [rxe, false]);
        // accepted from all
        let far = half.buffer(8);
        let packet = pkt(Op::Flush, 0x200).flush(1, 0, far.remote(0), 8).ask();
        let net = half.net();
        let mut bytes =
            crate::common::encode(&net, Headers::new(half.bth(&packet), packet.ext).unwrap(), &[]);
        let end = bytes.len() - 4;
        let icrc = rxe_flush_icrc(&net, &bytes[..end]);
        bytes[end..].copy_from_slice(&icrc.to_le_bytes());
        assert_eq!(half.send_bytes(&net, &bytes), Disposition::Executed);
    }
}

#[test]
fn what_cannot_be_posted_or_registered() {
    let mut half = Half::new(Options::default());
    let near = half.buffer(8);
    let wr = SendWr { data: near.all().into(), ..SendWr::flush(1, FAR, 8, BOTH) };
    assert_eq!(half.node.adapter.post_send(half.now, half.qp.qpn, &wr), Err(PostError::NoBytes));
    half.post_send(&SendWr::atomic_write(1, FAR, near.sge(0, 7)));
    half.expect_nothing();
    assert_eq!(half.qp.send_outcomes(), [(1, Err(WcStatus::LocLenErr))]);
    let attr = MrAttr {
        memory: near.region.memory().clone(),
        address: 0,
        access: Access::FLUSH_PERSISTENT,
    };
    assert_eq!(
        half.node.adapter.register(half.node.pd, attr).map(|_| ()),
        Err(RegisterError::NotPersistent)
    );
}

#[test]
fn wrong_responses() {
    for response in [
        placement_ack(0x100, 1).payload(&[0; 4]),
        pkt(Op::AtomicAcknowledge, 0x100).atomic_ack(1, 1),
        pkt(Op::ReadResponseMiddle, 0x100),
    ] {
        let mut half = Half::new(Options::default());
        half.post_send(&SendWr::flush(1, FAR, 8, BOTH));
        half.take();
        half.send(&response);
        assert_eq!(half.qp.send_outcomes(), [(1, Err(WcStatus::BadRespErr))], "{response:?}");
    }
    // a plain acknowledgement suffices
    let mut half = Half::new(Options::default());
    half.post_send(&SendWr::flush(1, FAR, 8, BOTH));
    half.take();
    half.send(&ack(0x100, 1));
    assert_eq!(half.qp.send_outcomes(), all_ok([1], 0));
    half.advance(Duration::from_secs(1));
    half.expect_nothing();
}
