//! The thread and the descriptors of an engine.

use std::{io, os::fd::OwnedFd, sync::Arc, thread::JoinHandle};

use rustix::event::{EventfdFlags, eventfd};

use super::loop_descriptor::LoopSlot;
use crate::sync::Mutex;

/// The background thread, and the descriptors that threads of an engine sleep on.
pub(super) struct System {
    /// Readable when any of the link's descriptors is, or when a link that was full has room.
    pub(super) sockets: Arc<OwnedFd>,
    /// Ends a sleep of the background thread.
    pub(super) wake: OwnedFd,
    /// Wakes the background thread when what is corked is to leave, if anything ever is.
    pub(super) timer: Option<OwnedFd>,
    /// The descriptor that a program in an event loop waits for.
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
