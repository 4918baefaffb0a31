//! Requests behind an unfinished READ appear to follow it.

use std::time::Duration;

use roce_transport::{
    addr::Mtu,
    event::{Disposition, Refusal},
    mem::{Access, MrAttr, RKey, WindowBind, WindowId, WindowType},
    qp::State,
    wire::{NakCode, Operation as Op, Syndrome},
    work::{RecvWr, Remote, SendWr, WcOpcode, WcStatus},
};

use crate::common::{
    ALL_RIGHTS, Buffer, Half, Options, Pair, Pkt, ack, all_ok, nak, pattern, pkt, refused_with,
};

const MTU: usize = 256;
const READ: u32 = 0x200;

fn half() -> Half {
    Half::new(Options { mtu: Mtu::B256, access: ALL_RIGHTS, ..Options::default() })
}

/// The response to a READ, the first request.
fn response(bytes: &[u8]) -> Vec<Pkt> {
    let last = bytes.len().div_ceil(MTU).saturating_sub(1);
    let packet = |(at, bytes): (usize, &[u8])| {
        let (operation, has_aeth) = match (at, at == last) {
            (0, true) => (Op::ReadResponseOnly, true),
            (0, false) => (Op::ReadResponseFirst, true),
            (_, false) => (Op::ReadResponseMiddle, false),
            (_, true) => (Op::ReadResponseLast, true),
        };
        let packet = pkt(operation, READ + at as u32).payload(bytes);
        if has_aeth { packet.aeth(Syndrome::ACK, 1) } else { packet }
    };
    bytes.chunks(MTU).enumerate().map(packet).collect()
}

fn read(remote: Remote, length: usize) -> Pkt {
    pkt(Op::ReadRequest, READ).reth(remote, length as u32)
}

fn at(buffer: &Buffer, offset: usize, rkey: RKey) -> Remote {
    Remote { rkey, ..buffer.remote(offset) }
}

#[test]
fn a_write_does_not_show_in_it() {
    for (offset, length) in [(0, 600), (0, 1), (255, 2), (256, 256), (300, 300), (599, 1)] {
        let mut half = half();
        let memory = half.buffer(700).fill(1);
        half.send(&read(memory.remote(0), 600));
        let mut changed = memory.bytes();
        let mut psn = READ + 3;
        for (index, bytes) in vec![0xEE; length].chunks(MTU).enumerate() {
            let last = (index + 1) * MTU >= length;
            let write = match (index, last) {
                (0, true) => pkt(Op::WriteOnly, psn).reth(memory.remote(offset), length as u32),
                (0, false) => pkt(Op::WriteFirst, psn).reth(memory.remote(offset), length as u32),
                (_, false) => pkt(Op::WriteMiddle, psn),
                (_, true) => pkt(Op::WriteLast, psn),
            };
            let write = write.payload(bytes);
            let write = if last { write.ask() } else { write };
            assert_eq!(half.send(&write), Disposition::Executed);
            psn += 1;
        }
        changed[offset..offset + length].fill(0xEE);
        assert_eq!(memory.bytes(), changed);
        half.expect(&[response(&pattern(1, 600)), vec![ack(psn - 1, 2)]].concat());
    }
}

#[test]
fn an_atomic_does_not_show_in_it() {
    let mut half = half();
    let memory = half.buffer(16);
    memory.put(0, &7u64.to_ne_bytes());
    half.send(&read(memory.remote(0), 16));
    half.send(&pkt(Op::FetchAdd, READ + 1).atomic(memory.remote(0), 1, 0));
    half.send(&pkt(Op::AtomicWrite, READ + 2).reth(memory.remote(8), 8).payload(&[9; 8]));
    let before = [7u64.to_ne_bytes(), [0; 8]].concat();
    half.expect(&[
        pkt(Op::ReadResponseOnly, READ).aeth(Syndrome::ACK, 1).payload(&before),
        pkt(Op::AtomicAcknowledge, READ + 1).atomic_ack(2, 7),
        pkt(Op::ReadResponseOnly, READ + 2).aeth(Syndrome::ACK, 3),
    ]);
    assert_eq!(memory.bytes(), [8u64.to_ne_bytes(), [9; 8]].concat());
}

