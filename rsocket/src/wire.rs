//! The rsocket protocol: private data, messages in immediate data, and the peer's tables.
//!
//! Source: "rsocket Protocol and Design Guide" (rdma-core, librdmacm/docs/rsocket); where silent,
//! librdmacm 44: kinds of control messages, the number of mappings.

const VERSION: u8 = 1;
const BIG_ENDIAN: u8 = 1;
/// [`ConnData::mappings`] is valid.
const HAS_MAPPINGS: u8 = 1 << 1;

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum ByteOrder {
    Little,
    Big,
}

impl ByteOrder {
    pub(super) const NATIVE: Self =
        if cfg!(target_endian = "big") { Self::Big } else { Self::Little };

    /// A number whose big-endian bytes are `number`'s in this order, and back.
    const fn swap_u64(self, number: u64) -> u64 {
        if matches!(self, Self::Big) { number } else { number.swap_bytes() }
    }

    const fn swap_u32(self, number: u32) -> u32 {
        if matches!(self, Self::Big) { number } else { number.swap_bytes() }
    }
}

#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(super) struct RemoteSge {
    pub(super) address: u64,
    pub(super) key: u32,
    /// Bytes; of a table, entries.
    pub(super) length: u32,
}

impl RemoteSge {
    /// Bytes of a table entry.
    pub(super) const LEN: usize = 16;

    pub(super) fn encode(self, order: ByteOrder) -> [u8; Self::LEN] {
        let mut bytes = [0; Self::LEN];
        bytes[..8].copy_from_slice(&order.swap_u64(self.address).to_be_bytes());
        bytes[8..12].copy_from_slice(&order.swap_u32(self.key).to_be_bytes());
        bytes[12..].copy_from_slice(&order.swap_u32(self.length).to_be_bytes());
        bytes
    }

    pub(super) fn parse(bytes: &[u8; Self::LEN], order: ByteOrder) -> Self {
        let [a0, a1, a2, a3, a4, a5, a6, a7, k0, k1, k2, k3, l0, l1, l2, l3] = *bytes;
        Self {
            address: order.swap_u64(u64::from_be_bytes([a0, a1, a2, a3, a4, a5, a6, a7])),
            key: order.swap_u32(u32::from_be_bytes([k0, k1, k2, k3])),
            length: order.swap_u32(u32::from_be_bytes([l0, l1, l2, l3])),
        }
    }
}

/// Entry of the mapping table, behind the receive buffers: memory for `riowrite`.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(super) struct IoMap {
    /// Programs' offset of the first byte.
    pub(super) offset: u64,
    pub(super) sge: RemoteSge,
}

impl IoMap {
    pub(super) const LEN: usize = 8 + RemoteSge::LEN;

    pub(super) fn encode(self, order: ByteOrder) -> [u8; Self::LEN] {
        let mut bytes = [0; Self::LEN];
        bytes[..8].copy_from_slice(&order.swap_u64(self.offset).to_be_bytes());
        bytes[8..].copy_from_slice(&self.sge.encode(order));
        bytes
    }

    pub(super) fn parse(bytes: &[u8; Self::LEN], order: ByteOrder) -> Self {
        let (mut offset, mut sge) = ([0; 8], [0; RemoteSge::LEN]);
        offset.copy_from_slice(&bytes[..8]);
        sge.copy_from_slice(&bytes[8..]);
        let offset = order.swap_u64(u64::from_be_bytes(offset));
        Self { offset, sge: RemoteSge::parse(&sge, order) }
    }
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct ConnData {
    /// Byte order of entries in the sender's tables.
    pub(super) order: ByteOrder,
    /// Data messages before the next update.
    pub(super) credits: u16,
    pub(super) mappings: u8,
    /// Its table of the receiver's buffers.
    pub(super) table: RemoteSge,
    pub(super) buffer: RemoteSge,
}

impl ConnData {
    pub(super) const LEN: usize = 8 + 2 * RemoteSge::LEN;

    pub(super) fn encode(&self) -> [u8; Self::LEN] {
        let mut bytes = [0; Self::LEN];
        let order = if self.order == ByteOrder::Big { BIG_ENDIAN } else { 0 };
        (bytes[0], bytes[1], bytes[7]) = (VERSION, order | HAS_MAPPINGS, self.mappings);
        bytes[2..4].copy_from_slice(&self.credits.to_be_bytes());
        // in network byte order on any host
        bytes[8..24].copy_from_slice(&self.table.encode(ByteOrder::Big));
        bytes[24..].copy_from_slice(&self.buffer.encode(ByteOrder::Big));
        bytes
    }

    pub(super) fn parse(private_data: &[u8]) -> Option<Self> {
        let bytes: &[u8; Self::LEN] = private_data.first_chunk()?;
        let [version, flags, high, low, _, _, _, mappings, rest @ ..] = bytes;
        let (table, buffer) = rest.split_at(RemoteSge::LEN);
        let conn_data = Self {
            order: if flags & BIG_ENDIAN == 0 { ByteOrder::Little } else { ByteOrder::Big },
            credits: u16::from_be_bytes([*high, *low]),
            mappings: if flags & HAS_MAPPINGS == 0 { 0 } else { *mappings },
            table: RemoteSge::parse(table.first_chunk()?, ByteOrder::Big),
            buffer: RemoteSge::parse(buffer.first_chunk()?, ByteOrder::Big),
        };
        // The peer writes the next entry while one is in use.
        (*version == VERSION && conn_data.table.length >= 2).then_some(conn_data)
    }
}

/// A message in immediate data: kind in the upper three bits, number below.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Message {
    /// Bytes written behind the earlier ones.
    Data(u32),
    /// The last permitted data message, modulo 2^16 from the connection's first; the buffer table
    /// may have a new entry.
    Credits(u16),
    /// Changed entry of the mapping table.
    Mapped(u32),
    /// The sender neither sends nor takes more.
    Disconnect,
    /// The sender sends no more.
    Shutdown,
}

