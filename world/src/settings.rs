//! A player's choices: chance, the network, single packets, requests of their own.

use std::{collections::BTreeMap, time::Duration};

use roce_transport::mem::RKey;

use crate::line::End;

/// Records after which a play of somebody's own is ended: more is no lesson.
pub const MOST_RECORDS: usize = 20_000;

/// Choices of a player. By default nothing is changed.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Settings {
    /// Seed of the network's chance. 1 by default.
    pub seed: u64,
    /// Clauses of a [`FaultPlan`](roce_fabric::FaultPlan), in place of the delay of five
    /// microseconds; the scenario's own clauses follow. A port of it stands in place of the
    /// scenario's.
    pub network: Option<String>,
    /// Fates of single datagrams, by their numbers.
    pub fates: BTreeMap<u64, Fate>,
    /// Requests besides the scenario's, in the order of [`Post::after`].
    pub posts: Vec<Post>,
    /// Records after which it is ended: what is asked for may go on for ever. No limit by default.
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

/// Fate of a datagram, instead of what rules and chance would have.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Fate {
    /// It arrives, if the ports on its way have room.
    Pass,
    /// It is lost.
    Lose,
    /// It takes so much longer.
    Hold(Duration),
    /// It arrives twice.
    Double,
    /// The lowest bit of this byte of the UDP payload is flipped; beyond its end, counting goes on
    /// at its start.
    Damage(usize),
}

/// A request that a player posts.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Post {
    /// Lines of the ladder after which it is posted: when the call of the adapter that gave the
    /// last of them is over. Beyond the scenario's end: at its end.
    pub after: usize,
    /// The end.
    pub end: End,
    /// Its queue pair, counted from 0 in the order of making.
    pub queue_pair: usize,
    /// The operation.
    pub kind: PostKind,
    /// Bytes, from the start of the end's first memory region to the start of its peer's. Atomics
    /// have 8.
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
    /// RDMA WRITE with this R_Key.
    WriteWithKey(RKey),
    /// RDMA READ.
    Read,
    /// Fetch and add of this.
    FetchAdd(u64),
    /// Compare and swap: of the first by the second.
    CompareSwap(u64, u64),
}
