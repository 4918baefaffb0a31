use super::{
    fields::{Fields, Writer},
    private_data::PrivateData,
};
use crate::ids::Qpn;

/// Request for communication release (12.6.10).
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
pub struct Dreq {
    /// Sender's ID.
    pub local_id: u32,
    /// Receiver's ID.
    pub remote_id: u32,
    /// Receiver's queue pair.
    pub remote_qpn: Qpn,
    /// Private data.
    pub private_data: PrivateData<{ Dreq::PRIVATE_DATA }>,
}

mod at {
    pub(super) const LOCAL_ID: usize = 0;
    pub(super) const REMOTE_ID: usize = 4;
    pub(super) const REMOTE_QPN: usize = 8;
    pub(super) const PRIVATE_DATA: usize = 12;
}

impl Dreq {
    /// In bytes.
    pub const PRIVATE_DATA: usize = 220;

    pub(super) const ATTRIBUTE: u16 = 0x15;

    pub(super) fn parse(b: &Fields<'_>) -> Self {
        Self {
            local_id: b.u32(at::LOCAL_ID),
            remote_id: b.u32(at::REMOTE_ID),
            remote_qpn: Qpn::new(b.u24(at::REMOTE_QPN)),
            private_data: b.data(at::PRIVATE_DATA),
        }
    }

    pub(super) fn write(&self, w: &mut Writer<'_>) {
        w.u32(at::LOCAL_ID, self.local_id);
        w.u32(at::REMOTE_ID, self.remote_id);
        w.u24(at::REMOTE_QPN, self.remote_qpn.get());
        w.put(at::PRIVATE_DATA, &self.private_data.0);
    }
}
