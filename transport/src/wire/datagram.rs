//! A datagram as a link hands it over.

use alloc::vec::Vec;

use super::{
    icrc::{NetHeader, icrc},
    opcode::{Opcode, Operation},
    packet::ICRC_LEN,
};

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
    /// True if the datagram has never left this host's memory, so that its bytes are those that an
    /// adapter built. Its ICRC is not checked, and may be [omitted](Datagram::sealed).
    pub checksum_verified: bool,
    /// True if a receive buffer of this host fills. The sender is notified as if a switch had
    /// marked the datagram with "congestion experienced".
    pub congested: bool,
}

impl<'a> Datagram<'a> {
    /// A datagram from a network, without a fault.
    #[must_use]
    pub const fn new(net: &'a NetHeader, bytes: &'a [u8]) -> Self {
        let meta = DatagramMeta { not_ready: false, checksum_verified: false, congested: false };
        Self { net, bytes, meta }
    }

    /// True if its sender has left its ICRC away, because nobody was to look at it.
    #[must_use]
    pub fn lacks_icrc(&self) -> bool {
        self.meta.checksum_verified && self.bytes.ends_with(&[0; ICRC_LEN])
    }

    /// Its bytes, and its ICRC if that was left away: for those who show them, or pass them on to
    /// where it is looked at. `room` is for a copy.
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

/// Datagrams that have arrived together, from one sender to one receiver, alike in what is known of
/// them: each `segment` bytes long but the last, which may be shorter. IPv4 identifications count
/// up.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct DatagramRun<'a> {
    /// Network headers of the first.
    pub net: &'a NetHeader,
    /// UDP payloads, one behind the other.
    pub bytes: &'a [u8],
    /// Length of every payload but the last.
    pub segment: usize,
    /// Further knowledge of the link.
    pub meta: DatagramMeta,
}

impl<'a> DatagramRun<'a> {
    /// The payloads.
    pub fn payloads(&self) -> impl Iterator<Item = &'a [u8]> {
        // a datagram without a payload is one all the same
        let none = self.bytes.is_empty().then_some(&[][..]);
        self.bytes.chunks(self.segment.max(1)).chain(none)
    }

    /// The last payload apart, if it is an acknowledgement behind nothing but requests.
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

    /// Calls `act` with every datagram, in order.
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
