//! A player's choices: seed, network, fates, requests.

use std::{collections::BTreeMap, time::Duration};

use roce_transport::mem::RKey;

use crate::line::End;

/// Most records of a player's own scenario.
pub const MOST_RECORDS: usize = 20_000;

/// Choices of a player; by default nothing is changed.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Settings {
    /// Seed of the network; 1 by default.
    pub seed: u64,
    /// Clauses of a [`FaultPlan`](roce_fabric::FaultPlan) instead of the 5 µs delay; the scenario's
    /// follow. A port replaces the scenario's.
    pub network: Option<String>,
    /// Fates of datagrams by number.
    pub fates: BTreeMap<u64, Fate>,
    /// Additional requests, ordered by [`Post::after`].
    pub posts: Vec<Post>,
    /// Records after which it is stopped; no limit by default.
    pub most_records: usize,
}

impl Default for Settings {
    fn default() -> Self {
        Self {
            seed: 1,
            network: None,
            fates: BTreeMap::new(),
            posts: Vec::new(),
            most_records: usize::MAX,
        }
    }
}

/// Fate of a datagram, overriding rules and chance.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Fate {
    /// Arrives, if the ports on its way have room.
    Pass,
    /// Is lost.
    Lose,
    /// Is delayed by this.
    Hold(Duration),
    /// Arrives twice.
    Double,
    /// Has the lowest bit of this byte of its UDP payload flipped, modulo the length.
    Damage(usize),
}

/// A player's request.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Post {
    /// Ladder lines before it: posted after the last one's adapter call, or at the scenario's end.
    pub after: usize,
    /// Its end.
    pub end: End,
    /// Its queue pair, by creation from 0.
    pub queue_pair: usize,
    /// Its operation.
    pub kind: PostKind,
    /// Bytes, from the start of the end's first region to the start of its peer's; 8 for atomics.
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
    /// Compare with the first, swap in the second.
    CompareSwap(u64, u64),
}
