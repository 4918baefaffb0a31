use crate::{port::Watch, sync::Mutex};

/// Network interface of a device, and turns to change the link there.
pub(super) struct Interface {
    pub(super) watch: Option<Watch>,
    /// Held by the thread that follows the interface.
    pub(super) following: Mutex<()>,
    /// Held by a thread that joins or leaves groups, possibly blocking: each sees the previous
    /// change.
    pub(super) grouping: Mutex<()>,
}

impl Interface {
    pub(super) fn new(watch: Option<Watch>) -> Self {
        Self { watch, following: Mutex::new(()), grouping: Mutex::new(()) }
    }
}
