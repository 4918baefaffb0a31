//! Addresses at which processes of several users are.
//!
//! A [shared](super::address) address takes trust in both directions: who has its sockets and its
//! claim table can do anything there. A process of another user gets neither. It is a *foreign
//! peer*: it trusts the owner, which receives for it, and the owner trusts it in nothing. It is given
//! a ring to read, and numbers of its own, the partition, for which the owner has the claim; it sends
//! from UDP ports of its own, which needs nobody's leave. What it listens for it tells the owner, and
//! the owner tells it what others listen for.
//!
//! When the owner ends, a foreign peer asks the next one, with a token that shows whose its
//! partition is. If nobody has the address, it is the owner itself from then on.

mod address;
mod message;
mod peer;
mod serve;

pub(super) use address::{ForeignAddress, ForeignChange, Standing};
pub(super) use message::{HELLO_FOREIGN, receive, wake};
pub(super) use peer::ForeignPeer;

#[cfg(test)]
pub(super) use serve::MAX_OF_USER;
