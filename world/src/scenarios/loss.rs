//! Lost, late and refused packets.

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
         fourth arrives, and sends one NAK, which also acknowledges what came before it. What \
         arrives ahead of the gap is dropped without another word.",
    )?;
    world.post_send(A, a, &SendWr::write(1, far.remote(0), near.sge(0, 5000)))?;
    world.run()?;
    world.say(
        "A has gone back to the lost packet and sent everything from there on again, also what had \
         arrived (go-back-N), and its window has shrunk.",
    )?;
    Ok(())
}

pub(crate) fn timeout(world: &mut World) -> Result<(), Failure> {
    let (a, _) = world.connect(Options { timeout: 12, ..Options::default() });
    let (near, far) = (world[A].buffer(64), world[B].buffer(64));
    world.say(
        "A single packet is lost, so that nothing shows B that something is missing. A hears \
         nothing: after 10 ms (a few round trips, once one has been measured) it sends the packet \
         again as a probe, which costs no retry. After the acknowledge timeout, here 16.8 ms (code \
         12), it counts as lost, and a retry is spent. The network loses three of them.",
    )?;
    world.post_send(A, a, &SendWr::write(1, far.remote(0), near.sge(0, 64)))?;
    world.run()
}

pub(crate) fn not_ready(world: &mut World) -> Result<(), Failure> {
    let (a, b) = world.connect(Options::default());
    let (near, far) = (world[A].buffer(64), world[B].buffer(64));
    world.say(
        "A sends a message, but B's program has posted no receive request. B answers \"receiver \
         not ready\" with the time that A is to wait: min_rnr_timer of B's queue pair, here 1.28 \
         ms. After 1 ms B's program posts one.",
    )?;
    world.post_send(A, a, &SendWr::send(1, near.sge(0, 64)))?;
    world.run_for(Duration::from_millis(1))?;
    world.post_recv(B, b, &RecvWr::new(2, [far.sge(0, 64)]))?;
    world.run()?;
    world.say("An rnr_retry of 7 means without limit; less, and the request fails in the end.")?;
    Ok(())
}

pub(crate) fn duplicate_atomic(world: &mut World) -> Result<(), Failure> {
    let (a, _) = world.connect(Options::default());
    let (near, far) = (world[A].buffer(8), world[B].buffer(8));
    far.put(&40u64.to_ne_bytes());
    world.say(
        "Fetch and add of 2 to a word that is 40. The network loses the answer. A sends the request \
         again, and B must not add once more: it remembers the PSN and what it found then.",
    )?;
    world.post_send(A, a, &SendWr::fetch_add(1, far.remote(0), 2, near.sge(0, 8)))?;
    world.run()?;
    world.figures(&format!("B's word is {}, A has got {}.", far.word(), near.word()))?;
    Ok(())
}

pub(crate) fn wrong_key(world: &mut World) -> Result<(), Failure> {
    let (a, b) = world.connect(Options::default());
    let (near, far) = (world[A].buffer(64), world[B].buffer(64));
    world.say(
        "A WRITE with an R_Key that B has never given out, and one behind it. B answers with a NAK \
         and its queue pair goes into ERR: everything posted there completes as flushed. A's \
         request completes with the status that the NAK means, the next as flushed, and A's queue \
         pair is in ERR as well.",
    )?;
    world.quietly(|world| world.post_recv(B, b, &RecvWr::new(9, [far.sge(0, 64)])))?;
    let wrong = Remote { address: far.remote(0).address, rkey: RKey(0xBAD) };
    world.post_send(A, a, &SendWr::write(1, wrong, near.sge(0, 64)))?;
    world.post_send(A, a, &SendWr::write(2, far.remote(0), near.sge(0, 64)))?;
    world.run()
}
