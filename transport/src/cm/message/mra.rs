use super::{
    about::About,
    fields::{At, Bits, Field, layout},
    private_data::PrivateData,
};

layout! {
    /// Message receipt acknowledgement: the response takes longer (12.6.6).
    Mra {
        /// Sender's ID.
        local_id: u32 = At(0);
        /// Receiver's ID.
        remote_id: u32 = At(4);
        /// Received message.
        about: About = Bits(8, 31, 30);
        /// Time until the response, code.
        service_timeout: u8 = Bits(8, 23, 19);
        /// Private data.
        private_data: PrivateData<{ Mra::PRIVATE_DATA }> = At(10);
    }
}

impl Mra {
    /// In bytes.
    pub const PRIVATE_DATA: usize = 222;
}
