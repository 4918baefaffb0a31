//! Messages between the service and clients. Each kind has [one length](crate::link::message).

use serde::{Deserialize, Serialize};

use crate::link::conn_record;

/// Message of a client into an [admission FIFO](super::admission).
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub(super) struct JoinRequest {
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

impl JoinRequest {
    pub(super) const LEN: usize = 64;

    pub(super) const fn new(number: [u8; 16], secret: [u8; 16], wanted: u8) -> Self {
        Self { magic: MAGIC, number, secret, wanted }
    }

    /// Requests at any offset: a client may have written a part of a request.
    pub(super) fn all_in(bytes: &[u8]) -> Vec<Self> {
        let all = bytes.windows(Self::LEN).filter_map(crate::link::message::decode::<Self>);
        all.filter(|request| request.magic == MAGIC).collect()
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
    /// Another client has the service, or this one has too many.
    InUse,
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
        let join = JoinRequest::new([7; 16], [9; 16], 62);
        assert_eq!(JoinRequest::all_in(&encode::<{ JoinRequest::LEN }>(&join)), [join]);
        assert_eq!(join.name(), format!("roce client {}", "07".repeat(16)));
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
        for response in [Response::Done, Response::InUse] {
            let numbered = (u32::MAX, response);
            assert_eq!(decode(&encode::<{ Response::LEN }>(&numbered)), Some(numbered));
        }
    }

    #[test]
    fn what_makes_no_sense_is_none() {
        assert_eq!(JoinRequest::all_in(&[0; 3 * JoinRequest::LEN]), []);
        let join = JoinRequest::new([7; 16], [9; 16], 0);
        let whole = encode::<{ JoinRequest::LEN }>(&join);
        let torn = [&MAGIC[..], &whole, &[0; 5], &whole, &whole[..63]];
        let found = JoinRequest::all_in(&torn.concat());
        assert_eq!((found.len(), &found[1..]), (3, &[join; 2][..]));
        for kind in [5, 255] {
            assert_eq!(decode::<(u32, Request)>(&[kind; Request::LEN]), None, "{kind}");
            assert_eq!(decode::<(u32, Response)>(&[kind; Response::LEN]), None, "{kind}");
        }
    }
}
