use super::fields::{Fields, Writer};
use crate::ids::Qpn;

/// Load alternate path (12.8.1), without the path.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
pub struct Lap {
    /// Sender's ID.
    pub local_id: u32,
    /// Receiver's ID.
    pub remote_id: u32,
    /// Receiver's queue pair.
    pub remote_qpn: Qpn,
}

mod at {
    pub(super) const LOCAL_ID: usize = 0;
    pub(super) const REMOTE_ID: usize = 4;
    pub(super) const REMOTE_QPN: usize = 12;
}

impl Lap {
    pub(super) const ATTRIBUTE: u16 = 0x19;

    pub(super) fn parse(b: &Fields<'_>) -> Self {
        Self {
            local_id: b.u32(at::LOCAL_ID),
            remote_id: b.u32(at::REMOTE_ID),
            remote_qpn: Qpn::new(b.u24(at::REMOTE_QPN)),
        }
    }

    pub(super) fn write(&self, w: &mut Writer<'_>) {
        w.u32(at::LOCAL_ID, self.local_id);
        w.u32(at::REMOTE_ID, self.remote_id);
        w.u24(at::REMOTE_QPN, self.remote_qpn.get());
    }
}