#[test]
fn a_message_does_not_show_in_it() {
    let mut half = half();
    let memory = half.buffer(600).fill(1);
    half.post_recv(&RecvWr::new(1, [memory.sge(500, 4), memory.sge(0, 4)]));
    half.send(&read(memory.remote(0), 600));
    half.send(&pkt(Op::SendOnly, READ + 3).payload(&[0xEE; 8]));
    assert_eq!((memory.part(500, 4), memory.part(0, 4)), (vec![0xEE; 4], vec![0xEE; 4]));
    half.expect(&response(&pattern(1, 600)));
}

#[test]
fn other_keys_of_the_same_memory() {
    let mut half = half();
    let memory = half.buffer(600).fill(1);
    let attr =
        MrAttr { memory: memory.region.memory().clone(), address: 0x1000, access: ALL_RIGHTS };
    let other = half.node.adapter.register(half.node.pd, attr).unwrap();
    let window = half.node.adapter.alloc_window(half.node.pd, WindowType::Type1).unwrap().next();
    let address = memory.region.address() + 300;
    half.post_send(&SendWr::bind_window(
        9,
        WindowBind {
            rkey: window,
            region: memory.region.lkey(),
            address,
            length: 100,
            access: Access::REMOTE_READ | Access::REMOTE_WRITE,
            zero_based: false,
        },
    ));
    half.expect_nothing();
    let by_window = at(&memory, 300, window);
    half.send(&read(by_window, 100));
    let by_other = Remote { address: 0x1000 + 350, rkey: other.rkey() };
    half.send(&pkt(Op::WriteOnly, READ + 1).reth(by_other, 1).payload(&[0xEE]));
    let before = pattern(1, 600);
    half.expect(&[pkt(Op::ReadResponseOnly, READ)
        .aeth(Syndrome::ACK, 1)
        .payload(&before[300..400])]);
    half.send(&pkt(Op::ReadRequest, READ + 2).reth(by_other, 1));
    half.send(&pkt(Op::WriteOnly, READ + 3).reth(at(&memory, 350, window), 1).payload(&[0xDD]));
    half.expect(&[pkt(Op::ReadResponseOnly, READ + 2).aeth(Syndrome::ACK, 3).payload(&[0xEE])]);
    assert_eq!(memory.part(350, 1), [0xDD]);
}

/// Requests needing too much memory are retransmitted.
#[test]
fn what_is_too_much_waits_for_the_response() {
    const PACKETS: usize = 300;
    let mut half = half();
    let memory = half.buffer(PACKETS * MTU).fill(1);
    let before = memory.bytes();
    half.send(&read(memory.remote(0), before.len()));
    let mut psn = READ + PACKETS as u32;
    let write = |index: usize| {
        let psn = READ + (PACKETS + index) as u32;
        pkt(Op::WriteOnly, psn).reth(memory.remote(index * MTU), MTU as u32).payload(&[0xEE; MTU])
    };
    let refused = Syndrome::Nak(NakCode::PsnSequenceError);
    for index in 0..256 {
        assert_eq!(half.send(&write(index)), Disposition::Executed);
    }
    assert_eq!(half.send(&write(256)), Disposition::Refused(refused, Refusal::PendingRead));
    half.send(&write(257));
    psn += 256;
    assert_eq!(
        half.take(),
        [response(&before), vec![nak(NakCode::PsnSequenceError, psn, 257)]].concat()
    );
    for index in 256..PACKETS {
        assert_eq!(half.send(&write(index)), Disposition::Executed);
    }
    assert_eq!(memory.bytes(), [0xEE; PACKETS * MTU]);
}

