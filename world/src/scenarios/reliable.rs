//! Reliable connections without loss.

use roce_transport::{
    addr::Mtu,
    qp::QpType,
    work::{RecvWr, SendFlags, SendWr},
};

use crate::{
    failure::Failure,
    line::End::{A, B},
    node::{EndQp, Options},
    world::{Shown, World},
};

pub(crate) fn bring_up(world: &mut World) -> Result<(), Failure> {
    world.say(
        "A queue pair is made in RESET. Nothing crosses the wire on its way to RTS: each program \
         tells its own adapter who the peer is, and learns that from the other program by some other \
         way, a TCP connection or rdma_cm.",
    )?;
    world.shown = Shown::States;
    let options = Options::default();
    let a = world[A].qp(QpType::Rc, &options);
    let b = world[B].qp(QpType::Rc, &options);
    world[A].enter_init(a);
    world[B].enter_init(b);
    world.run()?;
    world.say(
        "INIT: receive requests may be posted, and nothing arrives yet. RTR, ready to receive: the \
         adapter knows the peer's address, queue pair number and first PSN. RTS, ready to send: it \
         also has its own first PSN, timeout and retry counters.",
    )?;
    world[A].enter_rtr(QpType::Rc, a, EndQp { end: B, qpn: b }, &options);
    world[B].enter_rtr(QpType::Rc, b, EndQp { end: A, qpn: a }, &options);
    let now = world.now;
    world[A].enter_rts(now, QpType::Rc, a, &options);
    world[B].enter_rts(now, QpType::Rc, b, &options);
    world.run()?;
    world.say(
        "An edge that does not exist is refused, and nothing changes: from RTS to RTR, say. ERR can \
         be entered from everywhere.",
    )?;
    world[A].try_rtr(a, EndQp { end: B, qpn: b }, &options);
    world.run()?;
    let _ = world[B].adapter.to_error(now, b);
    world.run()
}

pub(crate) fn send(world: &mut World) -> Result<(), Failure> {
    let (a, b) = world.connect(Options::default());
    let (near, far) = (world[A].buffer(2500), world[B].buffer(4096));
    world.say(
        "A SEND goes where the receiver says: B has posted a receive request with a buffer of \
         4,096 bytes. The message of 2,500 bytes takes three packets at a path MTU of 1,024; only \
         the last asks for an acknowledgement, which covers all three.",
    )?;
    world.post_recv(B, b, &RecvWr::new(1, [far.sge(0, 4096)]))?;
    world.post_send(A, a, &SendWr::send(2, near.sge(0, 2500)))?;
    world.run()?;
    world.say("Both programs get a completion: B's says how many bytes came.")?;
    Ok(())
}

pub(crate) fn write(world: &mut World) -> Result<(), Failure> {
    let (a, b) = world.connect(Options::default());
    let (near, far) = (world[A].buffer(4096), world[B].buffer(4096));
    world.say(
        "An RDMA WRITE names the peer's memory itself: address and R_Key stand in the RETH of the \
         first packet. B's adapter checks the key and writes; B's program gets no completion and \
         does nothing.",
    )?;
    world.post_send(A, a, &SendWr::write(1, far.remote(0), near.sge(0, 2500)))?;
    world.run()?;
    world.say(
        "With immediate data it also takes one of B's receive requests, so that B's program hears \
         of it. No byte goes into that request's buffer.",
    )?;
    world.post_recv(B, b, &RecvWr::new(7, []))?;
    let wr = SendWr::write(2, far.remote(0), near.sge(0, 100)).with_immediate([0, 0, 0, 42]);
    world.post_send(A, a, &wr)?;
    world.run()
}

pub(crate) fn read(world: &mut World) -> Result<(), Failure> {
    let (a, _) = world.connect(Options::default());
    let (near, far) = (world[A].buffer(4096), world[B].buffer(4096));
    world.say(
        "An RDMA READ is one request; the answer carries the data, and each of its packets has a \
         PSN of A's own count: the request takes as many PSNs as its answer has packets.",
    )?;
    world.post_send(A, a, &SendWr::read(1, far.remote(0), near.sge(0, 2500)))?;
    world.run()?;
    world.say(
        "An answer acknowledges every request before its own. The network loses the acknowledgement \
         of the WRITE here, and nothing is sent again for that: who answers psn 104 has carried out \
         psn 103.",
    )?;
    let wr = SendWr::write(2, far.remote(0), near.sge(0, 8)).with_flags(SendFlags::empty());
    world.post_send(A, a, &wr)?;
    world.post_send(A, a, &SendWr::read(3, far.remote(0), near.sge(8, 8)))?;
    world.run()
}

