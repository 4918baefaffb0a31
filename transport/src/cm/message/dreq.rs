use super::{
    fields::{At, Bits, Field, layout},
    private_data::PrivateData,
};
use crate::ids::Qpn;

layout! {
    /// Request for communication release (12.6.10).
    #[derive(Default)]
    Dreq {
        /// Sender's ID.
        local_id: u32 = At(0);
        /// Receiver's ID.
        remote_id: u32 = At(4);
        /// Receiver's queue pair.
        remote_qpn: Qpn = Bits(8, 31, 8);
        /// Private data.
        private_data: PrivateData<{ Dreq::PRIVATE_DATA }> = At(12);
    }
}

impl Dreq {
    /// In bytes.
    pub const PRIVATE_DATA: usize = 220;
}
