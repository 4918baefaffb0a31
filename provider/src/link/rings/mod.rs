//! Rings of datagram runs in memory that two processes share: the [memory](ring_memory), the two
//! [sides](ring), and the [channel] that hands a ring over. Rings know no addresses.

mod channel;
mod ring;
mod ring_memory;

pub(super) use channel::{Outgoing, is_closed};
pub(super) use ring::{LONGEST, Reader, RunHeader};
