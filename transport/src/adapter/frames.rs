//! Turns of raw packet queue pairs, one frame each.

use alloc::collections::VecDeque;

#[derive(Default, Debug)]
pub(super) struct FrameSenders {
    /// `None`: the link carries no frames.
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
