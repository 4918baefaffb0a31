//! The messages of connection management as values (12.6): parsed from and written to the 232 bytes
//! after a MAD's header.

use alloc::boxed::Box;
use core::fmt;

use thiserror::Error;

use super::{
    layout::{Fields, Writer},
    service::ServiceId,
};
use crate::{
    addr::{Gid, PKey, Qpn},
    psn::Psn,
    wire::{MAD_DATA_LEN, MAD_LEN, MadHeader},
};

/// A message with the parts of its frame that mean something.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct CmMad {
    /// Names the exchange: an answer has that of the message it answers. Nobody matches by it.
    pub transaction: u64,
    /// Options for extended connection establishment, which need not be answered.
    pub modifier: u32,
    /// The message.
    pub message: Message,
}

/// Any message of connection management that is spoken here.
#[derive(Clone, PartialEq, Eq, Debug)]
#[allow(missing_docs, reason = "each is named after the message it holds")]
pub enum Message {
    Req(Box<Req>),
    Mra(Mra),
    Rej(Box<Rej>),
    Rep(Box<Rep>),
    Rtu(Rtu),
    Dreq(Dreq),
    Drep(Drep),
    SidrReq(SidrReq),
    SidrRep(SidrRep),
}

impl Message {
    /// Its name, as the specification has it.
    #[must_use]
    pub const fn name(&self) -> &'static str {
        match self {
            Self::Req(_) => "REQ",
            Self::Mra(_) => "MRA",
            Self::Rej(_) => "REJ",
            Self::Rep(_) => "REP",
            Self::Rtu(_) => "RTU",
            Self::Dreq(_) => "DREQ",
            Self::Drep(_) => "DREP",
            Self::SidrReq(_) => "SIDR_REQ",
            Self::SidrRep(_) => "SIDR_REP",
        }
    }
}

/// Private data of a fixed length. What a program gave comes first, zeros follow: the length itself
/// is not sent.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct PrivateData<const N: usize>(pub [u8; N]);

impl<const N: usize> PrivateData<N> {
    /// These bytes; `None` when they are too many.
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

impl<const N: usize> fmt::Debug for PrivateData<N> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let used = self.0.iter().rposition(|&byte| byte != 0).map_or(0, |last| last + 1);
        write!(f, "{:02x?}", &self.0[..used])
    }
}

/// A way, as a request describes it. LIDs mean nothing here.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
#[allow(missing_docs, reason = "the specification's names")]
pub struct ReqPath {
    pub local_lid: u16,
    pub remote_lid: u16,
    pub local_gid: Gid,
    pub remote_gid: Gid,
    /// 20 bits.
    pub flow_label: u32,
    /// Six bits; 0 for the port's own rate.
    pub rate: u8,
    pub traffic_class: u8,
    pub hop_limit: u8,
    /// Four bits.
    pub service_level: u8,
    pub subnet_local: bool,
    /// Five bits; see [`ack_timeout`](crate::time::ack_timeout).
    pub ack_timeout: u8,
}

/// Request for communication (12.6.5).
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
pub struct Req {
    /// The requester's name for the connection.
    pub local_id: u32,
    /// Extended connection establishment: 24 bits of whose options the frame's modifier holds.
    pub vendor_id: u32,
    /// What it wants to connect to.
    pub service_id: ServiceId,
    /// The requester's adapter.
    pub local_ca_guid: u64,
    /// Its queue key; unused.
    pub local_qkey: u32,
    /// Its queue pair.
    pub local_qpn: Qpn,
    /// READs and atomics that it can answer at once.
    pub responder_resources: u8,
    /// 24 bits of the reliable datagram service, which nobody speaks.
    pub local_eecn: u32,
    /// READs and atomics that it will have outstanding at once.
    pub initiator_depth: u8,
    /// As above.
    pub remote_eecn: u32,
    /// Within what time it wants an answer; a five-bit code.
    pub remote_response_timeout: u8,
    /// 0: RC, 1: UC, 3: see `extended_transport`.
    pub transport: u8,
    /// Whether it heeds credits.
    pub flow_control: bool,
    /// The first PSN that its queue pair *expects*, as the kernel has it; see rdma_cm.
    pub starting_psn: Psn,
    /// Within what time it answers; a five-bit code.
    pub local_response_timeout: u8,
    /// The retry counter that the peer is to use.
    pub retry_count: u8,
    /// The partition.
    pub pkey: PKey,
    /// The path MTU's code, 1..=5.
    pub path_mtu: u8,
    /// As above.
    pub rdc_exists: bool,
    /// The RNR retry counter that the peer is to use.
    pub rnr_retry: u8,
    /// How often it sends a message without getting an answer.
    pub max_cm_retries: u8,
    /// Whether its queue pair receives from a shared receive queue.
    pub srq: bool,
    /// With `transport` 3: 1 for XRC.
    pub extended_transport: u8,
    /// The way.
    pub primary: ReqPath,
    /// Another one; none if its `local_lid` is 0.
    pub alternate: ReqPath,
    /// Whatever the service wants to know.
    pub private_data: PrivateData<92>,
}