/// The first packet of a waiting message leaves no trace.
#[test]
fn a_message_that_waits_begins_anew() {
    const PACKETS: usize = 300;
    let mut half = half();
    let memory = half.buffer(PACKETS * MTU);
    half.post_recv(&RecvWr::new(1, [memory.sge(256 * MTU, 2 * MTU)]));
    half.send(&read(memory.remote(0), PACKETS * MTU));
    for index in 0..256 {
        let psn = READ + (PACKETS + index) as u32;
        let to = memory.remote(index * MTU);
        half.send(&pkt(Op::WriteOnly, psn).reth(to, 1).payload(&[1]));
    }
    let psn = READ + PACKETS as u32 + 256;
    let refused = refused_with(NakCode::PsnSequenceError, Refusal::PendingRead);
    let write = pkt(Op::WriteFirst, psn).reth(memory.remote(256 * MTU), 300).payload(&[2; MTU]);
    let send = pkt(Op::SendFirst, psn).payload(&[3; MTU]);
    assert_eq!([half.send(&write), half.send(&send)], [refused; 2]);
    half.take();
    half.send(&send);
    half.send(&pkt(Op::SendLast, psn + 1).payload(&[4; 1]));
    assert_eq!(half.qp.recv_outcomes(), all_ok([1], MTU as u32 + 1));
    half.send(&pkt(Op::WriteFirst, psn + 2).reth(memory.remote(0), 257).payload(&[2; MTU]));
    assert_eq!(half.send(&pkt(Op::WriteLast, psn + 3).payload(&[2; 1])), Disposition::Executed);
}

/// The program may change memory once it knows of the message.
#[test]
fn a_receive_completes_when_it_gets_a_response() {
    let mut half = half();
    let memory = half.buffer(600).fill(1);
    let to = half.buffer(8);
    half.post_recvs(1..=3, &[to.all()]);
    half.send(&pkt(Op::SendOnly, READ).payload(b"before"));
    assert_eq!(half.qp.recv_outcomes(), all_ok([1], 6));
    half.send(&pkt(Op::ReadRequest, READ + 1).reth(memory.remote(0), 600));
    half.send(&pkt(Op::SendOnly, READ + 4).payload(b"done").ask());
    half.send(&pkt(Op::WriteOnlyImm, READ + 5).imm([1; 4]).reth(to.remote(0), 0));
    assert_eq!(half.qp.recv_outcomes(), []);
    assert_eq!(half.take().len(), 4);
    let received = half.qp.received();
    let opcodes: Vec<_> = received.iter().map(|wc| (wc.wr_id, wc.result.unwrap().opcode)).collect();
    assert_eq!(opcodes, [(2, WcOpcode::Recv), (3, WcOpcode::RecvRdmaWithImm)]);
}

#[test]
fn a_receive_behind_a_read_that_fails_is_flushed() {
    let mut half = half();
    let memory = half.buffer(600);
    half.post_recv(&RecvWr::new(1, []));
    half.post_recv(&RecvWr::new(2, []));
    half.send(&read(memory.remote(0), 600));
    half.send(&pkt(Op::SendOnly, READ + 3).ask());
    half.node.adapter.deregister(&memory.region).unwrap();
    half.expect(&[nak(NakCode::RemoteAccessError, READ, 2)]);
    assert_eq!(half.state(), State::Err);
    let flushed = |id| (id, Err(WcStatus::WrFlushErr));
    assert_eq!(half.qp.recv_outcomes(), [flushed(1), flushed(2)]);
}

#[test]
fn a_receive_before_a_request_that_is_refused_completes() {
    let mut half = half();
    let memory = half.buffer(600).fill(1);
    half.post_recvs(1..=3, &[]);
    half.send(&read(memory.remote(0), 600));
    half.send(&pkt(Op::SendOnly, READ + 3));
    half.send(&pkt(Op::SendOnly, READ + 4).payload(&[1]));
    let outcomes = half.qp.recv_outcomes();
    assert_eq!(
        outcomes,
        [(1, Ok(0)), (2, Err(WcStatus::LocLenErr)), (3, Err(WcStatus::WrFlushErr))]
    );
    let last = nak(NakCode::InvalidRequest, READ + 4, 2);
    half.expect(&[response(&pattern(1, 600)), vec![last]].concat());
}

