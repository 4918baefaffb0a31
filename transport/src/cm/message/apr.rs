use super::{
    fields::{At, Field, layout},
    private_data::PrivateData,
};

layout! {
    /// Alternate path response (12.8.2).
    #[derive(Default)]
    Apr {
        /// Sender's ID.
        local_id: u32 = At(0);
        /// Receiver's ID.
        remote_id: u32 = At(4);
        /// Valid bytes of `info`.
        info_length: u8 = At(8);
        /// 0: accepted; else a reason.
        status: u8 = At(9);
        /// Additional information.
        info: PrivateData<{ Apr::INFO }> = At(12);
        /// Private data.
        private_data: PrivateData<{ Apr::PRIVATE_DATA }> = At(84);
    }
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
}
