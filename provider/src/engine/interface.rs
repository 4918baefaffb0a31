use crate::{port::Watch, sync::Mutex};

/// Network interface of a device.
pub(super) struct Interface {
    pub(super) watch: Option<Watch>,
    /// Held by the thread that follows the interface.
    pub(super) following: Mutex<()>,
    /// Serialises joining and leaving of groups, which may block.
    pub(super) grouping: Mutex<()>,
}

impl Interface {
    pub(super) fn new(watch: Option<Watch>) -> Self {
        Self { watch, following: Mutex::new(()), grouping: Mutex::new(()) }
    }
}
