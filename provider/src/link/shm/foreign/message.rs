//! Messages between the owner of an address and a foreign peer.

use std::{collections::BTreeSet, io, os::fd::OwnedFd};

use roce_transport::{
    cm::{ConnRecord, ServiceId},
    share::IdPartition,
};
use rustix::net::{RecvFlags, SendFlags};

use super::super::record;

/// Message that asks to be a foreign peer at an address; its last byte changes with everything
/// about the messages and the ring.
pub(in super::super) const HELLO_FOREIGN: [u8; 8] = *b"foreign\x01";
/// Number of services that a foreign peer may listen for. The owner claims each while it has its
/// lock.
pub(super) const MAX_SERVICES: usize = 32;
/// Number of services at an address that it is told.
const MAX_TOLD: usize = 8192;
/// Length of the longest message.
pub(super) const LONGEST: usize = 1 + 8 * MAX_TOLD;

/// What a foreign peer asks for, or tells.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) enum Request {
    /// To have this partition; the token shows that it had it before, 0: it had not.
    Partition(IdPartition, u64),
    /// All services that it listens for.
    Services(BTreeSet<ServiceId>),
    /// A connection of its own, whose peer is to hear of its end.
    Record([u8; record::SLOT]),
    /// A connection that has ended, by its communication ID.
    Erase(u32),
}

/// What the owner answers, or tells.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) enum Answer {
    /// The first: the size of the receive buffer. The ring's descriptor comes with it.
    Granted(u32),
    /// The partition is the peer's, with this token for the next owner; `None`: another process has
    /// it.
    Partition(Option<u64>),
    /// All services that processes at the address listen for, the peer's own among them.
    Taken(BTreeSet<ServiceId>),
    /// Of the services that the peer has told, those that another process was first with.
    Refused(BTreeSet<ServiceId>),
    /// There is something in the ring.
    Wake,
}

impl Request {
    pub(super) fn encode(&self) -> Vec<u8> {
        match self {
            Self::Partition(partition, token) => {
                [&[0, partition.get()][..], &token.to_ne_bytes()].concat()
            }
            Self::Services(services) => encode_services(1, services, MAX_SERVICES),
            Self::Record(record) => [&[2][..], record].concat(),
            Self::Erase(id) => [&[3][..], &id.to_ne_bytes()].concat(),
        }
    }

    /// `None` for what makes no sense.
    pub(super) fn decode(message: &[u8]) -> Option<Self> {
        let (&kind, rest) = message.split_first()?;
        match kind {
            0 => {
                let (&partition, token) = rest.split_first()?;
                let token = u64::from_ne_bytes(token.try_into().ok()?);
                Some(Self::Partition(IdPartition::new(partition)?, token))
            }
            1 => decode_services(rest, MAX_SERVICES).map(Self::Services),
            2 => Some(Self::Record(rest.try_into().ok()?)),
            3 => Some(Self::Erase(u32::from_ne_bytes(rest.try_into().ok()?))),
            _ => None,
        }
    }

    pub(super) fn record(record: &ConnRecord) -> Self {
        Self::Record(record::encode(record))
    }
}

impl Answer {
    pub(super) fn encode(&self) -> Vec<u8> {
        match self {
            Self::Granted(receive_buffer) => [&[0][..], &receive_buffer.to_ne_bytes()].concat(),
            Self::Partition(token) => [&[1][..], &token.unwrap_or_default().to_ne_bytes()].concat(),
            Self::Taken(services) => encode_services(2, services, MAX_TOLD),
            Self::Refused(services) => encode_services(4, services, MAX_SERVICES),
            Self::Wake => WAKE.to_vec(),
        }
    }

    pub(super) fn decode(message: &[u8]) -> Option<Self> {
        let (&kind, rest) = message.split_first()?;
        match kind {
            0 => Some(Self::Granted(u32::from_ne_bytes(rest.try_into().ok()?))),
            1 => {
                let token = u64::from_ne_bytes(rest.try_into().ok()?);
                Some(Self::Partition((token != 0).then_some(token)))
            }
            2 => decode_services(rest, MAX_TOLD).map(Self::Taken),
            3 => Some(Self::Wake),
            4 => decode_services(rest, MAX_SERVICES).map(Self::Refused),
            _ => None,
        }
    }
}

/// [`Answer::Wake`].
const WAKE: [u8; 1] = [3];

fn encode_services(kind: u8, services: &BTreeSet<ServiceId>, most: usize) -> Vec<u8> {
    let services = services.iter().take(most).flat_map(|service| service.0.to_ne_bytes());
    [kind].into_iter().chain(services).collect()
}

fn decode_services(bytes: &[u8], most: usize) -> Option<BTreeSet<ServiceId>> {
    let (services, rest) = bytes.as_chunks();
    let makes_sense = rest.is_empty() && services.len() <= most;
    makes_sense
        .then(|| services.iter().map(|service| ServiceId(u64::from_ne_bytes(*service))).collect())
}

/// Sends a message, and waits for nothing, whatever the other process has done to the socket.
pub(super) fn send(socket: &OwnedFd, message: &[u8]) -> io::Result<()> {
    rustix::net::send(socket, message, SendFlags::DONTWAIT | SendFlags::NOSIGNAL)?;
    Ok(())
}

/// Receives a message without descriptors: those that a foreign process sends are not taken, since
/// closing them may wait for it. `None`: there is none.
pub(in super::super) fn receive(socket: &OwnedFd, buffer: &mut [u8]) -> io::Result<Option<usize>> {
    match rustix::net::recv(socket, &mut *buffer, RecvFlags::DONTWAIT) {
        Ok((_, 0)) => Err(io::ErrorKind::ConnectionReset.into()),
        Ok((length, _)) => Ok(Some(length)),
        Err(rustix::io::Errno::AGAIN | rustix::io::Errno::INTR) => Ok(None),
        Err(error) => Err(error.into()),
    }
}

/// Wakes a foreign peer that sleeps. It has the other end, and may not read: then it is not woken.
pub(in super::super) fn wake(socket: &OwnedFd) {
    let _ = send(socket, &WAKE);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn messages_are_what_they_were() {
        let partition = IdPartition::new(62).unwrap();
        let services: BTreeSet<_> = [1, u64::MAX].map(ServiceId).into();
        for request in [
            Request::Partition(partition, 7),
            Request::Services(services.clone()),
            Request::Services(BTreeSet::new()),
            Request::Record([5; record::SLOT]),
            Request::Erase(0x1234_5678),
        ] {
            assert_eq!(Request::decode(&request.encode()), Some(request));
        }
        for answer in [
            Answer::Granted(212_992),
            Answer::Partition(Some(1)),
            Answer::Partition(None),
            Answer::Taken(services.clone()),
            Answer::Refused(services),
            Answer::Wake,
        ] {
            assert_eq!(Answer::decode(&answer.encode()), Some(answer));
        }
    }

    #[test]
    fn what_makes_no_sense_is_none() {
        let too_many = vec![1; 1 + 8 * (MAX_SERVICES + 1)];
        let messages =
            [&[][..], &[0], &[0, 63, 0, 0, 0, 0, 0, 0, 0, 0], &[1, 2], &[2; 32], &[3, 0], &[4]];
        for message in messages.into_iter().chain([&too_many[..]]) {
            assert_eq!(Request::decode(message), None, "{message:?}");
        }
        for message in [&[][..], &[0, 1], &[1], &[2, 1], &[4, 1], &[5]] {
            assert_eq!(Answer::decode(message), None, "{message:?}");
        }
    }
}
