//! Requests between processes, over a Unix socket. Every message has [one length](message).

use std::{io, net::IpAddr, os::fd::OwnedFd};

use serde::{Deserialize, Serialize};

use crate::link::{
    descriptors::{poll_with, send_with},
    message,
    rings::Reader,
};

/// A request. The first two carry a ring.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub(super) enum Hello {
    /// To read packets from this address.
    From(IpAddr),
    /// To read datagrams received by the writer at the reader's own address. The writer is the
    /// owner of this term, or a peer: 0.
    Forward(u64),
    JoinAddress,
    /// To forward to the peer with this partition over this connection.
    RegisterPeer(u8),
}

/// Start of every message. The last byte is the version of messages and rings.
const MAGIC: [u8; 5] = *b"roce\x09";
const LEN: usize = 24;

impl Hello {
    pub(super) fn message(self) -> [u8; LEN] {
        message::encode(&(MAGIC, self))
    }

    pub(super) fn send(self, socket: &OwnedFd) -> io::Result<()> {
        send_with(socket, &self.message(), &[])
    }

    /// `None`: nothing has arrived. Errors: an invalid message, or a closed connection.
    pub(super) fn receive(socket: &OwnedFd) -> io::Result<Option<(Self, Option<Reader>)>> {
        let mut bytes = [0; LEN];
        let Some((length, mut descriptors)) = poll_with(socket, &mut bytes)? else {
            return Ok(None);
        };
        let invalid = || io::Error::from(io::ErrorKind::InvalidData);
        let decoded = message::decode::<([u8; 5], Self)>(&bytes);
        let decoded = decoded.filter(|(magic, _)| *magic == MAGIC && length == LEN);
        let (_, hello) = decoded.ok_or_else(invalid)?;
        if matches!(hello, Self::JoinAddress | Self::RegisterPeer(_)) {
            return Ok(Some((hello, None)));
        }
        let reader = Reader::new(descriptors.pop().ok_or_else(invalid)?)?;
        Ok(Some((hello, Some(reader))))
    }
}