const NUMBER: u32 = (1 << 29) - 1;
const DATA: u32 = 0;
const CREDITS: u32 = 4;
const MAPPED: u32 = 6;
const CONTROL: u32 = 7;
const DISCONNECT: u32 = 0;
const SHUTDOWN: u32 = 2;

impl Message {
    pub(super) fn encode(self) -> [u8; 4] {
        let (kind, number) = match self {
            Self::Data(length) => (DATA, length),
            Self::Credits(last) => (CREDITS, last.into()),
            Self::Mapped(index) => (MAPPED, index),
            Self::Disconnect => (CONTROL, DISCONNECT),
            Self::Shutdown => (CONTROL, SHUTDOWN),
        };
        (kind << 29 | number & NUMBER).to_be_bytes()
    }

    pub(super) fn parse(immediate: [u8; 4]) -> Option<Self> {
        let word = u32::from_be_bytes(immediate);
        let number = word & NUMBER;
        match (word >> 29, number) {
            (DATA, _) => Some(Self::Data(number)),
            (CREDITS, _) => Some(Self::Credits(number as u16)),
            (MAPPED, _) => Some(Self::Mapped(number)),
            (CONTROL, DISCONNECT) => Some(Self::Disconnect),
            (CONTROL, SHUTDOWN) => Some(Self::Shutdown),
            _ => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn bytes(hex: &str) -> Vec<u8> {
        (0..hex.len())
            .step_by(2)
            .map(|at| u8::from_str_radix(&hex[at..at + 2], 16).unwrap())
            .collect()
    }

    /// Traffic of `riostream` of librdmacm 44 over rxe.
    #[test]
    fn a_stock_librdmacm_is_understood_and_would_say_the_same() {
        let wire = bytes(
            "010201800000000100007f8e7400300000000c5a0000000200007f8e796fc00000000d6400080000",
        );
        let conn_data = ConnData {
            order: ByteOrder::Little,
            credits: 384,
            mappings: 1,
            table: RemoteSge { address: 0x7f8e_7400_3000, key: 0xc5a, length: 2 },
            buffer: RemoteSge { address: 0x7f8e_796f_c000, key: 0xd64, length: 0x8_0000 },
        };
        assert_eq!(ConnData::parse(&[&wire[..], &[0; 16]].concat()), Some(conn_data));
        assert_eq!(conn_data.encode()[..], wire);

        let sge = RemoteSge { address: 0x7f2e_7f8e_7000, key: 0xd3c, length: 0x8_0000 };
        let wire = bytes("00708e7f2e7f00003c0d000000000800");
        assert_eq!(sge.encode(ByteOrder::Little)[..], wire);
        assert_eq!(RemoteSge::parse(wire.first_chunk().unwrap(), ByteOrder::Little), sge);

        let sge = RemoteSge { address: 0x55a9_5ebe_a810, key: 0xe81, length: 1000 };
        let mapping = IoMap { offset: 0, sge };
        let wire = bytes("000000000000000010a8be5ea9550000810e0000e8030000");
        assert_eq!(mapping.encode(ByteOrder::Little)[..], wire);
        assert_eq!(IoMap::parse(wire.first_chunk().unwrap(), ByteOrder::Little), mapping);

        for (wire, message) in [
            (0x0000_07f0, Message::Data(2032)),
            (0x8000_01b5, Message::Credits(437)),
            (0xc000_0000, Message::Mapped(0)),
            (0xe000_0000, Message::Disconnect),
            (0xe000_0002, Message::Shutdown),
        ] {
            assert_eq!(message.encode(), u32::to_be_bytes(wire));
            assert_eq!(Message::parse(u32::to_be_bytes(wire)), Some(message));
        }
    }

    #[test]
    fn a_big_endian_peer_has_entries_in_its_order() {
        let mapping = IoMap { offset: 1, sge: RemoteSge { address: 2, key: 3, length: 4 } };
        let wire = mapping.encode(ByteOrder::Big);
        assert_eq!(wire[..], bytes("000000000000000100000000000000020000000300000004"));
        assert_eq!(IoMap::parse(&wire, ByteOrder::Big), mapping);
        let conn_data = ConnData {
            order: ByteOrder::Big,
            credits: 2,
            mappings: 0,
            table: RemoteSge { length: 2, ..RemoteSge::default() },
            buffer: RemoteSge::default(),
        };
        assert_eq!(ConnData::parse(&conn_data.encode()), Some(conn_data));
    }

    #[test]
    fn nothing_else_is_connection_data_or_a_message() {
        let conn_data = ConnData {
            order: ByteOrder::Little,
            credits: 384,
            mappings: 9,
            table: RemoteSge { length: 2, ..RemoteSge::default() },
            buffer: RemoteSge::default(),
        };
        let good = conn_data.encode();
        assert_eq!(ConnData::parse(&good[..39]), None);
        let with = |at: usize, byte: u8| {
            let mut wire = good;
            wire[at] = byte;
            ConnData::parse(&wire)
        };
        assert_eq!(with(0, 2), None, "another version");
        assert_eq!(with(23, 1), None, "a table of one entry");
        assert_eq!(with(1, 0).map(|data| data.mappings), Some(0), "it knows of no mappings");
        for wire in [0x2000_0000_u32, 0x4000_0001, 0x6000_0000, 0xa000_0000, 0xe000_0001] {
            assert_eq!(Message::parse(wire.to_be_bytes()), None, "{wire:#x}");
        }
    }
}
