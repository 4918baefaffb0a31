//! Layouts of CM messages, and their parts.

use core::fmt;

use crate::{
    addr::{Gid, PKey, QKey},
    cm::service::ServiceId,
    ids::Qpn,
    psn::Psn,
    wire::fields::{At, Bits, Field, Split, in_bits, layout, newtype},
};

newtype!(RejectReason ServiceId);

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

/// A message between communication IDs, with private data at its end.
macro_rules! message {
    ($(#[$meta:meta])* $name:ident { $($fields:tt)* } $length:literal at $at:literal) => {
        layout! {
            $(#[$meta])*
            $name {
                /// Sender's ID, or 0 in a REJ.
                local_id: u32 = At(0);
                /// Receiver's ID.
                remote_id: u32 = At(4);
                $($fields)*
                /// Private data.
                private_data: PrivateData<{ $name::PRIVATE_DATA }> = At($at);
            }
        }

        impl $name {
            /// In bytes.
            pub const PRIVATE_DATA: usize = $length;
        }
    };
}

message! {
    /// Message receipt acknowledgement: the response takes longer (12.6.6).
    Mra {
        /// Received message.
        about: About = Bits(8, 31, 30);
        /// Time until the response, code.
        service_timeout: u8 = Bits(8, 23, 19);
    } 222 at 10
}

message! {
    /// Reject (12.6.7).
    Rej {
        /// Rejected message.
        about: About = Bits(8, 31, 30);
        /// Valid bytes of `info`.
        info_length: u8 = Bits(8, 23, 17);
        /// Reason.
        reason: RejectReason = At(10);
        /// Additional reject information (ARI).
        info: PrivateData<{ Rej::INFO }> = At(12);
    } 148 at 84
}

message! {
    /// Reply to request for communication (12.6.8).
    #[derive(Default)]
    Rep {
        /// Replier's queue pair.
        local_qpn: Qpn = Bits(12, 31, 8);
        /// Fields without meaning on RoCE.
        unused: Unused = (At(8), Bits(16, 31, 8), Split([15, 19, 23]));
        /// First PSN that the replier expects.
        starting_psn: Psn = Bits(20, 31, 8);
        /// READs and atomics served at once.
        responder_resources: u8 = At(24);
        /// READs and atomics outstanding.
        initiator_depth: u8 = At(25);
        /// Replier's ACK delay, code.
        target_ack_delay: u8 = Bits(24, 15, 11);
        /// Alternate path: 0, [`NO_FAILOVER`](Self::NO_FAILOVER), or 2.
        failover: u8 = Bits(24, 10, 9);
        /// End-to-end flow control.
        flow_control: bool = Bits(24, 8, 8);
        /// RNR retry counter for the requester.
        rnr_retry: u8 = Bits(24, 7, 5);
        /// Shared receive queue.
        srq: bool = Bits(24, 4, 4);
        /// GUID of the replier's adapter.
        local_ca_guid: u64 = At(28);
    } 196 at 36
}

message! {
    /// Ready to use (12.6.9).
    #[derive(Default)]
    Rtu {} 224 at 8
}

message! {
    /// Request for communication release (12.6.10).
    #[derive(Default)]
    Dreq {
        /// Receiver's queue pair.
        remote_qpn: Qpn = Bits(8, 31, 8);
    } 220 at 12
}

message! {
    /// Reply to request for communication release (12.6.11).
    #[derive(Default)]
    Drep {} 224 at 8
}

layout! {
    /// Load alternate path (12.8.1), without the path.
    #[derive(Default)]
    Lap {
        /// Sender's ID.
        local_id: u32 = At(0);
        /// Receiver's ID.
        remote_id: u32 = At(4);
        /// Receiver's queue pair.
        remote_qpn: Qpn = Bits(12, 31, 8);
    }
}

message! {
    /// Alternate path response (12.8.2).
    #[derive(Default)]
    Apr {
        /// Valid bytes of `info`.
        info_length: u8 = At(8);
        /// 0: accepted; else a reason.
        status: u8 = At(9);
        /// Additional information.
        info: PrivateData<{ Apr::INFO }> = At(12);
    } 148 at 84
}

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

impl Rep {
    /// No alternate paths.
    pub const NO_FAILOVER: u8 = 1;
}

impl Apr {
    /// Bytes of `info`.
    pub const INFO: usize = 72;
    /// Unknown communication IDs.
    pub const INVALID_COMM_ID: u8 = 1;
    /// No alternate paths.
    pub const UNSUPPORTED: u8 = 2;
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

impl Rej {
    /// In bytes.
    pub const INFO: usize = 72;

    /// Rejection without ARI.
    #[must_use]
    pub fn new(local_id: u32, remote_id: u32, about: About, reason: RejectReason) -> Self {
        Self {
            local_id,
            remote_id,
            about,
            info_length: 0,
            reason,
            info: PrivateData::default(),
            private_data: PrivateData::default(),
        }
    }

    /// Adds ARI, at most [`INFO`](Self::INFO) bytes.
    #[must_use]
    pub fn with_info(mut self, info: &[u8]) -> Self {
        let used = info.len().min(Self::INFO);
        self.info_length = used as u8;
        self.info.0[..used].copy_from_slice(&info[..used]);
        self
    }

    /// GUID in a TIMEOUT rejection.
    #[must_use]
    pub fn requester_guid(&self) -> Option<u64> {
        let gives_up = self.reason == RejectReason::TIMEOUT && self.info_length >= 8;
        self.info.0.first_chunk().filter(|_| gives_up).map(|guid| u64::from_be_bytes(*guid))
    }
}

/// Rejection reason (12.6.7.2).
#[derive(Clone, Copy, PartialEq, Eq, Hash, derive_more::Debug)]
#[debug("{_0} ({self})")]
pub struct RejectReason(pub u16);

impl RejectReason {
    /// No response in time.
    pub const TIMEOUT: Self = Self(4);
    /// Unknown communication ID.
    pub const INVALID_COMM_ID: Self = Self(6);
    /// No listener.
    pub const INVALID_SERVICE_ID: Self = Self(8);
    /// Other transport service.
    pub const INVALID_TRANSPORT: Self = Self(9);
    /// Queue pair already connected.
    pub const STALE_CONNECTION: Self = Self(10);
    /// Address not local.
    pub const INVALID_GID: Self = Self(12);
    /// Path MTU above the port's.
    pub const INVALID_MTU: Self = Self(26);
    /// Rejected by the program.
    pub const CONSUMER: Self = Self(28);
    /// Unsupported vendor option.
    pub const VENDOR_OPTION: Self = Self(35);
}

impl fmt::Display for RejectReason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self.0 {
            1 => "no queue pair available",
            3 => "no resources available",
            4 => "timeout",
            5 => "unsupported request",
            6 => "invalid communication ID",
            7 => "invalid communication instance",
            8 => "invalid service ID",
            9 => "invalid transport service type",
            10 => "stale connection",
            12 => "primary remote GID rejected",
            13 => "primary remote LID rejected",
            14 => "invalid primary SL",
            15 => "invalid primary traffic class",
            16 => "invalid primary hop limit",
            17 => "invalid primary packet rate",
            24 => "port and CM redirection",
            25 => "port redirection",
            26 => "invalid path MTU",
            27 => "insufficient responder resources",
            28 => "consumer reject",
            29 => "RNR retry count reject",
            30 => "duplicate local communication ID",
            31 => "invalid class version",
            32 => "invalid primary flow label",
            35 => "vendor option not supported",
            code => return write!(f, "reason {code}"),
        })
    }
}

