//! The order in which queue pairs of raw packets send.

use alloc::collections::VecDeque;

/// Queue pairs that have frames to send, in the order of their turns; a turn is one frame.
#[derive(Default, Debug)]
pub(super) struct FrameSenders {
    /// MTU of the interface; `None`: the link carries no frames.
    pub(super) mtu: Option<u32>,
    pub(super) line: VecDeque<usize>,
}

impl FrameSenders {
    pub(super) fn add(&mut self, index: usize) {
        // there are few such queue pairs
        if !self.line.contains(&index) {
            self.line.push_back(index);
        }
    }

    pub(super) fn forget(&mut self, index: usize) {
        self.line.retain(|&other| other != index);
    }
}
