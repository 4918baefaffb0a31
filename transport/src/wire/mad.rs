//! Management datagrams to QP1 (13.4).

use super::fields::{At, Field, encoding, layout};

/// Payload of packets to QP1.
pub const MAD_LEN: usize = 256;

layout! {
    /// Common header.
    #[derive(Default)]
    MadHeader {
        /// Frame version, 1.
        base_version: u8 = At(0);
        /// Class, such as [`MadHeader::CM_CLASS`].
        class: u8 = At(1);
        /// Class version.
        class_version: u8 = At(2);
        /// Method: request, with a response bit.
        method: u8 = At(3);
        /// Status of a response.
        status: u16 = At(4);
        /// Class-specific field.
        class_specific: u16 = At(6);
        /// Transaction identifier.
        transaction: u64 = At(8);
        /// Kind of message.
        attribute: u16 = At(16);
        /// Attribute modifier.
        modifier: u32 = At(20);
    }
}

encoding! {
    MadHeader 24;
}

impl MadHeader {
    /// Connection management class.
    pub const CM_CLASS: u8 = 0x07;
    /// Class version.
    pub const CM_VERSION: u8 = 2;
    /// Method of CM messages.
    pub const SEND: u8 = 0x03;
}
