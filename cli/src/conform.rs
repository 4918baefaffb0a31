mod agent;
mod diff;
mod html;
mod junit;
mod network;
mod pauses;
mod play;
mod plot;
mod remote;
mod report;
mod token;

use std::{
    fs,
    net::IpAddr,
    path::PathBuf,
    process::ExitCode,
    time::{Duration, SystemTime, UNIX_EPOCH},
};

use clap::Subcommand;
use roce_conformance::{
    Case, Chapter, Runner, Simulated, Verdict, chapters, reported, subject::Listener,
};

use crate::{
    failure::{Failure, fail},
    ladder::wrap,
    output::outln,
};
use network::Network;
use remote::Remote;
use report::Results;
use token::Token;

/// Test whether a device conforms to RoCEv2.
///
/// Sends valid and invalid packets to the device, case by case, and compares its responses,
/// completions and memory with the specification. An agent on the device's host posts work
/// requests. It is `roce conform agent DEVICE` for a device of this tool, else the program that
/// `roce conform agent --python` prints. Without an agent, `--cm PORT` tests the device of a
/// program that listens for connections.
///
/// Exit status 0: the device conforms; 1: no case could run; 2: some case was inconclusive; 3:
/// it deviates; 4: a deviation loses or exposes data.
#[derive(clap::Args)]
#[command(args_conflicts_with_subcommands = true, disable_help_subcommand = true)]
pub(crate) struct Args {
    #[command(subcommand)]
    command: Option<Command>,
    /// Address of the device under test
    #[arg(required_unless_present_any = ["list", "explain", "virtual", "dry_run"])]
    address: Option<IpAddr>,
    /// The agent's address; default: the device, port 4792
    #[arg(long, value_name = "HOST:PORT")]
    agent: Option<String>,
    /// Token that the agent printed
    ///
    /// By default ROCE_AGENT_TOKEN, hidden from other users of this host.
    #[arg(long, value_name = "HEX", requires = "address", conflicts_with = "cm")]
    token: Option<Token>,
    /// Without an agent: the port of a listening program
    ///
    /// A program that listens through rdma_cm, such as `rping -s -P`. Runs only cases that need no
    /// agent.
    #[arg(long, value_name = "PORT", requires = "address", conflicts_with = "agent")]
    cm: Option<u16>,
    /// With --cm: private data of the request
    ///
    /// Hexadecimal digits, 56 bytes at most.
    #[arg(long, value_name = "HEX", requires = "cm", value_parser = hexadecimal, hide_short_help = true)]
    cm_data: Option<PrivateData>,
    /// Local address, or raw:INTERFACE,ip=ADDRESS/LENGTH
    ///
    /// The device connects to it; default: the source address of the route. A raw device
    /// (docs/guide/raw.md) sends packets that sockets cannot.
    #[arg(long, value_name = "ADDRESS")]
    from: Option<String>,
    /// Test a device of roce in virtual time
    #[arg(long, conflicts_with_all = ["address", "agent", "cm", "from"])]
    r#virtual: bool,
    #[command(flatten)]
    choice: ChoiceArgs,
    /// List the cases
    #[arg(long)]
    list: bool,
    /// Show the rule, cost and steps of a case
    #[arg(long, value_name = "CASE")]
    explain: Option<String>,
    /// Print the packets, and send none
    #[arg(long, hide_short_help = true)]
    dry_run: bool,
    /// Repeat each case
    ///
    /// Different verdicts make a case inconclusive.
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = clap::value_parser!(u32).range(1..=1000), hide_short_help = true)]
    repeat: u32,
    /// Packets a second on average, at most
    #[arg(long, value_name = "N", default_value_t = 2000, value_parser = clap::value_parser!(u32).range(1..=1_000_000), hide_short_help = true)]
    rate: u32,
    #[command(flatten)]
    output: OutputArgs,
}