/// Which message another one is about.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
#[repr(u8)]
pub enum About {
    /// A REQ.
    Req = 0,
    /// A REP.
    Rep = 1,
    /// Another one, or none.
    Other = 2,
    /// Reserved.
    Reserved = 3,
}

impl About {
    const fn from_bits(bits: u8) -> Self {
        match bits & 3 {
            0 => Self::Req,
            1 => Self::Rep,
            2 => Self::Other,
            _ => Self::Reserved,
        }
    }
}

/// Message receipt acknowledgement: an answer will take longer (12.6.6).
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct Mra {
    /// The sender's name for the connection.
    pub local_id: u32,
    /// The receiver's.
    pub remote_id: u32,
    /// What it has received.
    pub about: About,
    /// How much longer; a five-bit code.
    pub service_timeout: u8,
    /// For the program.
    pub private_data: PrivateData<222>,
}

/// Reject (12.6.7).
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct Rej {
    /// The sender's name for the connection; 0 when it has none.
    pub local_id: u32,
    /// The receiver's.
    pub remote_id: u32,
    /// What is rejected.
    pub about: About,
    /// How many bytes of `info` mean something; seven bits.
    pub info_length: u8,
    /// Why.
    pub reason: RejectReason,
    /// More about that.
    pub info: PrivateData<72>,
    /// For the program.
    pub private_data: PrivateData<148>,
}

/// Why a request, or its answer, is rejected (12.6.7.2).
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct RejectReason(pub u16);

impl RejectReason {
    /// No answer came in time.
    pub const TIMEOUT: Self = Self(4);
    /// No connection has this name.
    pub const INVALID_COMM_ID: Self = Self(6);
    /// Nobody listens.
    pub const INVALID_SERVICE_ID: Self = Self(8);
    /// Another transport service than the listener's.
    pub const INVALID_TRANSPORT: Self = Self(9);
    /// The queue pair is connected already.
    pub const STALE_CONNECTION: Self = Self(10);
    /// The way names an address that is not here.
    pub const INVALID_GID: Self = Self(12);
    /// The path MTU is more than the port carries.
    pub const INVALID_MTU: Self = Self(26);
    /// The program does not want to.
    pub const CONSUMER: Self = Self(28);
    /// The vendor's options that come along are not supported.
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

impl fmt::Debug for RejectReason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} ({self})", self.0)
    }
}

/// Reply to request for communication (12.6.8).
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
pub struct Rep {
    /// The replier's name for the connection.
    pub local_id: u32,
    /// The requester's.
    pub remote_id: u32,
    /// The replier's queue key; unused.
    pub local_qkey: u32,
    /// Its queue pair.
    pub local_qpn: Qpn,
    /// See [`Req`]; 24 bits, in three pieces on the wire.
    pub vendor_id: u32,
    /// Unused, 24 bits.
    pub local_eecn: u32,
    /// The first PSN that its queue pair expects.
    pub starting_psn: Psn,
    /// READs and atomics that it can answer at once.
    pub responder_resources: u8,
    /// READs and atomics that it will have outstanding at once.
    pub initiator_depth: u8,
    /// How long it takes to acknowledge; a five-bit code.
    pub target_ack_delay: u8,
    /// Two bits about the alternate path.
    pub failover: u8,
    /// Whether it heeds credits.
    pub flow_control: bool,
    /// The RNR retry counter that the requester is to use.
    pub rnr_retry: u8,
    /// Whether its queue pair receives from a shared receive queue.
    pub srq: bool,
    /// The replier's adapter.
    pub local_ca_guid: u64,
    /// For the program.
    pub private_data: PrivateData<196>,
}