/// Message that an MRA (12.6.6) or REJ (12.6.7) is about.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
#[repr(u8)]
pub enum About {
    /// REQ.
    Req = 0,
    /// REP.
    Rep = 1,
    /// Another, or none.
    Other = 2,
    /// Reserved.
    Reserved = 3,
}

in_bits! {
    About: bits => match bits {
        0 => Self::Req,
        1 => Self::Rep,
        2 => Self::Other,
        _ => Self::Reserved,
    }, value => value as u32;
}

/// Fields without meaning on RoCE; 0 when sent.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
pub struct Unused {
    /// Sender's Q_Key.
    pub local_qkey: QKey,
    /// EE context, 24 bits.
    pub local_eecn: u32,
    /// Vendor ID, 24 bits.
    pub vendor_id: u32,
}

impl Field<(At, Bits, Split)> for Unused {
    fn get(b: &[u8], (local_qkey, local_eecn, vendor_id): (At, Bits, Split)) -> Self {
        Self {
            local_qkey: Field::get(b, local_qkey),
            local_eecn: Field::get(b, local_eecn),
            vendor_id: Field::get(b, vendor_id),
        }
    }

    fn put(&self, b: &mut [u8], (local_qkey, local_eecn, vendor_id): (At, Bits, Split)) {
        self.local_qkey.put(b, local_qkey);
        self.local_eecn.put(b, local_eecn);
        self.vendor_id.put(b, vendor_id);
    }
}

/// Private data, zero-padded: its length is not sent.
#[derive(Clone, Copy, PartialEq, Eq, Hash, derive_more::Debug)]
#[debug("{:02x?}", without_padding(_0))]
pub struct PrivateData<const N: usize>(pub [u8; N]);

impl<const N: usize> PrivateData<N> {
    /// Pads `bytes`; `None` if too many.
    #[must_use]
    pub fn new(bytes: &[u8]) -> Option<Self> {
        let mut data = [0; N];
        data.get_mut(..bytes.len())?.copy_from_slice(bytes);
        Some(Self(data))
    }
}

impl<const N: usize> Default for PrivateData<N> {
    fn default() -> Self {
        Self([0; N])
    }
}

impl<const N: usize> Field<At> for PrivateData<N> {
    fn get(b: &[u8], at: At) -> Self {
        Self(Field::get(b, at))
    }

    fn put(&self, b: &mut [u8], at: At) {
        self.0.put(b, at);
    }
}

/// Strips trailing zeros, also the program's own.
#[must_use]
pub fn without_padding(private_data: &[u8]) -> &[u8] {
    let used = private_data.iter().rposition(|&byte| byte != 0).map_or(0, |last| last + 1);
    &private_data[..used]
}
