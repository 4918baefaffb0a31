use super::{
    fields::{At, Field, layout},
    private_data::PrivateData,
};

layout! {
    /// Ready to use (12.6.9).
    #[derive(Default)]
    Rtu {
        /// Sender's ID.
        local_id: u32 = At(0);
        /// Receiver's ID.
        remote_id: u32 = At(4);
        /// Private data.
        private_data: PrivateData<{ Rtu::PRIVATE_DATA }> = At(8);
    }
}

impl Rtu {
    /// In bytes.
    pub const PRIVATE_DATA: usize = 224;
}

layout! {
    /// Reply to request for communication release (12.6.11).
    #[derive(Default)]
    Drep {
        /// Sender's ID.
        local_id: u32 = At(0);
        /// Receiver's ID.
        remote_id: u32 = At(4);
        /// Private data.
        private_data: PrivateData<{ Drep::PRIVATE_DATA }> = At(8);
    }
}

impl Drep {
    /// In bytes.
    pub const PRIVATE_DATA: usize = 224;
}
