//! A datagram as a link hands it over.

use super::icrc::NetHeader;

/// A datagram that has arrived.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct Datagram<'a> {
    /// Its network headers.
    pub net: &'a NetHeader,
    /// Its UDP payload, BTH to ICRC.
    pub bytes: &'a [u8],
    /// Further knowledge of the link.
    pub meta: DatagramMeta,
}

/// Facts about a datagram that its bytes do not show.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
pub struct DatagramMeta {
    /// True if it finds its receiver not ready: as if no receive request were posted, although
    /// there may be one. A SEND, or a WRITE with immediate data, of a reliable connection is then
    /// answered with an RNR NAK; a request that needs no receive request is carried out. This
    /// injects a fault into a program under test.
    pub not_ready: bool,
    /// True if it is, byte for byte, what an adapter has built, because it has never left the
    /// memory of this host: its ICRC, which is present, is not computed again.
    pub checksum_verified: bool,
    /// True if it has met a receive buffer of the own host that fills. Its sender is told as if a
    /// switch had marked it with "congestion experienced".
    pub congested: bool,
}

impl<'a> Datagram<'a> {
    /// A datagram from a network, without a fault.
    #[must_use]
    pub const fn new(net: &'a NetHeader, bytes: &'a [u8]) -> Self {
        let meta = DatagramMeta { not_ready: false, checksum_verified: false, congested: false };
        Self { net, bytes, meta }
    }
}
