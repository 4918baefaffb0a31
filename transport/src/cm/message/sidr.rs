use super::{
    fields::{At, Bits, Field, Split, layout},
    private_data::PrivateData,
};
use crate::{
    addr::{PKey, QKey},
    cm::service::ServiceId,
    ids::Qpn,
};

layout! {
    /// Query for a service's queue pair (12.11.1).
    SidrReq {
        /// Request ID.
        request_id: u32 = At(0);
        /// P_Key.
        pkey: PKey = At(4);
        /// Service.
        service_id: ServiceId = At(8);
        /// Private data.
        private_data: PrivateData<{ SidrReq::PRIVATE_DATA }> = At(16);
    }
}

impl SidrReq {
    /// In bytes.
    pub const PRIVATE_DATA: usize = 216;
}

layout! {
    /// Service ID resolution response (12.11.2).
    #[derive(Default)]
    SidrRep {
        /// Request ID.
        request_id: u32 = At(0);
        /// Status: 0, [`SidrRep::NO_SERVICE`] or [`SidrRep::REJECTED`].
        status: u8 = At(4);
        /// Valid bytes of `info`.
        info_length: u8 = At(5);
        /// Vendor ID.
        vendor_id: u32 = Split([6, 7, 11]);
        /// Queue pair of the service.
        qpn: Qpn = Bits(8, 31, 8);
        /// Service.
        service_id: ServiceId = At(12);
        /// Q_Key of the service.
        qkey: QKey = At(20);
        /// Additional information.
        info: PrivateData<{ SidrRep::INFO }> = At(24);
        /// Private data.
        private_data: PrivateData<{ SidrRep::PRIVATE_DATA }> = At(96);
    }
}

impl SidrRep {
    /// No listener.
    pub const NO_SERVICE: u8 = 1;
    /// Rejected by the program.
    pub const REJECTED: u8 = 2;

    /// Bytes of `info`.
    pub const INFO: usize = 72;
    /// In bytes.
    pub const PRIVATE_DATA: usize = 136;
}
