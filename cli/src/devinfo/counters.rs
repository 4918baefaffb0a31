use std::time::{Duration, SystemTime};

use roce::{LeasedAddress, Published, PublishedCounter, published_counters};
use serde_json::{Map, Value, json};

use crate::{failure::Failure, output::outln};

pub(super) fn run(device: Option<&str>, verbose: bool, as_json: bool) -> Result<(), Failure> {
    let mut open = published_counters()?;
    if let Some(name) = device {
        open.retain(|published| published.device == name);
    }
    if as_json {
        outln!("{:#}", Value::from_iter(open.iter().map(to_json)));
    } else if open.is_empty() {
        outln!(
            "No program of this user has a device open{}.",
            if device.is_some() { " by this name" } else { "" }
        );
    } else {
        open.iter().for_each(|published| print(published, verbose));
    }
    Ok(())
}

fn print(published: &Published, verbose: bool) {
    let now = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
    let ago = |at: Duration| now.saturating_sub(at).as_secs_f64();
    let Published { device, pid, program, gids, opened, updated, counters, .. } = published;
    outln!("hca_id:\t{device}");
    outln!("\t{:<32}{program} (process {pid})", "opened by:");
    outln!("\t{:<32}{:.0} s", "open since:", ago(*opened));
    outln!("\t{:<32}{:.1} s ago", "last change:", ago(*updated));
    for (index, gid) in gids.iter().enumerate().filter(|(_, gid)| *gid != "::") {
        outln!("\t{:<32}{gid}", format!("GID[{index:3}]:"));
    }
    if let Some(leased) = &published.lease {
        outln!("\t{:<32}{}", "lease:", lease(leased));
    }
    let shown: Vec<_> = counters.iter().filter(|counter| verbose || counter.value > 0).collect();
    for PublishedCounter { name, explanation, value, .. } in &shown {
        outln!("\t{name:<24}{value:>16}  {explanation}");
    }
    if shown.len() < counters.len() {
        outln!("\t({} more are zero; -v shows them)", counters.len() - shown.len());
    }
    outln!("");
}

pub(super) fn lease(lease: &LeasedAddress) -> String {
    let now = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
    let seconds = lease.until.saturating_sub(now).as_secs();
    format!("{}/{} by DHCP from {}, for {seconds} s", lease.address, lease.length, lease.server)
}

fn to_json(published: &Published) -> Value {
    let Published { device, pid, program, gids, opened, updated, counters, .. } = published;
    let counter = |PublishedCounter { name, explanation, value, .. }: &PublishedCounter| {
        (name.clone(), json!({ "value": value, "explanation": explanation }))
    };
    json!({
        "name": device,
        "pid": pid,
        "program": program,
        "gids": gids,
        "lease": published.lease.as_ref().map(|lease| {
            json!({
                "address": lease.address,
                "length": lease.length,
                "server": lease.server,
                "until_unix_ms": lease.until.as_millis() as u64,
            })
        }),
        "opened_unix_ms": opened.as_millis() as u64,
        "updated_unix_ms": updated.as_millis() as u64,
        "counters": counters.iter().map(counter).collect::<Map<_, _>>(),
    })
}
