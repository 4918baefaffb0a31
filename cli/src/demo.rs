//! `roce demo`: two adapters and the packets between them, drawn from what both record.

#[cfg(target_os = "linux")]
mod figures;
#[cfg(target_os = "linux")]
mod keys;
mod viewer;

use std::io::stdout;

use roce_world::{SCENARIOS, Scenario, Settings, Tone, play};

use crate::{failure::Failure, ladder::Ladder, output::outln};
use viewer::Printer;

#[cfg(not(target_os = "linux"))]
use crate::elsewhere::{Keys, create_capture};
#[cfg(target_os = "linux")]
use keys::Keys;
#[cfg(target_os = "linux")]
use roce::link::Capture;

/// Watch two adapters talk to each other.
///
/// Plays scenarios, each a page long: two adapters in virtual time, with a simulated network between
/// them, and a ladder of every packet with the reason for which it was sent and what the receiving
/// adapter made of it. What is drawn is what the adapters recorded, and it is the same each time.
///
/// Without options: a message, a WRITE, a READ, a lost packet, a connection made by messages; and
/// then, on Linux, some figures of two adapters on loopback addresses of this host, over UDP sockets.
/// Needs no privilege and no set-up.
#[derive(clap::Args)]
pub(crate) struct Args {
    /// Plays this scenario alone
    #[arg(long, value_name = "NAME", conflicts_with = "list")]
    scenario: Option<String>,
    /// Lists all scenarios
    #[arg(long)]
    list: bool,
    /// Seed of the network's chance, which only `congestion` has
    #[arg(long, value_name = "N", default_value_t = 1, conflicts_with = "list")]
    seed: u64,
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
        for Scenario { name, title, .. } in SCENARIOS {
            outln!("{name:<18}{title}");
        }
        return Ok(());
    }
    #[cfg(target_os = "linux")]
    let create_capture = Capture::create;
    let capture = args.pcap.as_deref().map(create_capture).transpose();
    let mut capture = capture.map_err(|error| format!("--pcap: {error}"))?;
    let names = args.scenario.as_deref().map_or_else(|| TOUR.to_vec(), |name| vec![name]);
    for name in names {
        let scenario = find(name)?;
        let keys = if args.step { Some(Keys::new()?) } else { None };
        let title = format!("{}: {}", scenario.name, scenario.title);
        let ladder = Ladder::on(&stdout());
        for line in ladder.prose(&title, Tone::Strong) {
            outln!("{line}");
        }
        let mut printer = Printer::new(ladder, keys, capture.take());
        let settings = Settings { seed: args.seed, ..Settings::default() };
        play(scenario, &settings, &mut printer)?.1?;
        capture = printer.capture;
        if args.scenario.is_none() {
            outln!("");
        }
    }
    if args.scenario.is_none() {
        #[cfg(target_os = "linux")]
        figures::run()?;
        outln!("\nmore: roce demo --list");
    }
    Ok(())
}

fn find(name: &str) -> Result<&'static Scenario, Failure> {
    SCENARIOS.iter().find(|scenario| scenario.name == name).ok_or_else(|| {
        format!("there is no scenario {name:?}; `roce demo --list` shows all of them").into()
    })
}
