use super::{
    fields::{Fields, Writer},
    private_data::PrivateData,
};
use crate::{
    addr::{PKey, QKey},
    cm::service::ServiceId,
    ids::Qpn,
};

/// Query for a service's queue pair (12.11.1).
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct SidrReq {
    /// Request ID.
    pub request_id: u32,
    /// P_Key.
    pub pkey: PKey,
    /// Service.
    pub service_id: ServiceId,
    /// Private data.
    pub private_data: PrivateData<{ SidrReq::PRIVATE_DATA }>,
}

mod req_at {
    pub(super) const REQUEST_ID: usize = 0;
    pub(super) const PKEY: usize = 4;
    pub(super) const SERVICE_ID: usize = 8;
    pub(super) const PRIVATE_DATA: usize = 16;
}

impl SidrReq {
    /// In bytes.
    pub const PRIVATE_DATA: usize = 216;

    pub(super) const ATTRIBUTE: u16 = 0x17;

    pub(super) fn parse(b: &Fields<'_>) -> Self {
        Self {
            request_id: b.u32(req_at::REQUEST_ID),
            pkey: PKey(b.u16(req_at::PKEY)),
            service_id: ServiceId(b.u64(req_at::SERVICE_ID)),
            private_data: b.data(req_at::PRIVATE_DATA),
        }
    }

    pub(super) fn write(&self, w: &mut Writer<'_>) {
        w.u32(req_at::REQUEST_ID, self.request_id);
        w.u16(req_at::PKEY, self.pkey.0);
        w.u64(req_at::SERVICE_ID, self.service_id.0);
        w.put(req_at::PRIVATE_DATA, &self.private_data.0);
    }
}

/// Service ID resolution response (12.11.2).
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
pub struct SidrRep {
    /// Request ID.
    pub request_id: u32,
    /// Status: 0, [`SidrRep::NO_SERVICE`] or [`SidrRep::REJECTED`].
    pub status: u8,
    /// Valid bytes of `info`.
    pub info_length: u8,
    /// Vendor ID.
    pub vendor_id: u32,
    /// Queue pair of the service.
    pub qpn: Qpn,
    /// Service.
    pub service_id: ServiceId,
    /// Q_Key of the service.
    pub qkey: QKey,
    /// Additional information.
    pub info: PrivateData<{ SidrRep::INFO }>,
    /// Private data.
    pub private_data: PrivateData<{ SidrRep::PRIVATE_DATA }>,
}

mod rep_at {
    pub(super) const REQUEST_ID: usize = 0;
    pub(super) const STATUS: usize = 4;
    pub(super) const INFO_LENGTH: usize = 5;
    pub(super) const VENDOR_ID_HIGH: usize = 6;
    pub(super) const QPN: usize = 8;
    pub(super) const VENDOR_ID_LOW: usize = 11;
    pub(super) const SERVICE_ID: usize = 12;
    pub(super) const QKEY: usize = 20;
    pub(super) const INFO: usize = 24;
    pub(super) const PRIVATE_DATA: usize = 96;
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

    pub(super) const ATTRIBUTE: u16 = 0x18;

    pub(super) fn parse(b: &Fields<'_>) -> Self {
        let [high, low] = [b.u16(rep_at::VENDOR_ID_HIGH), b.u8(rep_at::VENDOR_ID_LOW).into()];
        Self {
            request_id: b.u32(rep_at::REQUEST_ID),
            status: b.u8(rep_at::STATUS),
            info_length: b.u8(rep_at::INFO_LENGTH),
            vendor_id: u32::from(high) << 8 | u32::from(low),
            qpn: Qpn::new(b.u24(rep_at::QPN)),
            service_id: ServiceId(b.u64(rep_at::SERVICE_ID)),
            qkey: QKey(b.u32(rep_at::QKEY)),
            info: b.data(rep_at::INFO),
            private_data: b.data(rep_at::PRIVATE_DATA),
        }
    }

    pub(super) fn write(&self, w: &mut Writer<'_>) {
        w.u32(rep_at::REQUEST_ID, self.request_id);
        w.u8(rep_at::STATUS, self.status);
        w.u8(rep_at::INFO_LENGTH, self.info_length);
        w.u16(rep_at::VENDOR_ID_HIGH, (self.vendor_id >> 8) as u16);
        w.u24(rep_at::QPN, self.qpn.get());
        w.u8(rep_at::VENDOR_ID_LOW, self.vendor_id as u8);
        w.u64(rep_at::SERVICE_ID, self.service_id.0);
        w.u32(rep_at::QKEY, self.qkey.0);
        w.put(rep_at::INFO, &self.info.0);
        w.put(rep_at::PRIVATE_DATA, &self.private_data.0);
    }
}
