use super::error::{ObjectError, ObjectSize, size};
use crate::qp::{QpCaps, QpType};

/// Send queue memory of an emulated adapter, with elements of equal size.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct SendQueueMemory {
    /// Most bytes per queue.
    pub queue: u32,
    /// Most bytes per element.
    pub element: u32,
    /// Element granularity.
    pub unit: u32,
    /// Bytes per element beside SGEs and inline data: RC, UC.
    pub connected: u32,
    /// UD.
    pub datagrams: u32,
    /// XRC.
    pub extended: u32,
}

/// Bytes of an SGE; granularity of inline data.
const SEGMENT: u32 = 16;
const INLINE_HEADER: u32 = 4;

impl SendQueueMemory {
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
