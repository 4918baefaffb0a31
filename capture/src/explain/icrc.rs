//! Tells damage from ways where every ICRC is wrong: rewritten addresses, or a sender without ICRC.

use std::collections::{BTreeMap, BTreeSet};

use derive_more::Display;
use roce_transport::wire::{ICRC_LEN, NetHeader, icrc_change, verify_icrc};

use super::network::Address;

/// Minimum wrong packets on a way for a cause other than damage.
const ENOUGH: usize = 4;

#[derive(Clone, Copy)]
pub(super) struct Icrc {
    pub(super) is_right: bool,
    value: u32,
    /// See [`icrc_change`].
    change: Option<u32>,
}

impl Icrc {
    pub(super) fn of(is_right: bool, bytes: &[u8]) -> Self {
        let value = bytes.last_chunk::<ICRC_LEN>().copied().unwrap_or_default();
        Self { is_right, value: u32::from_le_bytes(value), change: None }
    }

    pub(super) fn of_roce(net: &NetHeader, bytes: &[u8]) -> Self {
        let icrc = Self::of(verify_icrc(net, bytes).is_some(), bytes);
        Self { change: icrc_change(net, bytes).filter(|_| !icrc.is_right), ..icrc }
    }
}

/// Cause of many wrong ICRCs.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Display)]
pub enum WrongIcrcs {
    /// The same change of network headers explains all.
    #[display(
        "are wrong by the same change of the headers: their addresses were rewritten, or their \
         sender computes them over other headers"
    )]
    Rewritten,
    /// All are zero.
    #[display("are zero: their sender computes none")]
    Zero,
    /// None is right.
    #[display("are all wrong: their addresses were rewritten, or their sender computes none")]
    Unknown,
}

/// ICRCs from one address to another.
#[derive(Default)]
struct Direction {
    right: usize,
    /// By packet index.
    wrong: Vec<(usize, Icrc)>,
}

#[derive(Default)]
pub(super) struct Icrcs(BTreeMap<(Address, Address), Direction>);

/// Packets of one way whose wrong ICRCs count as right.
pub(super) struct Excused {
    pub(super) way: (Address, Address),
    pub(super) packets: Vec<usize>,
    pub(super) fault: WrongIcrcs,
}

impl Icrcs {
    pub(super) fn add(&mut self, packet: usize, way: (Address, Address), icrc: Icrc) {
        let way = self.0.entry(way).or_default();
        match icrc.is_right {
            true => way.right += 1,
            false => way.wrong.push((packet, icrc)),
        }
    }

    pub(super) fn excused(&self) -> Vec<Excused> {
        let excused = self.0.iter().filter_map(|(&way, icrcs)| {
            let (packets, fault) = icrcs.excused()?;
            Some(Excused { way, packets, fault })
        });
        let mut excused: Vec<_> = excused.collect();
        // a few in the other direction share the fault
        let back: Vec<_> = excused.iter().map(|it| (it.way.1, it.way.0)).collect();
        for way in back {
            let known = excused.iter().any(|it| it.way == way);
            if let Some(icrcs) = self.0.get(&way).filter(|it| !known && it.right == 0) {
                let packets = icrcs.wrong.iter().map(|(packet, _)| *packet).collect();
                excused.push(Excused { way, packets, fault: WrongIcrcs::Unknown });
            }
        }
        excused
    }
}

impl Direction {
    fn excused(&self) -> Option<(Vec<usize>, WrongIcrcs)> {
        // retransmissions of one packet share any change
        let mut changes: BTreeMap<u32, BTreeSet<u32>> = BTreeMap::new();
        for Icrc { change, value, .. } in self.wrong.iter().map(|(_, icrc)| icrc) {
            change.map(|change| changes.entry(change).or_default().insert(*value));
        }
        let most = changes.into_iter().max_by_key(|(_, values)| values.len());
        if let Some((change, _)) = most.filter(|(_, values)| values.len() > 1) {
            let packets = self.wrong.iter().filter(|(_, icrc)| icrc.change == Some(change));
            return Some((packets.map(|(packet, _)| *packet).collect(), WrongIcrcs::Rewritten));
        }
        let none_is_right = self.right == 0 && self.wrong.len() >= ENOUGH;
        let fault = match self.wrong.iter().all(|(_, icrc)| icrc.value == 0) {
            true => WrongIcrcs::Zero,
            false => WrongIcrcs::Unknown,
        };
        let packets = self.wrong.iter().map(|(packet, _)| *packet);
        none_is_right.then(|| (packets.collect(), fault))
    }
}
