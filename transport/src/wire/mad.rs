//! Management datagrams to QP1 (13.4).

/// Payload of packets to QP1.
pub const MAD_LEN: usize = 256;

/// Bytes after the header.
pub const MAD_DATA_LEN: usize = MAD_LEN - MadHeader::LEN;

/// Common header.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
pub struct MadHeader {
    /// Frame version, 1.
    pub base_version: u8,
    /// Class, such as [`MadHeader::CM_CLASS`].
    pub class: u8,
    /// Class version.
    pub class_version: u8,
    /// Method: request, with a response bit.
    pub method: u8,
    /// Status of a response.
    pub status: u16,
    /// Class-specific field.
    pub class_specific: u16,
    /// Transaction identifier.
    pub transaction: u64,
    /// Kind of message.
    pub attribute: u16,
    /// Attribute modifier.
    pub modifier: u32,
}

impl MadHeader {
    /// Wire length.
    pub const LEN: usize = 24;
    /// Connection management class.
    pub const CM_CLASS: u8 = 0x07;
    /// Class version.
    pub const CM_VERSION: u8 = 2;
    /// Method of CM messages.
    pub const SEND: u8 = 0x03;

    /// Parses the header.
    #[must_use]
    pub fn parse(b: &[u8; Self::LEN]) -> Self {
        let u16_at = |i: usize| u16::from_be_bytes([b[i], b[i + 1]]);
        Self {
            base_version: b[0],
            class: b[1],
            class_version: b[2],
            method: b[3],
            status: u16_at(4),
            class_specific: u16_at(6),
            transaction: u64::from_be_bytes(core::array::from_fn(|i| b[8 + i])),
            attribute: u16_at(16),
            modifier: u32::from_be_bytes(core::array::from_fn(|i| b[20 + i])),
        }
    }

    /// Encodes the header.
    #[must_use]
    pub fn encode(&self) -> [u8; Self::LEN] {
        let mut b = [0; Self::LEN];
        b[..4].copy_from_slice(&[self.base_version, self.class, self.class_version, self.method]);
        b[4..6].copy_from_slice(&self.status.to_be_bytes());
        b[6..8].copy_from_slice(&self.class_specific.to_be_bytes());
        b[8..16].copy_from_slice(&self.transaction.to_be_bytes());
        b[16..18].copy_from_slice(&self.attribute.to_be_bytes());
        b[20..].copy_from_slice(&self.modifier.to_be_bytes());
        b
    }
}
