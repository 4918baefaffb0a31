use super::{
    fields::{Fields, Writer},
    private_data::PrivateData,
    unused::Unused,
};
use crate::{
    addr::{Gid, PKey, QKey},
    cm::service::ServiceId,
    ids::Qpn,
    psn::Psn,
};

/// Request for communication (12.6.5).
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
pub struct Req {
    /// Requester's ID.
    pub local_id: u32,
    /// Service.
    pub service_id: ServiceId,
    /// GUID of the requester's adapter.
    pub local_ca_guid: u64,
    /// Requester's queue pair.
    pub local_qpn: Qpn,
    /// READs and atomics served at once.
    pub responder_resources: u8,
    /// Fields without meaning on RoCE.
    pub unused: Unused,
    /// READs and atomics outstanding.
    pub initiator_depth: u8,
    /// Remote EE context.
    pub remote_eecn: u32,
    /// Response deadline of the peer, code.
    pub remote_response_timeout: u8,
    /// Transport service: 0 RC, 1 UC, 3 `extended_transport`.
    pub transport: u8,
    /// End-to-end flow control.
    pub flow_control: bool,
    /// First PSN that the requester *expects*, as in Linux.
    pub starting_psn: Psn,
    /// Response time of the requester, code.
    pub local_response_timeout: u8,
    /// Retry counter for the peer.
    pub retry_count: u8,
    /// P_Key.
    pub pkey: PKey,
    /// Path MTU code, 1 to 5.
    pub path_mtu: u8,
    /// RDC exists.
    pub rdc_exists: bool,
    /// RNR retry counter for the peer.
    pub rnr_retry: u8,
    /// Requester's CM retries.
    pub max_cm_retries: u8,
    /// Shared receive queue.
    pub srq: bool,
    /// 1 for XRC if `transport` is 3.
    pub extended_transport: u8,
    /// Primary path.
    pub primary: ReqPath,
    /// Alternate path; none if `local_lid` is 0.
    pub alternate: ReqPath,
    /// Private data.
    pub private_data: PrivateData<{ Req::PRIVATE_DATA }>,
}

/// A path; LIDs mean nothing on RoCE.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
#[allow(missing_docs, reason = "the specification's names")]
pub struct ReqPath {
    pub local_lid: u16,
    pub remote_lid: u16,
    pub local_gid: Gid,
    pub remote_gid: Gid,
    /// 20 bits.
    pub flow_label: u32,
    /// Six bits; 0: the port's rate.
    pub rate: u8,
    pub traffic_class: u8,
    pub hop_limit: u8,
    /// Four bits.
    pub service_level: u8,
    pub subnet_local: bool,
    /// Code; see [`ack_timeout`](crate::time::ack_timeout).
    pub ack_timeout: u8,
}

mod at {
    pub(super) const LOCAL_ID: usize = 0;
    pub(super) const VENDOR_ID: usize = 5;
    pub(super) const SERVICE_ID: usize = 8;
    pub(super) const LOCAL_CA_GUID: usize = 16;
    pub(super) const LOCAL_QKEY: usize = 28;
    pub(super) const LOCAL_QPN: usize = 32;
    pub(super) const RESPONDER_RESOURCES: usize = 35;
    pub(super) const LOCAL_EECN: usize = 36;
    pub(super) const INITIATOR_DEPTH: usize = 39;
    pub(super) const REMOTE_EECN: usize = 40;
    /// Remote response timeout (5 bits), transport service (2), flow control (1).
    pub(super) const TRANSPORT: usize = 43;
    pub(super) const STARTING_PSN: usize = 44;
    /// Local response timeout (5 bits), retry count (3).
    pub(super) const RETRY_COUNT: usize = 47;
    pub(super) const PKEY: usize = 48;
    /// Path MTU (4 bits), RDC exists (1), RNR retry count (3).
    pub(super) const PATH_MTU: usize = 50;
    /// CM retries (4 bits), SRQ (1), extended transport (3).
    pub(super) const MAX_CM_RETRIES: usize = 51;
    pub(super) const PRIMARY: usize = 52;
    pub(super) const ALTERNATE: usize = 96;
    pub(super) const PRIVATE_DATA: usize = 140;

    pub(super) const LOCAL_LID: usize = 0;
    pub(super) const REMOTE_LID: usize = 2;
    pub(super) const LOCAL_GID: usize = 4;
    pub(super) const REMOTE_GID: usize = 20;
    /// Flow label (20 bits), reserved (6), rate (6).
    pub(super) const FLOW_LABEL: usize = 36;
    pub(super) const TRAFFIC_CLASS: usize = 40;
    pub(super) const HOP_LIMIT: usize = 41;
    /// Service level (4 bits), subnet local (1).
    pub(super) const SERVICE_LEVEL: usize = 42;
    pub(super) const ACK_TIMEOUT: usize = 43;
}

impl Req {
    /// In bytes.
    pub const PRIVATE_DATA: usize = 92;

    pub(super) const ATTRIBUTE: u16 = 0x10;

