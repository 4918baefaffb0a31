//! Wire formats.
//!
//! Read first: InfiniBand volume 1, 9.2 and 9.3 (headers); annexes A14 (XRC), A17 (RoCEv2).
//! Reserved fields are ignored in parsing and zero in encoding.

mod datagram;
pub(crate) mod fields;
mod header;
mod icrc;
mod mad;
mod net;
mod opcode;
mod packet;

pub use datagram::{Datagram, DatagramMeta, DatagramRun};
pub use header::{
    Aeth, AtomicAckEth, AtomicEth, Bth, Deth, Feth, Immediate, InvalidateEth, NakCode, Reth,
    Syndrome, XrcEth,
};
pub(crate) use icrc::{IcrcFlow, verify_icrc_of};
pub use icrc::{IcrcMatch, icrc, icrc_change, rxe_flush_icrc, verify_icrc};
pub use mad::{MAD_LEN, MadHeader};
pub use net::{
    FrameFields, GRH_LEN, Grh, Ident, NEXT_HEADER_IBA, NetHeader, checksum, grh,
    put_network_headers,
};
pub use opcode::{Extension, Opcode, Operation, PacketPosition, Service};
pub use packet::{Ext, HEADERS_MAX, Headers, ICRC_LEN, PACKET_MAX, Packet, ParseError, padding};
pub(crate) use packet::{MiddleHeaders, Predictable, Predicted};
