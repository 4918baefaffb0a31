//! Wire formats.
//!
//! Read first: InfiniBand volume 1, 9.2 and 9.3 (headers); annexes A14 (XRC), A17 (RoCEv2).
//! Reserved fields are ignored in parsing and zero in encoding.

mod datagram;
pub(crate) mod fields;
mod grh;
mod header;
mod icrc;
mod mad;
mod opcode;
mod packet;

pub use datagram::{Datagram, DatagramMeta, DatagramRun};
pub use grh::{GRH_LEN, Grh, checksum, grh, put_network_headers};
pub use header::{
    Aeth, AtomicAckEth, AtomicEth, Bth, Deth, Feth, Immediate, InvalidateEth, NakCode, Reth,
    Syndrome, XrcEth,
};
pub use icrc::{
    FrameFields, IcrcMatch, Ident, NEXT_HEADER_IBA, NetHeader, icrc, icrc_change, rxe_flush_icrc,
    verify_icrc,
};
pub(crate) use icrc::{IcrcFlow, verify_icrc_of};
pub use mad::{MAD_DATA_LEN, MAD_LEN, MadHeader};
pub use opcode::{Extension, Opcode, Operation, PacketPosition, Service};
pub use packet::{Ext, HEADERS_MAX, Headers, ICRC_LEN, PACKET_MAX, Packet, ParseError, padding};
pub(crate) use packet::{MiddleHeaders, Single, SingleKind};
