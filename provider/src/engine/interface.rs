use crate::{port::Watch, sync::Mutex};

/// Network interface of a device.
#[derive(Default)]
pub(super) struct Interface {
    pub(super) watch: Option<Watch>,
    /// Held by the thread that follows the interface.
    pub(super) following: Mutex<()>,
    /// Serialises joining and leaving of groups, which may block.
    pub(super) grouping: Mutex<()>,
}
