use super::{
    about::About,
    fields::{Fields, Writer},
    private_data::PrivateData,
};

/// Message receipt acknowledgement: the response takes longer (12.6.6).
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct Mra {
    /// Sender's ID.
    pub local_id: u32,
    /// Receiver's ID.
    pub remote_id: u32,
    /// Received message.
    pub about: About,
    /// Time until the response, code.
    pub service_timeout: u8,
    /// Private data.
    pub private_data: PrivateData<{ Mra::PRIVATE_DATA }>,
}

mod at {
    pub(super) const LOCAL_ID: usize = 0;
    pub(super) const REMOTE_ID: usize = 4;
    pub(super) const ABOUT: usize = 8;
    pub(super) const SERVICE_TIMEOUT: usize = 9;
    pub(super) const PRIVATE_DATA: usize = 10;
}

impl Mra {
    /// In bytes.
    pub const PRIVATE_DATA: usize = 222;

    pub(super) const ATTRIBUTE: u16 = 0x11;

    pub(super) fn parse(b: &Fields<'_>) -> Self {
        Self {
            local_id: b.u32(at::LOCAL_ID),
            remote_id: b.u32(at::REMOTE_ID),
            about: About::from_upper_bits(b.u8(at::ABOUT)),
            service_timeout: b.u8(at::SERVICE_TIMEOUT) >> 3,
            private_data: b.data(at::PRIVATE_DATA),
        }
    }

    pub(super) fn write(&self, w: &mut Writer<'_>) {
        w.u32(at::LOCAL_ID, self.local_id);
        w.u32(at::REMOTE_ID, self.remote_id);
        w.u8(at::ABOUT, self.about.upper_bits());
        w.u8(at::SERVICE_TIMEOUT, self.service_timeout << 3);
        w.put(at::PRIVATE_DATA, &self.private_data.0);
    }
}
