pub(crate) mod growing;
mod html;
mod json;
mod live;
pub(crate) mod report;

use std::{
    fs,
    io::{self, Read},
    path::PathBuf,
};

use roce::explain::Explained;

use crate::failure::{Failure, fail};
use report::Filter;

/// Explain a capture of RoCE packets.
///
/// Reads a pcap or pcapng file of any RoCE adapter, written by tcpdump, Wireshark or `roce run
/// --pcap`. Draws each connection as a ladder, with the reason of every packet if the capture
/// proves one. Then prints findings and figures: throughput, round trips, retransmissions.
///
/// `tcpdump -w - udp port 4791 | roce explain -` reads a pipe to its end. With `tcpdump -U` and
/// `--live`, packets are drawn as they arrive, until Ctrl-C.
#[derive(clap::Args)]
pub(crate) struct Args {
    /// The capture; - for standard input
    file: PathBuf,
    #[command(flatten)]
    filter: Filter,
    /// Print one JSON document, with states
    #[arg(long)]
    json: bool,
    /// Print one static page
    #[arg(long, conflicts_with = "json")]
    html: bool,
    /// Draw packets of a pipe as they arrive
    ///
    /// Findings and figures come at the end.
    #[arg(long, conflicts_with_all = ["json", "html", "state"])]
    live: bool,
}

pub(crate) fn run(args: &Args) -> Result<(), Failure> {
    let filter = &args.filter;
    if args.live {
        if args.file.as_os_str() != "-" {
            fail!("--live reads standard input only: `tcpdump -U -w - … | roce explain --live -`");
        }
        return live::run(filter);
    }
    let bytes = content(args)?;
    let explained =
        Explained::of_file(&bytes).map_err(|error| format!("{}: {error}", args.file.display()))?;
    if args.json {
        json::print(&explained, filter)
    } else if args.html {
        let name = args.file.display().to_string();
        html::print(if name == "-" { "standard input" } else { &name }, &explained, filter);
        Ok(())
    } else {
        report::print(&explained, filter);
        Ok(())
    }
}

fn content(args: &Args) -> Result<Vec<u8>, Failure> {
    let read = if args.file.as_os_str() == "-" {
        let mut bytes = Vec::new();
        io::stdin().lock().read_to_end(&mut bytes).map(|_| bytes)
    } else {
        fs::read(&args.file)
    };
    read.map_err(|error| format!("cannot read {}: {error}", args.file.display()).into())
}