    pub(super) fn parse(b: &Fields<'_>) -> Self {
        Self {
            local_id: b.u32(at::LOCAL_ID),
            service_id: ServiceId(b.u64(at::SERVICE_ID)),
            local_ca_guid: b.u64(at::LOCAL_CA_GUID),
            local_qpn: Qpn::new(b.u24(at::LOCAL_QPN)),
            responder_resources: b.u8(at::RESPONDER_RESOURCES),
            unused: Unused {
                local_qkey: QKey(b.u32(at::LOCAL_QKEY)),
                local_eecn: b.u24(at::LOCAL_EECN),
                vendor_id: b.u24(at::VENDOR_ID),
            },
            initiator_depth: b.u8(at::INITIATOR_DEPTH),
            remote_eecn: b.u24(at::REMOTE_EECN),
            remote_response_timeout: b.u8(at::TRANSPORT) >> 3,
            transport: b.u8(at::TRANSPORT) >> 1 & 3,
            flow_control: b.u8(at::TRANSPORT) & 1 != 0,
            starting_psn: Psn::new(b.u24(at::STARTING_PSN)),
            local_response_timeout: b.u8(at::RETRY_COUNT) >> 3,
            retry_count: b.u8(at::RETRY_COUNT) & 7,
            pkey: PKey(b.u16(at::PKEY)),
            path_mtu: b.u8(at::PATH_MTU) >> 4,
            rdc_exists: b.u8(at::PATH_MTU) & 8 != 0,
            rnr_retry: b.u8(at::PATH_MTU) & 7,
            max_cm_retries: b.u8(at::MAX_CM_RETRIES) >> 4,
            srq: b.u8(at::MAX_CM_RETRIES) & 8 != 0,
            extended_transport: b.u8(at::MAX_CM_RETRIES) & 7,
            primary: ReqPath::parse(b, at::PRIMARY),
            alternate: ReqPath::parse(b, at::ALTERNATE),
            private_data: b.data(at::PRIVATE_DATA),
        }
    }

    pub(super) fn write(&self, w: &mut Writer<'_>) {
        w.u32(at::LOCAL_ID, self.local_id);
        w.u24(at::VENDOR_ID, self.unused.vendor_id);
        w.u64(at::SERVICE_ID, self.service_id.0);
        w.u64(at::LOCAL_CA_GUID, self.local_ca_guid);
        w.u32(at::LOCAL_QKEY, self.unused.local_qkey.0);
        w.u24(at::LOCAL_QPN, self.local_qpn.get());
        w.u8(at::RESPONDER_RESOURCES, self.responder_resources);
        w.u24(at::LOCAL_EECN, self.unused.local_eecn);
        w.u8(at::INITIATOR_DEPTH, self.initiator_depth);
        w.u24(at::REMOTE_EECN, self.remote_eecn);
        let transport = (self.transport & 3) << 1 | u8::from(self.flow_control);
        w.u8(at::TRANSPORT, self.remote_response_timeout << 3 | transport);
        w.u24(at::STARTING_PSN, self.starting_psn.get());
        w.u8(at::RETRY_COUNT, self.local_response_timeout << 3 | self.retry_count & 7);
        w.u16(at::PKEY, self.pkey.0);
        let rnr_retry = u8::from(self.rdc_exists) << 3 | self.rnr_retry & 7;
        w.u8(at::PATH_MTU, self.path_mtu << 4 | rnr_retry);
        let extended_transport = u8::from(self.srq) << 3 | self.extended_transport & 7;
        w.u8(at::MAX_CM_RETRIES, self.max_cm_retries << 4 | extended_transport);
        self.primary.write(w, at::PRIMARY);
        self.alternate.write(w, at::ALTERNATE);
        w.put(at::PRIVATE_DATA, &self.private_data.0);
    }
}

impl ReqPath {
    fn parse(b: &Fields<'_>, start: usize) -> Self {
        let flow_label = b.u32(start + at::FLOW_LABEL);
        Self {
            local_lid: b.u16(start + at::LOCAL_LID),
            remote_lid: b.u16(start + at::REMOTE_LID),
            local_gid: Gid(b.array(start + at::LOCAL_GID)),
            remote_gid: Gid(b.array(start + at::REMOTE_GID)),
            flow_label: flow_label >> 12,
            rate: flow_label as u8 & 0x3F,
            traffic_class: b.u8(start + at::TRAFFIC_CLASS),
            hop_limit: b.u8(start + at::HOP_LIMIT),
            service_level: b.u8(start + at::SERVICE_LEVEL) >> 4,
            subnet_local: b.u8(start + at::SERVICE_LEVEL) & 0x08 != 0,
            ack_timeout: b.u8(start + at::ACK_TIMEOUT) >> 3,
        }
    }

    fn write(&self, w: &mut Writer<'_>, start: usize) {
        w.u16(start + at::LOCAL_LID, self.local_lid);
        w.u16(start + at::REMOTE_LID, self.remote_lid);
        w.put(start + at::LOCAL_GID, &self.local_gid.0);
        w.put(start + at::REMOTE_GID, &self.remote_gid.0);
        w.u32(start + at::FLOW_LABEL, self.flow_label << 12 | u32::from(self.rate & 0x3F));
        w.u8(start + at::TRAFFIC_CLASS, self.traffic_class);
        w.u8(start + at::HOP_LIMIT, self.hop_limit);
        let level = self.service_level << 4 | u8::from(self.subnet_local) << 3;
        w.u8(start + at::SERVICE_LEVEL, level);
        w.u8(start + at::ACK_TIMEOUT, self.ack_timeout << 3);
    }
}
