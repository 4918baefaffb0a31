//! Requests between processes, by a Unix socket. Every message has [one length](message).

use std::{io, net::IpAddr, os::fd::OwnedFd};

use serde::{Deserialize, Serialize};

use crate::link::{
    descriptors::{poll_with, send_with},
    message,
    rings::Reader,
};

/// A message. The first two go with a ring.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub(super) enum Hello {
    /// To read packets from this address.
    From(IpAddr),
    /// To read datagrams that others have received at the reader's own address. The writer is the
    /// owner of this term, or a peer: 0.
    Forward(u64),
    /// To share the address.
    Share,
    /// To forward to the peer with this partition, by this connection.
    Here(u8),
}

/// Start of a message. The last byte changes with any of them, and with the form of rings.
const MAGIC: [u8; 5] = *b"roce\x09";
const LEN: usize = 24;

impl Hello {
    pub(super) fn message(self) -> [u8; LEN] {
        message::encode(&(MAGIC, self))
    }

    pub(super) fn send(self, socket: &OwnedFd) -> io::Result<()> {
        send_with(socket, &self.message(), &[])
    }

    /// The message at a connection, and the ring, once it has come. Errors: when it makes no sense,
    /// or the other process has closed the connection.
    pub(super) fn receive(socket: &OwnedFd) -> io::Result<Option<(Self, Option<Reader>)>> {
        let mut bytes = [0; LEN];
        let Some((length, mut descriptors)) = poll_with(socket, &mut bytes)? else {
            return Ok(None);
        };
        let invalid = || io::Error::from(io::ErrorKind::InvalidData);
        let decoded = message::decode::<([u8; 5], Self)>(&bytes);
        let decoded = decoded.filter(|(magic, _)| *magic == MAGIC && length == LEN);
        let (_, hello) = decoded.ok_or_else(invalid)?;
        if matches!(hello, Self::Share | Self::Here(_)) {
            return Ok(Some((hello, None)));
        }
        let reader = Reader::new(descriptors.pop().ok_or_else(invalid)?)?;
        Ok(Some((hello, Some(reader))))
    }
}
