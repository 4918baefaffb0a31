#[cfg(target_os = "linux")]
mod figures;
#[cfg(target_os = "linux")]
mod keys;

use std::{
    fs,
    io::{IsTerminal, stdin, stdout},
    path::{Path, PathBuf},
};

use roce_world::{
    Line, MOST_RECORDS, SCENARIOS, Scenario, Script, ScriptError, SentDatagram, Settings, Tone,
    Viewer, play, play_script,
};

use crate::{failure::Failure, ladder::Ladder, output::outln};

#[cfg(not(target_os = "linux"))]
use crate::non_linux::{Capture, create_capture, keys};
#[cfg(target_os = "linux")]
use roce::link::Capture;

/// Watch adapters talk to each other.
///
/// Plays scenarios, each a page long: two to four adapters and a simulated network, in virtual
/// time. A ladder shows every packet, the reason that it was sent, and the receiver's verdict, as
/// the adapters recorded them. The output is the same each time.
///
/// Without options: a SEND, a WRITE, a READ, a lost packet, a connection by CM messages. On Linux,
/// figures of two adapters follow, over UDP sockets on this host's loopback. Needs no privilege and
/// no set-up.
#[derive(clap::Args)]
pub(crate) struct Args {
    /// Plays this scenario alone
    #[arg(long, value_name = "NAME", conflicts_with = "list")]
    scenario: Option<String>,
    /// Plays the script in this file, in the playground's syntax
    #[arg(long, value_name = "FILE", conflicts_with_all = ["scenario", "list"])]
    script: Option<PathBuf>,
    /// Lists all scenarios
    #[arg(long)]
    list: bool,
    /// Seed of random marks and losses, in `congestion` and scripts
    #[arg(long, value_name = "N", default_value_t = 1, conflicts_with = "list")]
    seed: u64,
    /// Waits for a key after each event; q ends
    #[arg(long, conflicts_with = "list")]
    step: bool,
    /// Captures every packet into this pcapng file
    #[arg(long, value_name = "FILE", conflicts_with = "list")]
    pcap: Option<PathBuf>,
}

/// Default scenarios.
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
    let settings = Settings { seed: args.seed, ..Settings::default() };
    if let Some(path) = &args.script {
        let script = read_script(path)?;
        let title = format!("script: {}", path.display());
        let mut printer = printer(&title, script.ends, args.step, capture)?;
        let settings = Settings { most_records: MOST_RECORDS, ..settings };
        return play_script(&script, &settings, &mut printer)?.1;
    }
    let names = args.scenario.as_deref().map_or_else(|| TOUR.to_vec(), |name| vec![name]);
    for name in names {
        let scenario = find(name)?;
        let title = format!("{}: {}", scenario.name, scenario.title);
        let mut printer = printer(&title, scenario.ends, args.step, capture.take())?;
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

fn printer(
    title: &str,
    ends: usize,
    step: bool,
    capture: Option<Capture>,
) -> Result<Printer, Failure> {
    if step && !stdin().is_terminal() {
        return Err("--step needs a terminal on standard input; omit it".into());
    }
    let ladder = Ladder::on(&stdout()).of(ends);
    outln!("{}", ladder.prose(title, Tone::Strong).join("\n"));
    Ok(Printer { ladder, step, capture, heads_due: true })
}

fn read_script(path: &Path) -> Result<Script, Failure> {
    let text = fs::read_to_string(path);
    let text = text.map_err(|error| format!("--script: {}: {error}", path.display()))?;
    let script = text.parse();
    Ok(script.map_err(|error: ScriptError| format!("--script: {}: {error}", path.display()))?)
}

fn find(name: &str) -> Result<&'static Scenario, Failure> {
    SCENARIOS
        .iter()
        .find(|scenario| scenario.name == name)
        .ok_or_else(|| format!("unknown scenario {name:?}; `roce demo --list` lists them").into())
}

struct Printer {
    ladder: Ladder,
    step: bool,
    capture: Option<Capture>,
    heads_due: bool,
}

impl Viewer for Printer {
    fn say(&mut self, text: &str) -> Result<(), Failure> {
        outln!("");
        outln!("{}", self.ladder.prose(text, Tone::Plain).join("\n"));
        self.heads_due = true;
        Ok(())
    }

    fn figures(&mut self, text: &str) -> Result<(), Failure> {
        outln!("{text}");
        Ok(())
    }

    fn line(&mut self, line: Line) -> Result<(), Failure> {
        if std::mem::take(&mut self.heads_due) {
            outln!("");
            outln!("{}", self.ladder.letters());
        }
        outln!("{}", self.ladder.event(line.at, &line.event, line.tone).join("\n"));
        if self.step { keys::wait() } else { Ok(()) }
    }

    fn datagram(&mut self, datagram: &SentDatagram<'_>) -> Result<(), Failure> {
        if let Some(capture) = &mut self.capture {
            let comment = datagram.verdict.lost.then(|| "lost on the way".into());
            capture.write(datagram.at, datagram.net, datagram.bytes, comment)?;
        }
        Ok(())
    }
}