pub(crate) fn atomics(world: &mut World) -> Result<(), Failure> {
    let (a, _) = world.connect(Options::default());
    let (near, far) = (world[A].buffer(8), world[B].buffer(8));
    far.put(&5u64.to_ne_bytes());
    world.say(
        "Fetch and add: B's adapter adds 3 to an 8-byte word and answers with what it found. \
         The word was 5.",
    )?;
    world.post_send(A, a, &SendWr::fetch_add(1, far.remote(0), 3, near.sge(0, 8)))?;
    world.run()?;
    world.figures(&format!("B's word is {}, A has got {}.", far.word(), near.word()))?;
    world.say("Compare and swap: 8 is replaced by 100, because the word is 8.")?;
    world.post_send(A, a, &SendWr::compare_swap(2, far.remote(0), 8, 100, near.sge(0, 8)))?;
    world.run()?;
    world.figures(&format!("B's word is {}, A has got {}.", far.word(), near.word()))?;
    world.say("And again: the word is not 8 any more, so nothing changes. That is no error.")?;
    world.post_send(A, a, &SendWr::compare_swap(3, far.remote(0), 8, 200, near.sge(0, 8)))?;
    world.run()?;
    world.figures(&format!("B's word is {}, A has got {}.", far.word(), near.word()))?;
    Ok(())
}

pub(crate) fn window(world: &mut World) -> Result<(), Failure> {
    let (a, _) = world.connect(Options { mtu: Mtu::B4096, ..Options::default() });
    let (near, far) = (world[A].buffer(40_960), world[B].buffer(40_960));
    world.say(
        "A sends without waiting: ten packets are under way before the first arrives. It asks for \
         an acknowledgement with the last packet of a message, and before its window of 64 KiB is \
         used up. An acknowledgement covers everything before it; the completion says so.",
    )?;
    world.post_send(A, a, &SendWr::write(1, far.remote(0), near.sge(0, 40_960)))?;
    world.run()?;
    world.say(
        "A window that is used up doubles with each round trip until something is lost, then grows \
         by a packet. `roce demo --scenario congestion` shows it shrink.",
    )?;
    Ok(())
}

pub(crate) fn unsignaled(world: &mut World) -> Result<(), Failure> {
    let (a, _) = world.connect(Options { depth: 4, ..Options::default() });
    let (near, far) = (world[A].buffer(64), world[B].buffer(64));
    world.say(
        "A send queue of four requests, and a program that asks for no completions. A place in the \
         queue is free again when its request is complete, and the program can know that only from \
         a completion: this one posts until the queue is full, with nothing to wait for.",
    )?;
    let quiet =
        |id| SendWr::write(id, far.remote(0), near.sge(0, 8)).with_flags(SendFlags::empty());
    for id in 1..=5 {
        world.post_send(A, a, &quiet(id))?;
    }
    world.say(
        "On a network adapter it would stay like that for ever: places are given back with the \
         completion of a later request, and there is none. This adapter gives them back when the \
         acknowledgements come, as rxe does, but no completion says when to try again.",
    )?;
    world.run()?;
    world.say(
        "What is right: every so often one request is signaled, and stands for those before it.",
    )?;
    for id in 6..=8 {
        world.post_send(A, a, &quiet(id))?;
    }
    world.post_send(A, a, &SendWr::write(9, far.remote(0), near.sge(0, 8)))?;
    world.run()
}

pub(crate) fn free(world: &mut World) -> Result<(), Failure> {
    let _ = world.connect(Options::default());
    world[A].buffer(4096);
    world[B].buffer(4096);
    world.say(
        "A and B are connected. Each has a memory region of 4,096 bytes, which the other may read \
         and write. Nothing is posted: that is yours to do.",
    )?;
    world.run()
}