/// Which cases are played.
#[derive(clap::Args)]
struct ChoiceArgs {
    /// Cases of this file
    ///
    /// docs/guide/cases.md describes them.
    #[arg(long, value_name = "FILE")]
    cases: Option<PathBuf>,
    /// Only cases with this in the name; repeatable
    #[arg(long, value_name = "PATTERN")]
    only: Vec<String>,
    /// Skip this case; repeatable
    ///
    /// For a case that stops the device, for example.
    #[arg(long, value_name = "CASE", hide_short_help = true)]
    skip: Vec<String>,
}

/// Forms of the report, and their places.
#[derive(clap::Args)]
struct OutputArgs {
    /// Print one JSON document
    #[arg(long)]
    json: bool,
    /// Write JUnit XML, for CI systems
    #[arg(long, value_name = "FILE", hide_short_help = true)]
    junit: Option<PathBuf>,
    /// Write one static page with the packets
    #[arg(long, value_name = "FILE", hide_short_help = true)]
    html: Option<PathBuf>,
    /// Write a capture of each case into this directory
    #[arg(long, value_name = "DIR", hide_short_help = true)]
    captures: Option<PathBuf>,
}

#[derive(Subcommand)]
enum Command {
    Agent(agent::Args),
    Diff(diff::Args),
}

pub(crate) fn run(args: &Args) -> Result<ExitCode, Failure> {
    match &args.command {
        Some(Command::Agent(args)) => agent::run(args).map(|()| ExitCode::SUCCESS),
        Some(Command::Diff(args)) => diff::run(args),
        None => judge(args),
    }
}

fn judge(args: &Args) -> Result<ExitCode, Failure> {
    let chapters = chosen(args)?;
    if let Some(name) = &args.explain {
        explain(&chapters, name)?;
    } else if args.list {
        list(&chapters);
    } else if args.dry_run {
        play::dry_run(&chapters);
    } else {
        return play(args, &chapters);
    }
    Ok(ExitCode::SUCCESS)
}

fn play(args: &Args, chapters: &[Chapter]) -> Result<ExitCode, Failure> {
    let (repeat, captures) = (args.repeat, args.output.captures.as_deref());
    let pause = Duration::from_secs(1) / args.rate;
    let from = args.from.as_deref();
    let results = match (args.address, args.cm) {
        (Some(address), Some(port)) => {
            let time = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
            let private_data = args.cm_data.clone().unwrap_or_default().0;
            let listener = Listener { port, private_data, seed: time.as_micros() as u32 };
            let mut network = Network::open(address, from, Some(listener.clone()), pause)?;
            greet(&mut network, address, port)?;
            // other than the greeting's
            network.listener = Some(Listener { seed: !listener.seed, ..listener });
            play::all(&mut network, &address.to_string(), chapters, repeat, captures)?
        }
        (Some(address), None) if !args.r#virtual => {
            let mut remote =
                Remote::reach(address, args.agent.as_deref(), args.token, from, pause)?;
            play::all(&mut remote, &address.to_string(), chapters, repeat, captures)?
        }
        _ => {
            let subject = &mut Simulated::default();
            play::all(subject, "roce in virtual time", chapters, repeat, captures)?
        }
    };
    let write = |path: &PathBuf, text: String| {
        fs::write(path, text).map_err(|error| format!("cannot write {}: {error}", path.display()))
    };
    if let Some(path) = &args.output.junit {
        write(path, junit::document(&results))?;
    }
    if let Some(path) = &args.output.html {
        write(path, html::page(&results))?;
    }
    if args.output.json {
        outln!("{}", results.to_json());
    } else {
        report::print(&results);
    }
    Ok(status(&results))
}