#[test]
fn an_error_flushes_what_waits() {
    let mut half = half();
    let memory = half.buffer(600);
    half.post_recv(&RecvWr::new(1, []));
    half.send(&read(memory.remote(0), 600));
    half.send(&pkt(Op::SendOnly, READ + 3));
    half.node.adapter.to_error(half.now, half.qp.qpn).unwrap();
    half.expect_nothing();
    assert_eq!(half.qp.recv_outcomes(), [(1, Err(WcStatus::WrFlushErr))]);
}

/// Invalidation would revoke an unfinished READ's key.
#[test]
fn an_invalidation_waits_for_the_response() {
    let mut half = half();
    let memory = half.buffer(600).fill(1);
    let key = half.node.adapter.alloc_window(half.node.pd, WindowType::Type2B).unwrap().next();
    half.post_send(&SendWr::bind_window(
        9,
        WindowBind {
            rkey: key,
            region: memory.region.lkey(),
            address: memory.region.address(),
            length: 600,
            access: Access::REMOTE_READ,
            zero_based: false,
        },
    ));
    half.expect_nothing();
    half.post_recv(&RecvWr::new(1, []));
    half.send(&read(at(&memory, 0, key), 600));
    let send = pkt(Op::SendOnlyInvalidate, READ + 3).invalidate(key).ask();
    half.send(&send);
    let missing = nak(NakCode::PsnSequenceError, READ + 3, 1);
    half.expect(&[response(&pattern(1, 600)), vec![missing]].concat());
    half.exchange(&send, &[ack(READ + 3, 2)]);
    assert_eq!(half.qp.received()[0].result.unwrap().invalidated, Some(key));
    assert_eq!(half.node.adapter.dealloc_window(WindowId::of(key)), Ok(()));
}

/// The unsent part stays unchanged.
#[test]
fn a_response_that_starts_over() {
    let mut half = half();
    let memory = half.buffer(600).fill(1);
    let before = memory.bytes();
    half.send(&read(memory.remote(0), 600));
    half.send(&pkt(Op::WriteOnly, READ + 3).reth(memory.remote(500), 1).payload(&[0xEE]));
    half.send(&pkt(Op::ReadRequest, READ + 1).reth(memory.remote(256), 344));
    half.expect(&[
        pkt(Op::ReadResponseFirst, READ + 1).aeth(Syndrome::ACK, 1).payload(&before[256..512]),
        pkt(Op::ReadResponseLast, READ + 2).aeth(Syndrome::ACK, 1).payload(&before[512..]),
    ]);
    // afterwards a repeat reads current memory
    half.exchange(&read(memory.remote(0), 600), &response(&memory.bytes()));
}

/// `MPI_Get_accumulate` with `MPI_REPLACE` as in Open MPI, over slow links.
#[test]
fn get_and_replace() {
    for (length, rounds) in [(8, 200), (5000, 50), (1 << 20, 4)] {
        let mut pair = Pair::new();
        pair.batch = Duration::from_micros(20);
        let (a, _b) = pair.connect(Options { mtu: Mtu::B4096, ..Options::default() });
        let far = pair.b.buffer(length).fill(0);
        let new: Vec<_> = (1..=rounds).map(|round| pair.a.buffer(length).fill(round)).collect();
        let old: Vec<_> = (0..rounds).map(|_| pair.a.buffer(length)).collect();
        for (round, (new, old)) in new.iter().zip(&old).enumerate() {
            pair.post_send(&a, &SendWr::read(round as u64, far.remote(0), old.all()));
            pair.post_send(&a, &SendWr::write(round as u64, far.remote(0), new.all()));
            if round % 8 == 7 {
                pair.run();
            }
        }
        pair.run();
        assert!(a.sent().iter().all(|wc| wc.result.is_ok()));
        for (round, old) in old.iter().enumerate() {
            assert!(old.bytes() == pattern(round as u8, length), "{length} bytes, round {round}");
        }
        let counters = pair.a.adapter.counters();
        assert_eq!((counters.timeouts, counters.sequence_naks_received), (0, 0), "{length} bytes");
    }
}