/// Ready to use (12.6.9).
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
#[allow(missing_docs, reason = "as in the other messages")]
pub struct Rtu {
    pub local_id: u32,
    pub remote_id: u32,
    pub private_data: PrivateData<224>,
}

/// Request for communication release (12.6.10).
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
#[allow(missing_docs, reason = "as in the other messages")]
pub struct Dreq {
    pub local_id: u32,
    pub remote_id: u32,
    /// The receiver's queue pair.
    pub remote_qpn: Qpn,
    pub private_data: PrivateData<220>,
}

/// Reply to request for communication release (12.6.11).
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
#[allow(missing_docs, reason = "as in the other messages")]
pub struct Drep {
    pub local_id: u32,
    pub remote_id: u32,
    pub private_data: PrivateData<224>,
}

/// Service ID resolution request: who receives datagrams for a service (12.11.1)?
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
#[allow(missing_docs, reason = "as in the other messages")]
pub struct SidrReq {
    /// Names the request, among those of its sender.
    pub request_id: u32,
    pub pkey: PKey,
    pub service_id: ServiceId,
    pub private_data: PrivateData<216>,
}

/// Service ID resolution response (12.11.2).
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
#[allow(missing_docs, reason = "as in the other messages")]
pub struct SidrRep {
    pub request_id: u32,
    /// 0 when there is such a service; see [`SidrRep::NO_SERVICE`] and [`SidrRep::REJECTED`].
    pub status: u8,
    pub info_length: u8,
    /// See [`Req`]; 24 bits, in two pieces on the wire.
    pub vendor_id: u32,
    /// Who receives.
    pub qpn: Qpn,
    pub service_id: ServiceId,
    /// The key that datagrams to it need.
    pub qkey: u32,
    pub info: PrivateData<72>,
    pub private_data: PrivateData<136>,
}

impl SidrRep {
    /// Status: nobody listens.
    pub const NO_SERVICE: u8 = 1;
    /// Status: the program does not want to.
    pub const REJECTED: u8 = 2;
}

/// Why bytes are no message that is spoken here.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Error)]
pub enum CmParseError {
    /// Not the 256 bytes of a MAD.
    #[error("not 256 bytes long")]
    Length,
    /// Another class or method, or a version that is not known.
    #[error("not a message of connection management")]
    Class,
    /// A message that is not spoken here; LAP and APR, about alternate paths, among them.
    #[error("message {0:#06x} is not spoken here")]
    Attribute(u16),
}

impl CmMad {
    /// The message of a MAD.
    ///
    /// # Errors
    /// A [`CmParseError`] for everything that is none. Reserved fields are not looked at.
    pub fn parse(bytes: &[u8]) -> Result<Self, CmParseError> {
        let bytes: &[u8; MAD_LEN] = bytes.try_into().map_err(|_| CmParseError::Length)?;
        let (header, data) = bytes.split_first_chunk().ok_or(CmParseError::Length)?;
        let header = MadHeader::parse(header);
        let class = (header.base_version, header.class, header.class_version, header.method);
        if class != (1, MadHeader::CM_CLASS, MadHeader::CM_VERSION, MadHeader::SEND) {
            return Err(CmParseError::Class);
        }
        let data: &[u8; MAD_DATA_LEN] = data.try_into().map_err(|_| CmParseError::Length)?;
        let b = Fields(data);
        let (local_id, remote_id) = (b.u32(0), b.u32(4));
        let message = match header.attribute {
            0x10 => Message::Req(Box::new(b.req())),
            0x11 => Message::Mra(Mra {
                local_id,
                remote_id,
                about: About::from_bits(b.u8(8) >> 6),
                service_timeout: b.u8(9) >> 3,
                private_data: b.data(10),
            }),
            0x12 => Message::Rej(Box::new(Rej {
                local_id,
                remote_id,
                about: About::from_bits(b.u8(8) >> 6),
                info_length: b.u8(9) >> 1,
                reason: RejectReason(b.u16(10)),
                info: b.data(12),
                private_data: b.data(84),
            })),
            0x13 => Message::Rep(Box::new(b.rep())),
            0x14 => Message::Rtu(Rtu { local_id, remote_id, private_data: b.data(8) }),
            0x15 => Message::Dreq(Dreq {
                local_id,
                remote_id,
                remote_qpn: Qpn::new(b.u24(8)),
                private_data: b.data(12),
            }),
            0x16 => Message::Drep(Drep { local_id, remote_id, private_data: b.data(8) }),
            0x17 => Message::SidrReq(SidrReq {
                request_id: local_id,
                pkey: PKey(b.u16(4)),
                service_id: ServiceId(b.u64(8)),
                private_data: b.data(16),
            }),
            0x18 => Message::SidrRep(SidrRep {
                request_id: local_id,
                status: b.u8(4),
                info_length: b.u8(5),
                vendor_id: u32::from(b.u16(6)) << 8 | u32::from(b.u8(11)),
                qpn: Qpn::new(b.u24(8)),
                service_id: ServiceId(b.u64(12)),
                qkey: b.u32(20),
                info: b.data(24),
                private_data: b.data(96),
            }),
            attribute => return Err(CmParseError::Attribute(attribute)),
        };
        Ok(Self { transaction: header.transaction, modifier: header.modifier, message })
    }

