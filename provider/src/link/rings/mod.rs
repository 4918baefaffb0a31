//! Rings of runs of datagrams in memory that two processes share: the [memory](ring_memory), its two
//! [sides](ring), and a [sender] that keeps what finds no room. They know nothing of addresses.

mod ring;
mod ring_memory;
mod sender;

use std::time::Duration;

pub(super) use ring::{Broken, LONGEST, Reader, RunHeader, Writer};
pub(super) use sender::Sender;

/// Time after which a process that does nothing counts as stopped: less than connections wait until
/// they give up, 8 times 67 ms with the usual attributes.
pub(super) const SILENCE: Duration = Duration::from_millis(100);
