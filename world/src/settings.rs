use std::{collections::BTreeMap, time::Duration};

use roce_transport::{defaults, mem::RKey};

use crate::line::End;

/// Limit for a player's own scenario.
pub const MOST_RECORDS: usize = 20_000;

defaults! {
    /// A player's choices.
    #[derive(Clone, PartialEq, Eq, Debug)]
    pub Settings {
        /// Seed of the network; default 1.
        seed: u64 = 1;
        /// Clauses of a [`FaultPlan`](roce_fabric::FaultPlan) instead of the 5 µs delay. The
        /// scenario's clauses follow; a port replaces the scenario's.
        network: Option<String> = None;
        /// Fates by datagram number.
        fates: BTreeMap<u64, Fate> = BTreeMap::new();
        /// Additional requests, ordered by [`Post::after`].
        posts: Vec<Post> = Vec::new();
        /// Records after which the scenario ends; default no limit.
        most_records: usize = usize::MAX;
    }
}

/// Fate of a datagram, instead of rules and chance.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Fate {
    /// Arrives if the ports have room.
    Pass,
    /// Is lost.
    Lose,
    /// Is delayed.
    Hold(Duration),
    /// Arrives twice.
    Double,
    /// Lowest bit flipped of this byte of the UDP payload, modulo the length.
    Damage(usize),
}

/// A player's request.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Post {
    /// Ladder lines before the post: it follows the last line's adapter call, or the scenario's
    /// end.
    pub after: usize,
    /// End.
    pub end: End,
    /// Queue pair, by creation from 0.
    pub queue_pair: usize,
    /// Operation.
    pub kind: PostKind,
    /// Bytes, from the end's first region to its peer's; 8 for atomics.
    pub length: u32,
}

/// Operation of a [`Post`].
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum PostKind {
    /// A receive request.
    Receive,
    /// SEND.
    Send,
    /// RDMA WRITE.
    Write,
    /// RDMA WRITE with a chosen R_Key.
    WriteWithKey(RKey),
    /// RDMA READ.
    Read,
    /// Fetch and add.
    FetchAdd(u64),
    /// Compared and swapped-in value.
    CompareSwap(u64, u64),
}
