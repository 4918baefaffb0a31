//! Messages between the service and its clients. Each kind has one length.

use roce_transport::{cm::ServiceId, share::IdPartition};

use crate::link::conn_record;

/// The message of a client into the door of an address.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Knock {
    /// The client listens at the Unix socket of [this name](Self::name).
    pub(super) number: [u8; 16],
    /// What the service says first, so that the client knows it.
    pub(super) secret: [u8; 16],
}

/// Start of a knock. The last byte changes with every message of this file.
const MAGIC: [u8; 8] = *b"knock\0\0\x02";

impl Knock {
    pub(super) const LEN: usize = 64;

    pub(super) fn encode(&self) -> [u8; Self::LEN] {
        let mut bytes = [0; Self::LEN];
        bytes[..8].copy_from_slice(&MAGIC);
        bytes[8..24].copy_from_slice(&self.number);
        bytes[24..40].copy_from_slice(&self.secret);
        bytes
    }

    /// The knocks in what was read, wherever they begin: a client may have written a part of one.
    pub(super) fn all_in(bytes: &[u8]) -> Vec<Self> {
        let all = bytes.windows(Self::LEN).filter_map(|it| Self::decode(it.try_into().ok()?));
        all.collect()
    }

    fn decode(bytes: &[u8; Self::LEN]) -> Option<Self> {
        let (magic, rest) = bytes.split_first_chunk::<8>()?;
        let (number, rest) = rest.split_first_chunk()?;
        let (secret, _) = rest.split_first_chunk()?;
        (*magic == MAGIC).then_some(Self { number: *number, secret: *secret })
    }

    /// The name in the abstract name space.
    pub(super) fn name(&self) -> String {
        format!("roce client {:032x}", u128::from_be_bytes(self.number))
    }
}

/// A client's request, by a pipe.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Request {
    /// A partition: this one, if the client's user has it already, or any.
    Open(Option<IdPartition>),
    /// Whether another client listens for the service.
    Query(ServiceId),
    /// Requests for the service.
    Claim(ServiceId),
    Release(ServiceId),
    /// The peer of this [connection](conn_record) is to be told when the client ends.
    Keep([u8; conn_record::LEN]),
    Erase(u32),
}

impl Request {
    pub(super) const LEN: usize = 40;

    pub(super) fn encode(&self) -> [u8; Self::LEN] {
        let mut bytes = [0; Self::LEN];
        let (kind, fields) = bytes.split_at_mut(4);
        match self {
            Self::Open(partition) => {
                (kind[0], kind[1]) = (1, partition.map_or(0, IdPartition::get));
            }
            Self::Query(service) => {
                kind[0] = 2;
                fields[..8].copy_from_slice(&service.0.to_ne_bytes());
            }
            Self::Claim(service) => {
                kind[0] = 3;
                fields[..8].copy_from_slice(&service.0.to_ne_bytes());
            }
            Self::Release(service) => {
                kind[0] = 4;
                fields[..8].copy_from_slice(&service.0.to_ne_bytes());
            }
            Self::Keep(record) => {
                kind[0] = 5;
                fields[..record.len()].copy_from_slice(record);
            }
            Self::Erase(local_id) => {
                kind[0] = 6;
                fields[..4].copy_from_slice(&local_id.to_ne_bytes());
            }
        }
        bytes
    }

    /// `None`: it makes no sense.
    pub(super) fn decode(bytes: &[u8; Self::LEN]) -> Option<Self> {
        let service = || {
            let (first, _) = bytes[4..].split_first_chunk()?;
            Some(ServiceId(u64::from_ne_bytes(*first)))
        };
        match bytes[0] {
            1 if bytes[1] == 0 => Some(Self::Open(None)),
            1 => IdPartition::new(bytes[1]).map(|partition| Self::Open(Some(partition))),
            2 => service().map(Self::Query),
            3 => service().map(Self::Claim),
            4 => service().map(Self::Release),
            5 => bytes[4..].first_chunk().copied().map(Self::Keep),
            6 => bytes[4..].first_chunk().map(|id| Self::Erase(u32::from_ne_bytes(*id))),
            _ => None,
        }
    }

    /// True if the service answers.
    pub(super) const fn is_answered(&self) -> bool {
        matches!(self, Self::Open(_) | Self::Query(_) | Self::Claim(_))
    }
}

/// Answer of the service, in the order of what was asked, by another pipe.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Answer {
    /// The client has this partition, and the service a receive buffer of so many bytes for it.
    Opened(IdPartition, u32),
    /// The client has what it asked for; for a query: nobody has it.
    Done,
    /// Another client has it.
    InUse,
    /// The user, or the client, has as many as it can.
    Full,
}

impl Answer {
    pub(super) const LEN: usize = 8;

    pub(super) fn encode(&self) -> [u8; Self::LEN] {
        let (kind, partition, bytes) = match *self {
            Self::Opened(partition, bytes) => (1, partition.get(), bytes),
            Self::Done => (2, 0, 0),
            Self::InUse => (3, 0, 0),
            Self::Full => (4, 0, 0),
        };
        let [a, b, c, d] = bytes.to_ne_bytes();
        [kind, partition, 0, 0, a, b, c, d]
    }

    pub(super) fn decode(&[kind, partition, _, _, a, b, c, d]: &[u8; Self::LEN]) -> Option<Self> {
        match kind {
            1 => {
                let partition = IdPartition::new(partition)?;
                Some(Self::Opened(partition, u32::from_ne_bytes([a, b, c, d])))
            }
            2 => Some(Self::Done),
            3 => Some(Self::InUse),
            4 => Some(Self::Full),
            _ => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn messages_are_what_they_were() {
        let knock = Knock { number: [7; 16], secret: [9; 16] };
        assert_eq!(Knock::all_in(&knock.encode()), [knock]);
        assert_eq!(knock.name(), format!("roce client {}", "07".repeat(16)));
        let service = ServiceId(u64::MAX - 5);
        for request in [
            Request::Open(None),
            Request::Open(IdPartition::new(62)),
            Request::Query(service),
            Request::Claim(service),
            Request::Release(service),
            Request::Keep([7; conn_record::LEN]),
            Request::Erase(0x1234_5678),
        ] {
            assert_eq!(Request::decode(&request.encode()), Some(request));
        }
        let answers = [
            Answer::Opened(IdPartition::new(1).unwrap(), u32::MAX),
            Answer::Done,
            Answer::InUse,
            Answer::Full,
        ];
        for answer in answers {
            assert_eq!(Answer::decode(&answer.encode()), Some(answer));
        }
    }

    #[test]
    fn what_makes_no_sense_is_none() {
        assert_eq!(Knock::all_in(&[0; 3 * Knock::LEN]), []);
        let knock = Knock { number: [7; 16], secret: [9; 16] };
        let torn = [&MAGIC[..], &knock.encode(), &[0; 5], &knock.encode(), &knock.encode()[..63]];
        let found = Knock::all_in(&torn.concat());
        assert_eq!((found.len(), &found[1..]), (3, &[knock; 2][..]));
        for start in [[0, 0], [1, 63], [7, 0], [255, 1]] {
            let mut bytes = [0; Request::LEN];
            bytes[..2].copy_from_slice(&start);
            assert_eq!(Request::decode(&bytes), None, "{start:?}");
        }
        for start in [[0, 0], [1, 0], [1, 63], [5, 0]] {
            let mut bytes = [0; Answer::LEN];
            bytes[..2].copy_from_slice(&start);
            assert_eq!(Answer::decode(&bytes), None, "{start:?}");
        }
    }
}
