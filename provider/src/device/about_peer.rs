//! Local knowledge of an unresponsive peer.

use std::net::IpAddr;

use roce_transport::{
    addr::Gid,
    event::{Counters, DropReason},
};

use super::contexts::open_contexts;
use crate::publish::published_counters;

/// This user's devices at the address; `None` if a loopback address has none.
pub(super) fn about_peer(address: IpAddr) -> Option<Vec<String>> {
    let gid = Gid::from(address);
    let own = open_contexts().into_iter().filter(|context| context.gids().contains(&gid));
    let mut said: Vec<_> = own
        .map(|context| {
            let dropped = describe(dropped(&context.counters()));
            format!("this process itself has {address} open; its device {dropped}")
        })
        .collect();
    let open = published_counters().unwrap_or_default();
    let own = std::process::id();
    let others = open.iter().filter(|device| {
        device.pid != own && device.shares_network() && device.gids.contains(&gid.to_string())
    });
    said.extend(others.map(|device| {
        let named = device.counters.iter().map(|counter| (counter.name.as_str(), counter.value));
        let dropped = DropReason::ALL.iter().filter_map(|&reason| {
            let value = named.clone().find(|(name, _)| *name == reason.name())?.1;
            Some((reason, value))
        });
        format!(
            "{} (process {}) has {address}; its device {}",
            device.program,
            device.pid,
            describe(dropped)
        )
    }));
    (!said.is_empty() || !address.is_loopback()).then_some(said)
}

fn dropped(counters: &Counters) -> impl Iterator<Item = (DropReason, u64)> {
    DropReason::ALL.iter().map(|&reason| (reason, counters.dropped(reason)))
}

fn describe(dropped: impl Iterator<Item = (DropReason, u64)>) -> String {
    let parts: Vec<_> = dropped
        .filter(|&(_, number)| number > 0)
        .map(|(reason, number)| format!("{number} × {reason}"))
        .collect();
    match parts.is_empty() {
        true => "has dropped nothing".to_owned(),
        false => format!("has dropped {}", parts.join(", ")),
    }
}
