//! Turns of raw packet queue pairs.

use alloc::collections::VecDeque;

/// A turn is one frame.
#[derive(Default, Debug)]
pub(super) struct FrameSenders {
    /// MTU; `None`: the link carries no frames.
    pub(super) mtu: Option<u32>,
    pub(super) line: VecDeque<usize>,
}

impl FrameSenders {
    pub(super) fn add(&mut self, index: usize) {
        // few queue pairs
        if !self.line.contains(&index) {
            self.line.push_back(index);
        }
    }

    pub(super) fn forget(&mut self, index: usize) {
        self.line.retain(|&other| other != index);
    }
}
