//! Memory of a send queue, as an adapter has it that this one stands for.

use super::error::{ObjectError, ObjectSize, size};
use crate::qp::{QpCaps, QpType};

/// Memory of a send queue whose elements are all as large as the largest.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct SendQueueMemory {
    /// Bytes of a queue, at most.
    pub queue: u32,
    /// Bytes of an element, at most.
    pub element: u32,
    /// Elements are multiples of so many bytes.
    pub unit: u32,
    /// Bytes of an element that are no list and no inline data: of RC and UC.
    pub connected: u32,
    /// The same of UD.
    pub datagrams: u32,
    /// The same of XRC.
    pub extended: u32,
}

/// Bytes that an entry of a list takes, and of what inline data is a multiple with its header.
const SEGMENT: u32 = 16;
/// Bytes of that header.
const INLINE_HEADER: u32 = 4;

impl SendQueueMemory {
    /// Checks sizes that are within the other limits.
    pub(super) fn check(&self, qp_type: QpType, caps: &QpCaps) -> Result<(), ObjectError> {
        let head = match qp_type {
            QpType::Rc | QpType::Uc => self.connected,
            QpType::Ud => self.datagrams,
            QpType::XrcInitiator => self.extended,
            QpType::XrcTarget | QpType::RawPacket => return Ok(()),
        };
        let room = self.element.saturating_sub(head);
        let inline = room.saturating_sub(INLINE_HEADER);
        limit(ObjectSize::MaxSendSge, caps.max_send_sge, room / SEGMENT)?;
        limit(ObjectSize::MaxInlineData, caps.max_inline_data, inline)?;
        let inline = match caps.max_inline_data {
            0 => 0,
            bytes => (INLINE_HEADER + bytes).next_multiple_of(SEGMENT),
        };
        let bytes = head.saturating_add(inline.max(caps.max_send_sge * SEGMENT));
        let element = bytes.checked_next_multiple_of(self.unit.max(1)).unwrap_or(u32::MAX).max(1);
        limit(ObjectSize::MaxSendWr, caps.max_send_wr, self.queue / element)
    }
}

fn limit(what: ObjectSize, asked: u32, limit: u32) -> Result<(), ObjectError> {
    size(what, asked as usize, 0, limit as usize)
}