    /// The MAD of a message.
    #[must_use]
    pub fn encode(&self) -> [u8; MAD_LEN] {
        let mut data = [0; MAD_DATA_LEN];
        let mut w = Writer(&mut data);
        let mut ids = |local_id, remote_id| {
            w.u32(0, local_id);
            w.u32(4, remote_id);
        };
        let attribute = match &self.message {
            Message::Req(req) => {
                w.req(req);
                0x10
            }
            Message::Mra(mra) => {
                ids(mra.local_id, mra.remote_id);
                w.put(8, &[(mra.about as u8) << 6, mra.service_timeout << 3]);
                w.put(10, &mra.private_data.0);
                0x11
            }
            Message::Rej(rej) => {
                ids(rej.local_id, rej.remote_id);
                w.put(8, &[(rej.about as u8) << 6, rej.info_length << 1]);
                w.put(10, &rej.reason.0.to_be_bytes());
                w.put(12, &rej.info.0);
                w.put(84, &rej.private_data.0);
                0x12
            }
            Message::Rep(rep) => {
                w.rep(rep);
                0x13
            }
            Message::Rtu(rtu) => {
                ids(rtu.local_id, rtu.remote_id);
                w.put(8, &rtu.private_data.0);
                0x14
            }
            Message::Dreq(dreq) => {
                ids(dreq.local_id, dreq.remote_id);
                w.u24(8, dreq.remote_qpn.get());
                w.put(12, &dreq.private_data.0);
                0x15
            }
            Message::Drep(drep) => {
                ids(drep.local_id, drep.remote_id);
                w.put(8, &drep.private_data.0);
                0x16
            }
            Message::SidrReq(req) => {
                w.u32(0, req.request_id);
                w.put(4, &req.pkey.0.to_be_bytes());
                w.u64(8, req.service_id.0);
                w.put(16, &req.private_data.0);
                0x17
            }
            Message::SidrRep(rep) => {
                w.u32(0, rep.request_id);
                w.put(
                    4,
                    &[
                        rep.status,
                        rep.info_length,
                        (rep.vendor_id >> 16) as u8,
                        (rep.vendor_id >> 8) as u8,
                    ],
                );
                w.u24(8, rep.qpn.get());
                w.put(11, &[rep.vendor_id as u8]);
                w.u64(12, rep.service_id.0);
                w.u32(20, rep.qkey);
                w.put(24, &rep.info.0);
                w.put(96, &rep.private_data.0);
                0x18
            }
        };
        let header = MadHeader {
            base_version: 1,
            class: MadHeader::CM_CLASS,
            class_version: MadHeader::CM_VERSION,
            method: MadHeader::SEND,
            transaction: self.transaction,
            attribute,
            modifier: self.modifier,
            ..MadHeader::default()
        };
        let mut mad = [0; MAD_LEN];
        mad[..MadHeader::LEN].copy_from_slice(&header.encode());
        mad[MadHeader::LEN..].copy_from_slice(&data);
        mad
    }
}
