//! Local knowledge of an unresponsive peer.

use std::net::IpAddr;

use roce_transport::{addr::Gid, event::DropReason};

use super::contexts::open_contexts;
use crate::publish::published_counters;

/// This user's devices at the address; `None` if a loopback address has none.
pub(super) fn about_peer(address: IpAddr) -> Option<Vec<String>> {
    let gid = Gid::from(address);
    let own = open_contexts().into_iter().filter(|context| context.gids().contains(&gid));
    let mut said: Vec<_> = own
        .map(|context| {
            let counters = context.counters();
            let dropped = describe(|reason| counters.dropped(reason));
            format!("this process itself has {address} open; its device {dropped}")
        })
        .collect();
    let open = published_counters().unwrap_or_default();
    let own = std::process::id();
    let others = open.iter().filter(|device| {
        device.pid != own && device.shares_network() && device.gids.contains(&gid.to_string())
    });
    said.extend(others.map(|device| {
        let dropped = |reason: DropReason| {
            let counter = device.counters.iter().find(|counter| counter.name == reason.name());
            counter.map_or(0, |counter| counter.value)
        };
        format!(
            "{} (process {}) has {address}; its device {}",
            device.program,
            device.pid,
            describe(dropped)
        )
    }));
    (!said.is_empty() || !address.is_loopback()).then_some(said)
}

fn describe(dropped: impl Fn(DropReason) -> u64) -> String {
    let parts: Vec<_> = DropReason::ALL
        .iter()
        .map(|&reason| (reason, dropped(reason)))
        .filter(|&(_, number)| number > 0)
        .map(|(reason, number)| format!("{number} × {reason}"))
        .collect();
    match parts.is_empty() {
        true => "has dropped nothing".to_owned(),
        false => format!("has dropped {}", parts.join(", ")),
    }
}
