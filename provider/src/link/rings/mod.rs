//! Rings of runs of datagrams in memory that two processes share. A ring has its
//! [memory](ring_memory), two [sides](ring), a [sender] that queues datagrams without room, and the
//! [channel] by which one process gives the ring to the other. Rings know nothing of addresses.

mod channel;
mod ring;
mod ring_memory;
mod sender;

pub(super) use channel::{Incoming, Outgoing, is_closed};
pub(super) use ring::{LONGEST, Reader, RunHeader};
