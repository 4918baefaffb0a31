//! Messages between the service and clients. Each kind has [one length](crate::link::message).

use serde::{Deserialize, Serialize};

use crate::link::conn_record;

/// Message of a client into a door.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub(super) struct Knock {
    magic: [u8; 8],
    /// Number in the [name](Self::name) of the client's Unix socket.
    number: [u8; 16],
    /// Proves the service to the client.
    pub(super) secret: [u8; 16],
    /// Partition that the client has elsewhere, or had; 0: none.
    pub(super) wanted: u8,
}

/// The last byte is the version of all messages in this file.
const MAGIC: [u8; 8] = *b"knock\0\0\x04";

impl Knock {
    pub(super) const LEN: usize = 64;

    pub(super) const fn new(number: [u8; 16], secret: [u8; 16], wanted: u8) -> Self {
        Self { magic: MAGIC, number, secret, wanted }
    }

    /// Knocks at any offset: a client may have written a part of a knock.
    pub(super) fn all_in(bytes: &[u8]) -> Vec<Self> {
        let all = bytes.windows(Self::LEN).filter_map(crate::link::message::decode::<Self>);
        all.filter(|knock| knock.magic == MAGIC).collect()
    }

    pub(super) fn name(&self) -> String {
        format!("roce client {:032x}", u128::from_be_bytes(self.number))
    }
}

/// First message of the service, with the ends of two pipes.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub(super) struct Greeting {
    pub(super) secret: [u8; 16],
    /// 0: another client has the wanted partition, or the user has reached its limit.
    pub(super) partition: u8,
    /// Bytes that the service buffers for arrivals.
    pub(super) receive_buffer: u32,
}

impl Greeting {
    pub(super) const LEN: usize = 24;
}

/// A client's request on a pipe, behind its number. Number 0 has no response.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub(super) enum Request {
    Query(u64),
    Claim(u64),
    Release(u64),
    /// Notifies the peer of this [connection](conn_record) at the client's end.
    Keep([u8; conn_record::LEN]),
    Erase(u32),
}

impl Request {
    pub(super) const LEN: usize = 40;
}

/// Response on the other pipe, behind the request's number.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub(super) enum Response {
    /// The client has the service; for a query: nobody else has it.
    Done,
    InUse,
    Full,
}

impl Response {
    pub(super) const LEN: usize = 8;
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::link::message::{decode, encode};

    #[test]
    fn messages_are_what_they_were() {
        let knock = Knock::new([7; 16], [9; 16], 62);
        assert_eq!(Knock::all_in(&encode::<{ Knock::LEN }>(&knock)), [knock]);
        assert_eq!(knock.name(), format!("roce client {}", "07".repeat(16)));
        let greeting = Greeting { secret: [9; 16], partition: 1, receive_buffer: u32::MAX };
        assert_eq!(decode(&encode::<{ Greeting::LEN }>(&greeting)), Some(greeting));
        for request in [
            Request::Query(u64::MAX),
            Request::Claim(u64::MAX),
            Request::Release(u64::MAX),
            Request::Keep([255; conn_record::LEN]),
            Request::Erase(u32::MAX),
        ] {
            let numbered = (u32::MAX, request);
            assert_eq!(decode(&encode::<{ Request::LEN }>(&numbered)), Some(numbered));
        }
        for response in [Response::Done, Response::InUse, Response::Full] {
            let numbered = (u32::MAX, response);
            assert_eq!(decode(&encode::<{ Response::LEN }>(&numbered)), Some(numbered));
        }
    }

    #[test]
    fn what_makes_no_sense_is_none() {
        assert_eq!(Knock::all_in(&[0; 3 * Knock::LEN]), []);
        let knock = Knock::new([7; 16], [9; 16], 0);
        let whole = encode::<{ Knock::LEN }>(&knock);
        let torn = [&MAGIC[..], &whole, &[0; 5], &whole, &whole[..63]];
        let found = Knock::all_in(&torn.concat());
        assert_eq!((found.len(), &found[1..]), (3, &[knock; 2][..]));
        for kind in [5, 255] {
            assert_eq!(decode::<(u32, Request)>(&[kind; Request::LEN]), None, "{kind}");
            assert_eq!(decode::<(u32, Response)>(&[kind; Response::LEN]), None, "{kind}");
        }
    }
}
