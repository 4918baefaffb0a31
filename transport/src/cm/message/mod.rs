//! CM messages (12.6): the 232 bytes after a MAD header.

mod body;

use alloc::boxed::Box;

pub use body::{
    About, Apr, Drep, Dreq, Lap, Mra, PrivateData, Rej, RejectReason, Rep, Req, ReqPath, Rtu,
    SidrRep, SidrReq, Unused, without_padding,
};

use crate::{
    named::errors,
    wire::{
        MAD_LEN, MadHeader,
        fields::{At, Field},
    },
};

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

macro_rules! messages {
    ($($attribute:literal $message:ident($held:ty) $name:literal;)*) => {
        /// A CM message.
        #[derive(Clone, PartialEq, Eq, Debug)]
        #[allow(missing_docs, reason = "each is named after the message it holds")]
        pub enum Message { $($message($held),)* }

        impl Message {
            /// The specification's name.
            #[must_use]
            pub const fn name(&self) -> &'static str {
                match self { $(Self::$message(_) => $name,)* }
            }

            const fn attribute(&self) -> u16 {
                match self { $(Self::$message(_) => $attribute,)* }
            }

            fn parse(attribute: u16, data: &[u8]) -> Result<Self, CmParseError> {
                match attribute {
                    $($attribute => Ok(Self::$message($message::get(data, At(0)).into())),)*
                    _ => Err(CmParseError::Attribute(attribute)),
                }
            }

            fn write(&self, data: &mut [u8]) {
                match self { $(Self::$message(message) => message.put(data, At(0)),)* }
            }
        }
    };
}

messages! {
    0x10 Req(Box<Req>) "REQ";
    0x11 Mra(Mra) "MRA";
    0x12 Rej(Box<Rej>) "REJ";
    0x13 Rep(Box<Rep>) "REP";
    0x14 Rtu(Rtu) "RTU";
    0x15 Dreq(Dreq) "DREQ";
    0x16 Drep(Drep) "DREP";
    0x17 SidrReq(SidrReq) "SIDR_REQ";
    0x18 SidrRep(SidrRep) "SIDR_REP";
    0x19 Lap(Lap) "LAP";
    0x1A Apr(Box<Apr>) "APR";
}

errors! {
    /// Malformed MAD.
    #[non_exhaustive]
    CmParseError {
        Length "the MAD is not 256 bytes long";
        /// Other class, method or version.
        Class "the MAD is not of the CM class";
        Attribute(u16) "unknown CM attribute {0:#06x}";
    }
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
        let message = Message::parse(header.attribute, data)?;
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
        let mut mad = [0; MAD_LEN];
        mad[..MadHeader::LEN].copy_from_slice(&header.encode());
        self.message.write(&mut mad[MadHeader::LEN..]);
        mad
    }
}
