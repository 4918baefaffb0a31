use super::{
    fields::{Fields, Writer},
    private_data::PrivateData,
};

/// Alternate path response (12.8.2).
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
pub struct Apr {
    /// Sender's ID.
    pub local_id: u32,
    /// Receiver's ID.
    pub remote_id: u32,
    /// Valid bytes of `info`.
    pub info_length: u8,
    /// 0: accepted; else a reason.
    pub status: u8,
    /// Additional information.
    pub info: PrivateData<{ Apr::INFO }>,
    /// Private data.
    pub private_data: PrivateData<{ Apr::PRIVATE_DATA }>,
}

mod at {
    pub(super) const LOCAL_ID: usize = 0;
    pub(super) const REMOTE_ID: usize = 4;
    pub(super) const INFO_LENGTH: usize = 8;
    pub(super) const STATUS: usize = 9;
    pub(super) const INFO: usize = 12;
    pub(super) const PRIVATE_DATA: usize = 84;
}

impl Apr {
    /// Bytes of `info`.
    pub const INFO: usize = 72;
    /// In bytes.
    pub const PRIVATE_DATA: usize = 148;
    /// Unknown communication IDs.
    pub const INVALID_COMM_ID: u8 = 1;
    /// No alternate paths.
    pub const UNSUPPORTED: u8 = 2;

    pub(super) const ATTRIBUTE: u16 = 0x1A;

    pub(super) fn parse(b: &Fields<'_>) -> Self {
        Self {
            local_id: b.u32(at::LOCAL_ID),
            remote_id: b.u32(at::REMOTE_ID),
            info_length: b.u8(at::INFO_LENGTH),
            status: b.u8(at::STATUS),
            info: b.data(at::INFO),
            private_data: b.data(at::PRIVATE_DATA),
        }
    }

    pub(super) fn write(&self, w: &mut Writer<'_>) {
        w.u32(at::LOCAL_ID, self.local_id);
        w.u32(at::REMOTE_ID, self.remote_id);
        w.u8(at::INFO_LENGTH, self.info_length);
        w.u8(at::STATUS, self.status);
        w.put(at::INFO, &self.info.0);
        w.put(at::PRIVATE_DATA, &self.private_data.0);
    }
}
