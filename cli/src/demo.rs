//! `roce demo`: two adapters and the packets between them, drawn from what both record.

mod figures;
mod keys;
mod node;
mod scenario;
mod scenarios;
mod world;

use crate::{failure::Failure, ladder::Ladder, ladder::Tone, output::outln};
use keys::Keys;
use scenario::Scenario;
use world::World;

/// Watch two adapters talk to each other.
///
/// Plays scenarios, each a page long: two adapters in virtual time, with a simulated network between
/// them, and a ladder of every packet with the reason for which it was sent and what the receiving
/// adapter made of it. What is drawn is what the adapters recorded, and it is the same each time.
///
/// Without options: a message, a WRITE, a READ, a lost packet, a connection made by messages; and
/// then some figures of two adapters on loopback addresses of this host, over UDP sockets. Needs no
/// privilege and no set-up.
#[derive(clap::Args)]
pub(crate) struct Args {
    /// Plays this scenario alone
    #[arg(long, value_name = "NAME", conflicts_with = "list")]
    scenario: Option<String>,
    /// Lists all scenarios
    #[arg(long)]
    list: bool,
    /// Waits for a key after each event; q ends
    #[arg(long, conflicts_with = "list")]
    step: bool,
    /// Writes the packets of what is played into this pcapng file, for Wireshark
    #[arg(long, value_name = "FILE", conflicts_with = "list")]
    pcap: Option<std::path::PathBuf>,
}

/// Scenarios that are played when none is asked for.
const TOUR: [&str; 5] = ["send", "write", "read", "loss", "cm"];

pub(crate) fn run(args: &Args) -> Result<(), Failure> {
    if args.list {
        for Scenario { name, title, .. } in scenario::ALL {
            outln!("{name:<18}{title}");
        }
        return Ok(());
    }
    let capture = args.pcap.as_deref().map(roce::link::Capture::create).transpose();
    let mut capture = capture.map_err(|error| format!("--pcap: {error}"))?;
    let names = args.scenario.as_deref().map_or_else(|| TOUR.to_vec(), |name| vec![name]);
    for name in names {
        let scenario = scenario::find(name)?;
        let keys = if args.step { Some(Keys::new()?) } else { None };
        let title = format!("{}: {}", scenario.name, scenario.title);
        for line in Ladder::new().prose(&title, Tone::Strong) {
            outln!("{line}");
        }
        let mut world = World::new(scenario.faults, keys, capture.take())?;
        (scenario.play)(&mut world)?;
        capture = world.finish();
        if args.scenario.is_none() {
            outln!("");
        }
    }
    if args.scenario.is_none() {
        figures::run()?;
        outln!("\nmore: roce demo --list");
    }
    Ok(())
}
