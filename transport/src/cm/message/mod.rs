//! CM messages (12.6): the 232 bytes after a MAD header.

mod about;
mod apr;
mod dreq;
mod fields;
mod lap;
mod mra;
mod private_data;
mod rej;
mod rep;
mod req;
mod rtu_drep;
mod sidr;
mod unused;

use alloc::boxed::Box;

use thiserror::Error;

pub use about::About;
pub use apr::Apr;
pub use dreq::Dreq;
use fields::{Fields, Writer};
pub use lap::Lap;
pub use mra::Mra;
pub use private_data::{PrivateData, without_padding};
pub use rej::{Rej, RejectReason};
pub use rep::Rep;
pub use req::{Req, ReqPath};
pub use rtu_drep::{Drep, Rtu};
pub use sidr::{SidrRep, SidrReq};
pub use unused::Unused;

use crate::wire::{MAD_DATA_LEN, MAD_LEN, MadHeader};

/// A message with its frame.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct CmMad {
    /// Transaction ID, not used for matching.
    pub transaction: u64,
    /// Options of extended establishment, ignored.
    pub modifier: u32,
    /// Message.
    pub message: Message,
}

/// A CM message.
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
    Lap(Lap),
    Apr(Box<Apr>),
}

impl Message {
    /// The specification's name.
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
            Self::Lap(_) => "LAP",
            Self::Apr(_) => "APR",
        }
    }
}

/// Malformed MAD.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Error)]
#[non_exhaustive]
pub enum CmParseError {
    /// Not 256 bytes.
    #[error("the MAD is not 256 bytes long")]
    Length,
    /// Other class, method or version.
    #[error("the MAD is not of the CM class")]
    Class,
    /// Unknown message.
    #[error("unknown CM attribute {0:#06x}")]
    Attribute(u16),
}

impl CmMad {
    /// Message without options.
    #[must_use]
    pub const fn new(transaction: u64, message: Message) -> Self {
        Self { transaction, modifier: 0, message }
    }

    /// Parses a MAD; reserved fields are ignored.
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
        let message = match header.attribute {
            Req::ATTRIBUTE => Message::Req(Box::new(Req::parse(&b))),
            Mra::ATTRIBUTE => Message::Mra(Mra::parse(&b)),
            Rej::ATTRIBUTE => Message::Rej(Box::new(Rej::parse(&b))),
            Rep::ATTRIBUTE => Message::Rep(Box::new(Rep::parse(&b))),
            Rtu::ATTRIBUTE => Message::Rtu(Rtu::parse(&b)),
            Dreq::ATTRIBUTE => Message::Dreq(Dreq::parse(&b)),
            Drep::ATTRIBUTE => Message::Drep(Drep::parse(&b)),
            SidrReq::ATTRIBUTE => Message::SidrReq(SidrReq::parse(&b)),
            SidrRep::ATTRIBUTE => Message::SidrRep(SidrRep::parse(&b)),
            Lap::ATTRIBUTE => Message::Lap(Lap::parse(&b)),
            Apr::ATTRIBUTE => Message::Apr(Box::new(Apr::parse(&b))),
            attribute => return Err(CmParseError::Attribute(attribute)),
        };
        Ok(Self { transaction: header.transaction, modifier: header.modifier, message })
    }

    /// Encodes a MAD.
    #[must_use]
    pub fn encode(&self) -> [u8; MAD_LEN] {
        let header = MadHeader {
            base_version: 1,
            class: MadHeader::CM_CLASS,
            class_version: MadHeader::CM_VERSION,
            method: MadHeader::SEND,
            transaction: self.transaction,
            attribute: self.message.attribute(),
            modifier: self.modifier,
            ..MadHeader::default()
        };
        let mut data = [0; MAD_DATA_LEN];
        self.message.write(&mut Writer(&mut data));
        let mut mad = [0; MAD_LEN];
        mad[..MadHeader::LEN].copy_from_slice(&header.encode());
        mad[MadHeader::LEN..].copy_from_slice(&data);
        mad
    }
}

impl Message {
    const fn attribute(&self) -> u16 {
        match self {
            Self::Req(_) => Req::ATTRIBUTE,
            Self::Mra(_) => Mra::ATTRIBUTE,
            Self::Rej(_) => Rej::ATTRIBUTE,
            Self::Rep(_) => Rep::ATTRIBUTE,
            Self::Rtu(_) => Rtu::ATTRIBUTE,
            Self::Dreq(_) => Dreq::ATTRIBUTE,
            Self::Drep(_) => Drep::ATTRIBUTE,
            Self::SidrReq(_) => SidrReq::ATTRIBUTE,
            Self::SidrRep(_) => SidrRep::ATTRIBUTE,
            Self::Lap(_) => Lap::ATTRIBUTE,
            Self::Apr(_) => Apr::ATTRIBUTE,
        }
    }

    fn write(&self, w: &mut Writer<'_>) {
        match self {
            Self::Req(req) => req.write(w),
            Self::Mra(mra) => mra.write(w),
            Self::Rej(rej) => rej.write(w),
            Self::Rep(rep) => rep.write(w),
            Self::Rtu(rtu) => rtu.write(w),
            Self::Dreq(dreq) => dreq.write(w),
            Self::Drep(drep) => drep.write(w),
            Self::SidrReq(req) => req.write(w),
            Self::SidrRep(rep) => rep.write(w),
            Self::Lap(lap) => lap.write(w),
            Self::Apr(apr) => apr.write(w),
        }
    }
}
