//! Rings of runs of datagrams in memory that two processes share: the [memory](ring_memory), its
//! two [sides](ring), a [sender] that keeps what finds no room, and the [channel] by which the one
//! process gives the ring to the other. They know nothing of addresses.

mod channel;
mod ring;
mod ring_memory;
mod sender;

pub(super) use channel::{Incoming, Outgoing, is_closed};
pub(super) use ring::{LONGEST, Reader, RunHeader};
