use std::{io, os::fd::OwnedFd, sync::Arc, thread::JoinHandle};

use rustix::event::{EventfdFlags, eventfd};

use super::loop_descriptor::LoopSlot;
use crate::sync::Mutex;

pub(super) struct System {
    /// Readable with a link's descriptor, or with room after a full link.
    pub(super) sockets: Arc<OwnedFd>,
    /// Wakes the background thread.
    pub(super) wake: OwnedFd,
    /// Wakes the background thread to flush the cork, if corking is on.
    pub(super) timer: Option<OwnedFd>,
    pub(super) loop_slot: LoopSlot,
    pub(super) thread: Mutex<Option<JoinHandle<()>>>,
}

impl System {
    pub(super) fn new(sockets: Arc<OwnedFd>, timer: Option<OwnedFd>) -> io::Result<Self> {
        let wake = eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)?;
        let (loop_slot, thread) = (LoopSlot::default(), Mutex::new(None));
        Ok(Self { sockets, wake, timer, loop_slot, thread })
    }
}
