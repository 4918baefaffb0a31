//! Rings of runs of datagrams in memory that two processes share: their [memory](ring_memory), the
//! two [sides](ring), and the [channel] by which one process gives a ring to the other. Rings know
//! nothing of addresses.

mod channel;
mod ring;
mod ring_memory;

pub(super) use channel::{Incoming, Outgoing, is_closed};
pub(super) use ring::{LONGEST, Reader, RunHeader};
