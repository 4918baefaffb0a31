use super::{
    fields::{Fields, Writer},
    private_data::PrivateData,
};

/// Reply to request for communication release (12.6.11).
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
pub struct Drep {
    /// Sender's ID.
    pub local_id: u32,
    /// Receiver's ID.
    pub remote_id: u32,
    /// Private data.
    pub private_data: PrivateData<{ Drep::PRIVATE_DATA }>,
}

mod at {
    pub(super) const LOCAL_ID: usize = 0;
    pub(super) const REMOTE_ID: usize = 4;
    pub(super) const PRIVATE_DATA: usize = 8;
}

impl Drep {
    /// In bytes.
    pub const PRIVATE_DATA: usize = 224;

    pub(super) const ATTRIBUTE: u16 = 0x16;

    pub(super) fn parse(b: &Fields<'_>) -> Self {
        Self {
            local_id: b.u32(at::LOCAL_ID),
            remote_id: b.u32(at::REMOTE_ID),
            private_data: b.data(at::PRIVATE_DATA),
        }
    }

    pub(super) fn write(&self, w: &mut Writer<'_>) {
        w.u32(at::LOCAL_ID, self.local_id);
        w.u32(at::REMOTE_ID, self.remote_id);
        w.put(at::PRIVATE_DATA, &self.private_data.0);
    }
}
