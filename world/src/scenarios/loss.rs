use std::time::Duration;

use roce_transport::{
    mem::RKey,
    work::{RecvWr, Remote, SendWr},
};

use crate::{
    failure::Failure,
    line::End::{A, B},
    node::Options,
    world::World,
};

pub(crate) fn nak(world: &mut World) -> Result<(), Failure> {
    let (a, _) = world.connect(Options::default());
    let (near, far) = (world[A].buffer(5000), world[B].buffer(5000));
    world.say(
        "A WRITE of five packets, of which the network loses the third. B sees the gap when the \
         fourth arrives, and sends one NAK, which also acknowledges what came before it. B drops \
         packets after the gap, and sends no second NAK.",
    )?;
    world.post_send(A, a, &SendWr::write(1, far.remote(0), near.sge(0, 5000)))?;
    world.run()?;
    world.say(
        "A retransmitted everything from the lost packet on, also the packets that had arrived \
         (go-back-N), and shrank its window.",
    )
}

pub(crate) fn timeout(world: &mut World) -> Result<(), Failure> {
    let (a, _) = world.connect(Options { timeout: 12, ..Options::default() });
    let (near, far) = (world[A].buffer(64), world[B].buffer(64));
    world.say(
        "A single packet is lost: no later packet shows B the gap. Without a response, after 10 ms \
         (a few round trips, once one is measured), A retransmits the packet as a probe, which \
         costs no retry. After the ACK timeout, here 16.8 ms (code 12), the packet counts as lost \
         and costs a retry. The network loses three of them.",
    )?;
    world.post_send(A, a, &SendWr::write(1, far.remote(0), near.sge(0, 64)))?;
    world.run()
}

pub(crate) fn not_ready(world: &mut World) -> Result<(), Failure> {
    let (a, b) = world.connect(Options::default());
    let (near, far) = (world[A].buffer(64), world[B].buffer(64));
    world.say(
        "A sends a message, but B's program has posted no receive request. B responds \"receiver \
         not ready\" with a time to wait: min_rnr_timer of B's queue pair, here 1.28 ms. After 1 \
         ms B's program posts one.",
    )?;
    world.post_send(A, a, &SendWr::send(1, near.sge(0, 64)))?;
    world.run_for(Duration::from_millis(1))?;
    world.post_recv(B, b, &RecvWr::new(2, [far.sge(0, 64)]))?;
    world.run()?;
    world.say(
        "An rnr_retry of 7 means no limit; with less, the request fails after as many retries.",
    )
}

pub(crate) fn duplicate_atomic(world: &mut World) -> Result<(), Failure> {
    let (a, _) = world.connect(Options::default());
    let (near, far) = (world[A].buffer(8), world[B].buffer(8));
    far.put(0, &40u64.to_ne_bytes());
    world.say(
        "Fetch and add of 2 to a word that is 40. The network loses the response. A retransmits \
         the request, and B must not add twice: it remembers the PSN and the original value.",
    )?;
    world.post_send(A, a, &SendWr::fetch_add(1, far.remote(0), 2, near.sge(0, 8)))?;
    world.run()?;
    world.figures(&format!("B's word is {}, A has got {}.", far.word(), near.word()))
}

pub(crate) fn wrong_key(world: &mut World) -> Result<(), Failure> {
    let (a, b) = world.connect(Options::default());
    let (near, far) = (world[A].buffer(64), world[B].buffer(64));
    world.say(
        "A WRITE with an R_Key that B never gave out, and a second one. B responds with a NAK, and \
         its queue pair goes to ERR: everything posted there completes as flushed. A's first \
         request completes with the status of the NAK, the second as flushed, and A's queue pair \
         goes to ERR, too.",
    )?;
    world.quietly(|world| world.post_recv(B, b, &RecvWr::new(9, [far.sge(0, 64)])))?;
    let wrong = Remote { address: far.remote(0).address, rkey: RKey(0xBAD) };
    world.post_send(A, a, &SendWr::write(1, wrong, near.sge(0, 64)))?;
    world.post_send(A, a, &SendWr::write(2, far.remote(0), near.sge(0, 64)))?;
    world.run()
}
