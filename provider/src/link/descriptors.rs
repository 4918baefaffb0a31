//! Unix socket messages with descriptors.

use std::{
    io::{self, IoSlice, IoSliceMut},
    mem::MaybeUninit,
    os::fd::{BorrowedFd, OwnedFd},
};

use rustix::net::{
    RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, SendAncillaryBuffer,
    SendAncillaryMessage, SendFlags,
};

pub(super) const MAX_DESCRIPTORS: usize = 16;

/// Number of bytes, and descriptors.
type Received = (usize, Vec<OwnedFd>);

pub(super) fn send_with(
    socket: &OwnedFd,
    bytes: &[u8],
    descriptors: &[BorrowedFd<'_>],
) -> io::Result<()> {
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(MAX_DESCRIPTORS))];
    let mut ancillary = SendAncillaryBuffer::new(&mut space);
    if !descriptors.is_empty() {
        ancillary.push(SendAncillaryMessage::ScmRights(descriptors));
    }
    rustix::net::sendmsg(socket, &[IoSlice::new(bytes)], &mut ancillary, SendFlags::NOSIGNAL)?;
    Ok(())
}

pub(super) fn receive_with(socket: &OwnedFd, bytes: &mut [u8]) -> io::Result<Received> {
    receive_by(socket, bytes, RecvFlags::empty())
}

/// As [`receive_with`]; `None`: nothing has arrived. Errors: [`io::ErrorKind::ConnectionRefused`]
/// if the other process closed the connection.
pub(super) fn poll_with(socket: &OwnedFd, bytes: &mut [u8]) -> io::Result<Option<Received>> {
    match receive_with(socket, bytes) {
        Err(error) if error.kind() == io::ErrorKind::WouldBlock => Ok(None),
        Ok((0, _)) => Err(io::ErrorKind::ConnectionRefused.into()),
        received => received.map(Some),
    }
}

/// As [`receive_with`], but leaves the message and its descriptors queued.
pub(super) fn peek_with(socket: &OwnedFd, bytes: &mut [u8]) -> io::Result<Received> {
    receive_by(socket, bytes, RecvFlags::PEEK | RecvFlags::DONTWAIT)
}

fn receive_by(socket: &OwnedFd, bytes: &mut [u8], flags: RecvFlags) -> io::Result<Received> {
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(MAX_DESCRIPTORS))];
    let mut ancillary = RecvAncillaryBuffer::new(&mut space);
    let (mut parts, flags) = ([IoSliceMut::new(bytes)], flags | RecvFlags::CMSG_CLOEXEC);
    let received = rustix::net::recvmsg(socket, &mut parts, &mut ancillary, flags)?;
    let descriptors = ancillary.drain().flat_map(|message| match message {
        RecvAncillaryMessage::ScmRights(descriptors) => descriptors.collect(),
        _ => Vec::new(),
    });
    Ok((received.bytes, descriptors.collect()))
}
