use alloc::vec::Vec;

use super::{
    icrc::icrc,
    net::NetHeader,
    opcode::{Opcode, Operation},
    packet::ICRC_LEN,
};

/// A received datagram.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct Datagram<'a> {
    /// Network headers.
    pub net: &'a NetHeader,
    /// UDP payload, BTH to ICRC.
    pub bytes: &'a [u8],
    /// Link metadata.
    pub meta: DatagramMeta,
}

/// Facts beyond the bytes.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
pub struct DatagramMeta {
    /// Injected "receiver not ready": on reliable connections, a SEND or WRITE with immediate gets
    /// an RNR NAK.
    pub not_ready: bool,
    /// From this host's memory: the ICRC is unchecked and may be [omitted](Datagram::sealed).
    pub checksum_verified: bool,
    /// A receive buffer is filling: the sender gets a CNP.
    pub congested: bool,
}

impl<'a> Datagram<'a> {
    /// Datagram without metadata.
    #[must_use]
    pub const fn new(net: &'a NetHeader, bytes: &'a [u8]) -> Self {
        let meta = DatagramMeta { not_ready: false, checksum_verified: false, congested: false };
        Self { net, bytes, meta }
    }

    /// True if the sender omitted the ICRC.
    #[must_use]
    pub fn lacks_icrc(&self) -> bool {
        self.meta.checksum_verified && self.bytes.ends_with(&[0; ICRC_LEN])
    }

    /// Bytes with their ICRC, possibly copied into `room`.
    pub fn sealed<'b>(&'b self, room: &'b mut Vec<u8>) -> &'b [u8] {
        match self.bytes.split_last_chunk::<ICRC_LEN>() {
            Some((body, _)) if self.lacks_icrc() => {
                room.clear();
                room.extend_from_slice(body);
                room.extend_from_slice(&icrc(self.net, body).to_le_bytes());
                room
            }
            _ => self.bytes,
        }
    }
}

/// Datagrams received together: `segment` bytes each, the last possibly fewer. IPv4 identifications
/// count up.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct DatagramRun<'a> {
    /// Of the first.
    pub net: &'a NetHeader,
    /// Concatenated UDP payloads.
    pub bytes: &'a [u8],
    /// Payload length, except of the last.
    pub segment: usize,
    /// Link metadata.
    pub meta: DatagramMeta,
}

impl<'a> DatagramRun<'a> {
    /// Payload of each datagram.
    pub fn payloads(&self) -> impl Iterator<Item = &'a [u8]> {
        // an empty datagram counts
        let none = self.bytes.is_empty().then_some(&[][..]);
        self.bytes.chunks(self.segment.max(1)).chain(none)
    }

    /// Splits off a final acknowledgement behind requests only.
    pub(crate) fn split_acknowledgement(&self) -> (&'a [u8], Option<&'a [u8]>) {
        let (length, segment) = (self.bytes.len(), self.segment.max(1));
        if length <= segment {
            return (self.bytes, None);
        }
        let (before, last) = self.bytes.split_at((length - 1) / segment * segment);
        let operation = |payload: &[u8]| Some(Opcode::from_wire(*payload.first()?)?.operation());
        let is_request =
            |payload| operation(payload).is_some_and(|operation| !operation.is_response());
        let is_behind = operation(last) == Some(Operation::Acknowledge)
            && before.chunks(segment).all(is_request);
        if is_behind { (before, Some(last)) } else { (self.bytes, None) }
    }

    /// Calls `act` for each datagram.
    pub fn for_each(&self, mut act: impl FnMut(&Datagram<'_>)) {
        let mut net = *self.net;
        for bytes in self.payloads() {
            act(&Datagram { net: &net, bytes, meta: self.meta });
            net.ident = net.ident.next();
        }
    }
}

impl<'a> From<Datagram<'a>> for DatagramRun<'a> {
    fn from(datagram: Datagram<'a>) -> Self {
        let Datagram { net, bytes, meta } = datagram;
        Self { net, bytes, segment: bytes.len(), meta }
    }
}