fn greet(network: &mut Network, address: IpAddr, port: u16) -> Result<(), Failure> {
    const GREETING: &str =
        "chapter A\ncase greeting\n rule A\n cost A\n connect cm\n send dreq\n expect drep";
    let chapter = Chapter::parse("own", GREETING)?;
    match Runner::new(network).run(&chapter.cases[0]).finding {
        None => Ok(()),
        Some((_, why)) => Err(format!(
            "no program accepts connections at port {port} of {address}: {why}; start one there, \
             such as `rping -s -P -p {port}`"
        )
        .into()),
    }
}

#[derive(Clone, Default)]
struct PrivateData(Vec<u8>);

fn hexadecimal(text: &str) -> Result<PrivateData, String> {
    let is_digits = text.bytes().all(|digit| digit.is_ascii_hexdigit());
    if !is_digits || !text.len().is_multiple_of(2) || text.len() > 112 {
        return Err("write an even number of hexadecimal digits, 112 at most".into());
    }
    let byte = |at| u8::from_str_radix(&text[at..at + 2], 16).map_err(|error| error.to_string());
    (0..text.len()).step_by(2).map(byte).collect::<Result<_, _>>().map(PrivateData)
}

fn status(results: &Results) -> ExitCode {
    ExitCode::from(match results.worst() {
        Verdict::Conforms | Verdict::NotSupported => 0,
        Verdict::Inconclusive => 2,
        Verdict::Deviates => 3,
        Verdict::Harmful => 4,
    })
}

fn chosen(args: &Args) -> Result<Vec<Chapter>, Failure> {
    let mut chapters = match &args.choice.cases {
        None => chapters(),
        Some(path) => {
            let text = fs::read_to_string(path)
                .map_err(|error| format!("cannot read {}: {error}", path.display()))?;
            let name = path.file_stem().map(|stem| stem.to_string_lossy().into_owned());
            vec![Chapter::parse(name.as_deref().unwrap_or("own"), &text)?]
        }
    };
    // A network has either an agent or a listening program.
    let is_possible = |case: &Case| args.address.is_none() || case.is_by_cm() == args.cm.is_some();
    let is_chosen = |case: &Case| {
        is_possible(case)
            && (args.choice.only.is_empty()
                || args.choice.only.iter().any(|part| case.name.contains(part.as_str())))
            && !args.choice.skip.contains(&case.name)
    };
    for chapter in &mut chapters {
        chapter.cases.retain(is_chosen);
    }
    chapters.retain(|chapter| !chapter.cases.is_empty());
    if chapters.is_empty() {
        let patterns = args.choice.only.join(" or ");
        let kind = match (args.address, args.cm) {
            (Some(_), Some(_)) => " that needs no agent",
            (Some(_), None) => " that runs with an agent",
            _ => "",
        };
        fail!("no case{kind} has {patterns} in its name; see `roce conform --list`");
    }
    Ok(chapters)
}

fn list(chapters: &[Chapter]) {
    for chapter in chapters {
        outln!("{}", chapter.title);
        for case in &chapter.cases {
            outln!("  {}", case.name);
        }
    }
    let count: usize = chapters.iter().map(|chapter| chapter.cases.len()).sum();
    outln!("{count} cases");
}

fn explain(chapters: &[Chapter], name: &str) -> Result<(), Failure> {
    let mut cases = chapters.iter().flat_map(|chapter| &chapter.cases);
    let case = cases
        .find(|case| case.name == name)
        .ok_or_else(|| format!("unknown case {name}; `roce conform --list` lists them"))?;
    outln!("{}", case.name);
    for (title, text) in [("Rule", &case.rule), ("A mistake costs", &case.cost)] {
        outln!("{}", wrap(&format!("{title}: {text}"), 80).join("\n"));
    }
    outln!("Verdict on a device that deviates: {}", case.severity);
    for it in reported().iter().filter(|it| it.is_about(&case.name)) {
        let text = format!("Reported of {}: {} ({})", it.devices, it.text, it.source);
        outln!("{}", wrap(&text, 80).join("\n"));
    }
    outln!("");
    outln!("{}", case.text.trim_end());
    Ok(())
}
