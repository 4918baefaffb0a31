//! The network interface of a device.

use crate::{port::Watch, sync::Mutex};

/// The network interface of a device, and whose turn it is to change what the link has there.
pub(super) struct Interface {
    /// Notices changes of the interface.
    pub(super) watch: Option<Watch>,
    /// Held by the thread that follows the interface.
    pub(super) following: Mutex<()>,
    /// Held by a thread that joins or leaves a multicast group, which may wait, so that each finds
    /// what the one before has done.
    pub(super) grouping: Mutex<()>,
}

impl Interface {
    pub(super) fn new(watch: Option<Watch>) -> Self {
        Self { watch, following: Mutex::new(()), grouping: Mutex::new(()) }
    }
}
