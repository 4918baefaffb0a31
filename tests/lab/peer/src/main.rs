//! Interoperability peer: executes `agent.py`'s commands with this API instead of pyverbs, so a row
//! runs with either in either role.

use std::io::{self, BufRead, Write};

use clap::Parser;
use roce::{Device, OpenOptions, Quirks, fabric::FaultPlan};
use roce_agent::Agent;

#[derive(Parser)]
struct Arguments {
    /// The device, such as udp:10.77.0.1
    device: String,
    /// Faults of the link, such as "drop 5%"
    #[arg(long, default_value = "")]
    faults: FaultPlan,
    /// Seed of the faults
    #[arg(long, default_value_t = 0)]
    seed: u64,
}

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let Arguments { device, faults, seed } = Arguments::parse();
    let context = Device::named(&device)?.open(OpenOptions {
        faults,
        fault_seed: seed,
        ..OpenOptions::from_environment()?
    })?;
    // the other side is rxe
    let mut agent = Agent::new(context, Quirks { rxe_flush: true });
    let mut output = io::stdout().lock();
    for line in io::stdin().lock().lines() {
        writeln!(output, "{}", agent.execute(&line?, &|| false)?)?;
        output.flush()?;
    }
    Ok(())
}
