//! Our side of the interoperability tests: executes with our API the commands that the guest's
//! agent (`agent.py`) executes with pyverbs, so that a row runs with either of them in either role.
//!
//! A line on standard input is a list of commands in JSON, and the answer is a line with a list of
//! as many answers. A command that fails is answered with `{"error": NAME_OF_ERRNO, "text": REASON}`
//! and has changed nothing. `command` lists them.

mod command;
mod objects;
mod translate;

use std::io::{self, BufRead, Write};

use clap::Parser;
use roce::{Device, OpenOptions, fabric::FaultPlan};

use crate::objects::{Failure, Objects};

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
        ..OpenOptions::default()
    })?;
    let mut objects = Objects::new(context);
    let mut output = io::stdout().lock();
    for line in io::stdin().lock().lines() {
        let commands: Vec<serde_json::Value> = serde_json::from_str(&line?)?;
        let answers: Vec<_> = commands
            .into_iter()
            .map(|command| {
                let command =
                    serde_json::from_value(command).map_err(|error| Failure::new("EPROTO", error));
                command
                    .and_then(|command| objects.execute(command))
                    .unwrap_or_else(Failure::into_json)
            })
            .collect();
        serde_json::to_writer(&mut output, &answers)?;
        output.write_all(b"\n")?;
        output.flush()?;
    }
    Ok(())
}
