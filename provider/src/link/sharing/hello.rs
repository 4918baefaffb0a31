//! Requests between processes, by a Unix socket. Every message has the same length.

use std::{
    io,
    net::{IpAddr, Ipv6Addr},
    os::fd::OwnedFd,
};

use roce_transport::{addr::Gid, share::IdPartition};

use crate::link::{
    descriptors::{poll_with, send_with},
    rings::Reader,
};

/// A message. The first two go with a ring.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Hello {
    /// To read packets from this address.
    From(IpAddr),
    /// To read datagrams that others have received at the reader's own address. The writer is the
    /// owner of this term, or a peer: 0.
    Forward(u64),
    /// To share the address.
    Share,
    /// To forward to the peer with this partition, by this connection.
    Here(IdPartition),
}

/// Start of each kind of message. The last byte changes with its format.
const RING: [u8; 8] = *b"roce\0\0\0\x07";
const FORWARD: [u8; 8] = *b"for\0\0\0\0\x01";
const SHARE: [u8; 8] = *b"share\0\0\x08";
const HERE: [u8; 8] = *b"here\0\0\0\x01";
const LEN: usize = 24;

impl Hello {
    pub(super) fn message(self) -> [u8; LEN] {
        let (kind, field) = match self {
            Self::From(address) => (RING, Gid::from(address).0),
            Self::Forward(term) => (FORWARD, u128::from(term).to_ne_bytes()),
            Self::Share => (SHARE, [0; 16]),
            Self::Here(partition) => (HERE, u128::from(partition.get()).to_ne_bytes()),
        };
        let mut message = [0; LEN];
        message[..8].copy_from_slice(&kind);
        message[8..].copy_from_slice(&field);
        message
    }

    pub(super) fn say(self, socket: &OwnedFd) -> io::Result<()> {
        send_with(socket, &self.message(), &[])
    }

    /// The message at a connection, and the ring, once it has come. Errors: when it makes no sense,
    /// or the other process has closed the connection.
    pub(super) fn receive(socket: &OwnedFd) -> io::Result<Option<(Self, Option<Reader>)>> {
        let mut message = [0; LEN];
        let Some((length, mut descriptors)) = poll_with(socket, &mut message)? else {
            return Ok(None);
        };
        let invalid = || io::Error::from(io::ErrorKind::InvalidData);
        let (kind, field) = message.split_first_chunk::<8>().ok_or_else(invalid)?;
        let field: [u8; 16] = field.try_into().map_err(|_| invalid())?;
        let number = u128::from_ne_bytes(field);
        let hello = match *kind {
            _ if length != LEN => return Err(invalid()),
            RING => Self::From(Ipv6Addr::from(field).to_canonical()),
            FORWARD => Self::Forward(number as u64),
            SHARE => return Ok(Some((Self::Share, None))),
            HERE => {
                let partition = u8::try_from(number).ok().and_then(IdPartition::new);
                return Ok(Some((Self::Here(partition.ok_or_else(invalid)?), None)));
            }
            _ => return Err(invalid()),
        };
        let reader = Reader::new(descriptors.pop().ok_or_else(invalid)?)?;
        Ok(Some((hello, Some(reader))))
    }
}
