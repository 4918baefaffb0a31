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
        "A queue pair is made in RESET. On its way to RTS it sends no packet. Each program gives \
         its adapter the peer's attributes; the programs exchange them over TCP or by rdma_cm.",
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
        "An invalid transition, such as RTS to RTR, is refused and changes nothing. Every state \
         leads to ERR.",
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
        "The receiver chooses where a SEND goes: B has posted a receive request with a buffer of \
         4,096 bytes. The message of 2,500 bytes takes three packets at a path MTU of 1,024; only \
         the last requests an acknowledgement, which covers all three.",
    )?;
    world.post_recv(B, b, &RecvWr::new(1, [far.sge(0, 4096)]))?;
    world.post_send(A, a, &SendWr::send(2, near.sge(0, 2500)))?;
    world.run()?;
    world.say("Both programs get a completion; B's has the number of bytes.")
}

pub(crate) fn write(world: &mut World) -> Result<(), Failure> {
    let (a, b) = world.connect(Options::default());
    let (near, far) = (world[A].buffer(4096), world[B].buffer(4096));
    world.say(
        "An RDMA WRITE names the peer's memory: address and R_Key are in the RETH of the first \
         packet. B's adapter checks the key and writes; B's program gets no completion and does \
         nothing.",
    )?;
    world.post_send(A, a, &SendWr::write(1, far.remote(0), near.sge(0, 2500)))?;
    world.run()?;
    world.say(
        "With immediate data it also takes one of B's receive requests, and B's program gets a \
         completion. No byte goes into that request's buffer.",
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
        "An RDMA READ is one request; the response carries the data. The request takes as many of \
         A's PSNs as the response has packets.",
    )?;
    world.post_send(A, a, &SendWr::read(1, far.remote(0), near.sge(0, 2500)))?;
    world.run()?;
    world.say(
        "A response acknowledges all earlier requests. The network loses the acknowledgement of \
         the WRITE, and nothing is retransmitted: a response to psn 104 shows that psn 103 was \
         executed.",
    )?;
    let wr = SendWr::write(2, far.remote(0), near.sge(0, 8)).with_flags(SendFlags::empty());
    world.post_send(A, a, &wr)?;
    world.post_send(A, a, &SendWr::read(3, far.remote(0), near.sge(8, 8)))?;
    world.run()
}

pub(crate) fn atomics(world: &mut World) -> Result<(), Failure> {
    let (a, _) = world.connect(Options::default());
    let (near, far) = (world[A].buffer(8), world[B].buffer(8));
    let words = || format!("B's word is {}, A has got {}.", far.word(), near.word());
    far.put(0, &5u64.to_ne_bytes());
    world.say(
        "Fetch and add: B's adapter adds 3 to an 8-byte word and responds with its original value, \
         5.",
    )?;
    world.post_send(A, a, &SendWr::fetch_add(1, far.remote(0), 3, near.sge(0, 8)))?;
    world.run()?;
    world.figures(&words())?;
    world.say("Compare and swap: 8 is replaced by 100, because the word is 8.")?;
    world.post_send(A, a, &SendWr::compare_swap(2, far.remote(0), 8, 100, near.sge(0, 8)))?;
    world.run()?;
    world.figures(&words())?;
    world.say("The same again: the word is no longer 8, so nothing changes. That is no error.")?;
    world.post_send(A, a, &SendWr::compare_swap(3, far.remote(0), 8, 200, near.sge(0, 8)))?;
    world.run()?;
    world.figures(&words())
}

pub(crate) fn window(world: &mut World) -> Result<(), Failure> {
    let (a, _) = world.connect(Options { mtu: Mtu::B4096, ..Options::default() });
    let (near, far) = (world[A].buffer(40_960), world[B].buffer(40_960));
    world.say(
        "A does not wait for acknowledgements: ten packets are in flight before the first arrives. \
         A requests an acknowledgement with the last packet of a message, and before its window of \
         64 KiB is full. An acknowledgement covers all earlier packets.",
    )?;
    world.post_send(A, a, &SendWr::write(1, far.remote(0), near.sge(0, 40_960)))?;
    world.run()?;
    world.say(
        "A full window doubles with each round trip until a loss, then grows by one packet. `roce \
         demo --scenario congestion` shows it shrink.",
    )
}

pub(crate) fn unsignaled(world: &mut World) -> Result<(), Failure> {
    let (a, _) = world.connect(Options { depth: 4, ..Options::default() });
    let (near, far) = (world[A].buffer(64), world[B].buffer(64));
    world.say(
        "A send queue of four slots, and a program that signals no request. A slot is free once \
         its request completes, which only a completion shows. This program posts until the queue \
         is full, and has no completion to wait for.",
    )?;
    let quiet =
        |id| SendWr::write(id, far.remote(0), near.sge(0, 8)).with_flags(SendFlags::empty());
    for id in 1..=5 {
        world.post_send(A, a, &quiet(id))?;
    }
    world.say(
        "A network adapter frees slots only with the completion of a later request, and there is \
         none: the queue stays full. This adapter frees them when the acknowledgements arrive, as \
         rxe does, but no completion shows when.",
    )?;
    world.run()?;
    world.say("The fix: signal one request in a few; its completion covers the earlier ones.")?;
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
