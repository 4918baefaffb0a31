use super::{
    fields::{At, Bits, Field, Split, layout},
    private_data::PrivateData,
    unused::Unused,
};
use crate::{
    addr::{Gid, PKey},
    cm::service::ServiceId,
    ids::Qpn,
    psn::Psn,
};

layout! {
    /// Request for communication (12.6.5).
    #[derive(Default)]
    Req {
        /// Requester's ID.
        local_id: u32 = At(0);
        /// Service.
        service_id: ServiceId = At(8);
        /// GUID of the requester's adapter.
        local_ca_guid: u64 = At(16);
        /// Requester's queue pair.
        local_qpn: Qpn = Bits(32, 31, 8);
        /// READs and atomics served at once.
        responder_resources: u8 = At(35);
        /// Fields without meaning on RoCE.
        unused: Unused = (At(28), Bits(36, 31, 8), Split([5, 6, 7]));
        /// READs and atomics outstanding.
        initiator_depth: u8 = At(39);
        /// Remote EE context.
        remote_eecn: u32 = Bits(40, 31, 8);
        /// Response deadline of the peer, code.
        remote_response_timeout: u8 = Bits(40, 7, 3);
        /// Transport service: 0 RC, 1 UC, 3 `extended_transport`.
        transport: u8 = Bits(40, 2, 1);
        /// End-to-end flow control.
        flow_control: bool = Bits(40, 0, 0);
        /// First PSN that the requester *expects*, as in Linux.
        starting_psn: Psn = Bits(44, 31, 8);
        /// Response time of the requester, code.
        local_response_timeout: u8 = Bits(44, 7, 3);
        /// Retry counter for the peer.
        retry_count: u8 = Bits(44, 2, 0);
        /// P_Key.
        pkey: PKey = At(48);
        /// Path MTU code, 1 to 5.
        path_mtu: u8 = Bits(48, 15, 12);
        /// RDC exists.
        rdc_exists: bool = Bits(48, 11, 11);
        /// RNR retry counter for the peer.
        rnr_retry: u8 = Bits(48, 10, 8);
        /// Requester's CM retries.
        max_cm_retries: u8 = Bits(48, 7, 4);
        /// Shared receive queue.
        srq: bool = Bits(48, 3, 3);
        /// 1 for XRC if `transport` is 3.
        extended_transport: u8 = Bits(48, 2, 0);
        /// Primary path.
        primary: ReqPath = At(52);
        /// Alternate path; none if `local_lid` is 0.
        alternate: ReqPath = At(96);
        /// Private data.
        private_data: PrivateData<{ Req::PRIVATE_DATA }> = At(140);
    }
}

impl Req {
    /// In bytes.
    pub const PRIVATE_DATA: usize = 92;
}

layout! {
    /// A path; LIDs mean nothing on RoCE.
    #[derive(Default)]
    #[allow(missing_docs, reason = "the specification's names")]
    ReqPath {
        local_lid: u16 = At(0);
        remote_lid: u16 = At(2);
        local_gid: Gid = At(4);
        remote_gid: Gid = At(20);
        /// 20 bits.
        flow_label: u32 = Bits(36, 31, 12);
        /// Six bits; 0: the port's rate.
        rate: u8 = Bits(36, 5, 0);
        traffic_class: u8 = At(40);
        hop_limit: u8 = At(41);
        /// Four bits.
        service_level: u8 = Bits(40, 15, 12);
        subnet_local: bool = Bits(40, 11, 11);
        /// Code; see [`ack_timeout`](crate::time::ack_timeout).
        ack_timeout: u8 = Bits(40, 7, 3);
    }
}
