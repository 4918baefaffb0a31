//! Messages between the service and its clients. Each kind has one length.

use roce_transport::{cm::ServiceId, share::IdPartition};

use crate::link::conn_record;

/// The message of a client into the door of an address.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Knock {
    /// The client listens at the Unix socket of [this name](Self::name).
    pub(super) number: [u8; 16],
    /// The client knows the service by this.
    pub(super) secret: [u8; 16],
    /// The partition that it has elsewhere, or had.
    pub(super) wanted: Option<IdPartition>,
}

/// Start of a knock. The last byte changes with every message of this file.
const MAGIC: [u8; 8] = *b"knock\0\0\x03";

impl Knock {
    pub(super) const LEN: usize = 64;

    pub(super) fn encode(&self) -> [u8; Self::LEN] {
        let mut bytes = [0; Self::LEN];
        bytes[..8].copy_from_slice(&MAGIC);
        bytes[8..24].copy_from_slice(&self.number);
        bytes[24..40].copy_from_slice(&self.secret);
        bytes[40] = self.wanted.map_or(0, IdPartition::get);
        bytes
    }

    /// The knocks in bytes, wherever they begin: a client may have written a part of one.
    pub(super) fn all_in(bytes: &[u8]) -> Vec<Self> {
        let all = bytes.windows(Self::LEN).filter_map(|it| Self::decode(it.try_into().ok()?));
        all.collect()
    }

    fn decode(bytes: &[u8; Self::LEN]) -> Option<Self> {
        let (magic, rest) = bytes.split_first_chunk::<8>()?;
        let (number, rest) = rest.split_first_chunk()?;
        let (secret, rest) = rest.split_first_chunk()?;
        let wanted = IdPartition::new(rest[0]);
        (*magic == MAGIC).then_some(Self { number: *number, secret: *secret, wanted })
    }

    pub(super) fn name(&self) -> String {
        format!("roce client {:032x}", u128::from_be_bytes(self.number))
    }
}

/// The first message of the service, with the ends of two pipes.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Greeting {
    pub(super) secret: [u8; 16],
    /// `None`: another client has the wanted one, or the user as many as it can.
    pub(super) partition: Option<IdPartition>,
    /// Bytes that the service has for what arrives.
    pub(super) receive_buffer: u32,
}

impl Greeting {
    pub(super) const LEN: usize = 24;

    pub(super) fn encode(&self) -> [u8; Self::LEN] {
        let mut bytes = [0; Self::LEN];
        bytes[..16].copy_from_slice(&self.secret);
        bytes[16] = self.partition.map_or(0, IdPartition::get);
        bytes[20..].copy_from_slice(&self.receive_buffer.to_ne_bytes());
        bytes
    }

    pub(super) fn decode(bytes: &[u8; Self::LEN]) -> Self {
        Self {
            secret: std::array::from_fn(|at| bytes[at]),
            partition: IdPartition::new(bytes[16]),
            receive_buffer: u32::from_ne_bytes(std::array::from_fn(|at| bytes[20 + at])),
        }
    }
}

/// A client's request, by a pipe. Its number is in the answer; without, there is none.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Request {
    Query(ServiceId),
    Claim(ServiceId),
    Release(ServiceId),
    /// The peer of this [connection](conn_record) hears of the client's end.
    Keep([u8; conn_record::LEN]),
    Erase(u32),
}

impl Request {
    pub(super) const LEN: usize = 44;

    pub(super) fn encode(&self, number: u32) -> [u8; Self::LEN] {
        let mut bytes = [0; Self::LEN];
        let fields = &mut bytes[8..];
        let kind = match self {
            Self::Query(service) | Self::Claim(service) | Self::Release(service) => {
                fields[..8].copy_from_slice(&service.0.to_ne_bytes());
                match self {
                    Self::Query(_) => 1,
                    Self::Claim(_) => 2,
                    _ => 3,
                }
            }
            Self::Keep(record) => {
                fields[..record.len()].copy_from_slice(record);
                4
            }
            Self::Erase(local_id) => {
                fields[..4].copy_from_slice(&local_id.to_ne_bytes());
                5
            }
        };
        bytes[0] = kind;
        bytes[4..8].copy_from_slice(&number.to_ne_bytes());
        bytes
    }

    pub(super) fn decode(bytes: &[u8; Self::LEN]) -> Option<(u32, Self)> {
        let (number, fields) = bytes[4..].split_first_chunk()?;
        let service = ServiceId(u64::from_ne_bytes(*fields.first_chunk()?));
        let request = match bytes[0] {
            1 => Self::Query(service),
            2 => Self::Claim(service),
            3 => Self::Release(service),
            4 => Self::Keep(*fields.first_chunk()?),
            5 => Self::Erase(u32::from_ne_bytes(*fields.first_chunk()?)),
            _ => return None,
        };
        Some((u32::from_ne_bytes(*number), request))
    }
}

/// Answer of the service, by another pipe.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Answer {
    /// The client has the service; for a query: nobody else has it.
    Done,
    InUse,
    Full,
}

impl Answer {
    pub(super) const LEN: usize = 8;

    pub(super) fn encode(self, number: u32) -> [u8; Self::LEN] {
        let mut bytes = [0; Self::LEN];
        bytes[0] = self as u8;
        bytes[4..].copy_from_slice(&number.to_ne_bytes());
        bytes
    }

    pub(super) fn decode(bytes: &[u8; Self::LEN]) -> Option<(u32, Self)> {
        let answer = *[Self::Done, Self::InUse, Self::Full].get(usize::from(bytes[0]))?;
        Some((u32::from_ne_bytes(*bytes.last_chunk()?), answer))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn messages_are_what_they_were() {
        let knock = Knock { number: [7; 16], secret: [9; 16], wanted: IdPartition::new(62) };
        for knock in [knock, Knock { wanted: None, ..knock }] {
            assert_eq!(Knock::all_in(&knock.encode()), [knock]);
        }
        assert_eq!(knock.name(), format!("roce client {}", "07".repeat(16)));
        let greeting =
            Greeting { secret: [9; 16], partition: IdPartition::new(1), receive_buffer: u32::MAX };
        for greeting in [greeting, Greeting { partition: None, ..greeting }] {
            assert_eq!(Greeting::decode(&greeting.encode()), greeting);
        }
        let service = ServiceId(u64::MAX - 5);
        for request in [
            Request::Query(service),
            Request::Claim(service),
            Request::Release(service),
            Request::Keep([7; conn_record::LEN]),
            Request::Erase(0x1234_5678),
        ] {
            assert_eq!(Request::decode(&request.encode(1 << 30)), Some((1 << 30, request)));
        }
        for answer in [Answer::Done, Answer::InUse, Answer::Full] {
            assert_eq!(Answer::decode(&answer.encode(u32::MAX)), Some((u32::MAX, answer)));
        }
    }

    #[test]
    fn what_makes_no_sense_is_none() {
        assert_eq!(Knock::all_in(&[0; 3 * Knock::LEN]), []);
        let knock = Knock { number: [7; 16], secret: [9; 16], wanted: None };
        let torn = [&MAGIC[..], &knock.encode(), &[0; 5], &knock.encode(), &knock.encode()[..63]];
        let found = Knock::all_in(&torn.concat());
        assert_eq!((found.len(), &found[1..]), (3, &[knock; 2][..]));
        for kind in [0, 6, 255] {
            assert_eq!(Request::decode(&[kind; Request::LEN]), None, "{kind}");
        }
        for kind in [3, 255] {
            assert_eq!(Answer::decode(&[kind; Answer::LEN]), None, "{kind}");
        }
    }
}
