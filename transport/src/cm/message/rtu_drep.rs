use super::{
    fields::{Fields, Writer},
    private_data::PrivateData,
};

mod at {
    pub(super) const LOCAL_ID: usize = 0;
    pub(super) const REMOTE_ID: usize = 4;
    pub(super) const PRIVATE_DATA: usize = 8;
}

macro_rules! message {
    ($(#[$doc:meta])* $name:ident = $attribute:literal) => {
        $(#[$doc])*
        #[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
        pub struct $name {
            /// Sender's ID.
            pub local_id: u32,
            /// Receiver's ID.
            pub remote_id: u32,
            /// Private data.
            pub private_data: PrivateData<{ $name::PRIVATE_DATA }>,
        }

        impl $name {
            /// In bytes.
            pub const PRIVATE_DATA: usize = 224;

            pub(super) const ATTRIBUTE: u16 = $attribute;

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
    };
}

message! {
    /// Ready to use (12.6.9).
    Rtu = 0x14
}

message! {
    /// Reply to request for communication release (12.6.11).
    Drep = 0x16
}
