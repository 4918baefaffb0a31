//! `roce run`: starts a program of libibverbs or librdmacm on this adapter.

mod bundled;
mod child;
mod fail_each;
mod live;
mod mounts;
mod program;
mod refusal;
mod sysfs;

use std::{
    env,
    ffi::{OsStr, OsString},
    iter,
    os::unix::{
        ffi::{OsStrExt, OsStringExt},
        process::CommandExt,
    },
    path::{Path, PathBuf},
    process::{Command, ExitCode},
};

use roce::{
    Checks, Device, EnvironmentError, OpenOptions, Profile, Reaper,
    environment::{
        self, AS, CHECK, CHECK_SUPPRESSIONS, CONTROL, DEVICES, EXPLAIN, FAULT, FAULT_SEED, PCAP,
        RECEIVE_BUFFER, SYSFS, VARIABLES, Variable,
    },
    faults::FaultRules,
};

use crate::{
    failure::fail,
    library,
    output::{errln, outln},
};
use live::Live;
use refusal::{NOT_EXECUTABLE, Refusal};

/// Run a program of libibverbs or librdmacm.
///
/// The program and its children load roce instead of libibverbs.so.1 and librdmacm.so.1. The
/// program replaces this command (exec). With --reaper or --ladder, this command stays, forwards
/// signals, and ends with the program's exit status, or 128 plus the number of its fatal signal.
///
/// Exit status 2: wrong options; 126: the program cannot be executed; 127: there is no such
/// program; 99: --check found something in a program that ended with 0. With --fail-each: 0, or 1
/// if a run crashed or did not end.
#[derive(clap::Args)]
#[command(after_long_help = variables())]
pub(crate) struct Args {
    /// A device that the program finds; repeatable
    ///
    /// A name from `roce devinfo`, the name of a network interface, udp:ADDRESS, or
    /// raw:INTERFACE[,ip=ADDRESS/LENGTH…]. By default the devices of ROCE_DEVICES, or all.
    #[arg(short, long, value_name = "DEV")]
    device: Vec<String>,
    /// Be connectx-5, e810, …; list shows them
    ///
    /// The devices get the names, attributes, limits and errors of an adapter: connectx-5,
    /// connectx-6dx, connectx-7, bluefield-2, e810, erdma, rxe, or the path of a profile. list
    /// prints the adapters and runs nothing. See docs/guide/adapters.md.
    #[arg(long = "as", value_name = "ADAPTER")]
    adapter: Option<String>,
    /// Capture every packet into this pcapng file
    ///
    /// %d in the name is the device, %p the process. Further devices and processes get FILE.2,
    /// FILE.3, …
    #[arg(long, value_name = "FILE")]
    pcap: Option<PathBuf>,
    /// Draw every packet on stderr, with its reason
    ///
    /// At the end: findings and figures, as `roce explain` prints them.
    #[arg(long, conflicts_with_all = ["pcap", "fail_each"])]
    ladder: bool,
    #[command(flatten)]
    faults: FaultArgs,
    #[command(flatten)]
    each: fail_each::EachArgs,
    /// Explain on stderr why a call or queue pair fails
    ///
    /// The broken rule, the peer's response, the last 16 events, and what to look at. json: one
    /// object a line.
    #[arg(long, value_name = "FORM", num_args = 0..=1, require_equals = true)]
    #[arg(default_missing_value = "text", value_parser = ["text", "json"], hide_possible_values = true)]
    explain: Option<String>,
    #[command(flatten)]
    checks: CheckArgs,
    /// Receive buffer of each socket
    ///
    /// In bytes, as ROCE_RECEIVE_BUFFER. Linux grants 212992 by default; `roce devinfo` shows the
    /// grant.
    #[arg(long, value_name = "BYTES")]
    receive_buffer: Option<usize>,
    /// Disconnect the peers of a killed program
    ///
    /// This command stays while the program runs. Without --reaper, only other programs of the user
    /// at the same address, and peers on this host, learn of the end.
    #[arg(long)]
    reaper: bool,
    /// Show the devices in /sys and /dev (UCX, NCCL)
    ///
    /// /sys/class/infiniband and /dev/infiniband, for this program only. It needs a mount
    /// namespace; users other than root need a user namespace.
    #[arg(long)]
    sysfs: bool,
    /// Carry TCP over rsockets where both sides can
    ///
    /// Loads librspreload.so, beside the library. A peer without it gets TCP.
    #[arg(long)]
    sockets: bool,
    #[command(flatten)]
    libraries: LibraryArgs,
    /// The program and its arguments
    #[arg(required_unless_present = "adapter", trailing_var_arg = true, value_name = "PROGRAM")]
    command: Vec<OsString>,
}

/// The library, and names for it.
#[derive(clap::Args)]
struct LibraryArgs {
    /// Library that replaces libibverbs and librdmacm
    ///
    /// Default: ROCE_LIBRARY, libroce_abi.so beside this command or in ../lib/roce, or the embedded
    /// one.
    #[arg(long, value_name = "FILE", hide_short_help = true)]
    library: Option<PathBuf>,
    /// Another name of libibverbs or librdmacm; repeatable
    ///
    /// For programs that bundle a copy (libibverbs-1de1263b.so.1.14.48.0). Copies in the program's
    /// Python environment are found without this option.
    #[arg(long, value_name = "NAME", hide_short_help = true)]
    also: Vec<OsString>,
}

/// Faults.
#[derive(clap::Args)]
struct FaultArgs {
    /// Damage packets, fail calls: "drop 1%"
    ///
    /// Further rules: "rnr 10%", "delay 2ms", "drop psn 260..264 once", "corrupt 0.1% rx", "fail
    /// create_cq nth 2 ENOMEM"; several with commas between them. See docs/guide/faults.md.
    #[arg(long, value_name = "RULES")]
    fault: Vec<String>,
    /// Seed of the random faults
    #[arg(long, value_name = "NUMBER", requires = "fault")]
    seed: Option<u64>,
    /// Take rules of `roce fault` while it runs
    ///
    /// PATH names the control socket, for tests that use it themselves; %p is the process. A file
    /// that is no socket is not replaced.
    #[arg(long, value_name = "PATH", num_args = 0..=1, require_equals = true)]
    #[arg(default_missing_value = "1")]
    control: Option<String>,
}

/// Checks.
#[derive(clap::Args)]
struct CheckArgs {
    /// Find what works only by luck
    ///
    /// Buffers changed too early, queues that can overrun, lost wake-ups, leaked objects. Findings
    /// appear on stderr, with a summary; a program that would end with 0 ends with 99. json: one
    /// object a line; sarif: one document at the end; file=NAME: output there. reorder: place
    /// arriving bytes in any order; delay: late completions and events; seed=NUMBER repeats both.
    /// With commas: --check=json,reorder,seed=7
    #[arg(long, value_name = "WORDS", num_args = 0..=1, require_equals = true)]
    #[arg(default_missing_value = "text")]
    check: Option<String>,
    /// With --check: a file of findings to omit
    ///
    /// One name a line, and perhaps a line of its stack, with * for anything.
    #[arg(long, value_name = "FILE", requires = "check", hide_short_help = true)]
    suppressions: Option<PathBuf>,
}

/// Help on variables, with and without an option.
fn variables() -> String {
    let mut text = "Variables of the environment:".to_owned();
    for Variable { name, option, default, help } in VARIABLES {
        let option = if option.is_empty() { String::new() } else { format!("{option}; ") };
        text += &format!("\n  {name} [{option}default: {default}]\n         {help}");
    }
    text
}

/// Returns if the program cannot be started, or has ended.
pub(crate) fn run(args: &Args) -> ExitCode {
    if args.adapter.as_deref() == Some("list") && args.command.is_empty() {
        return list_adapters();
    }
    start(args).unwrap_or_else(|Refusal { status, line }| {
        errln!("roce: {line}");
        ExitCode::from(status)
    })
}

fn list_adapters() -> ExitCode {
    for name in Profile::built_in() {
        if let Ok(profile) = Profile::named(name) {
            outln!("{name:<13} {}", profile.title());
        }
    }
    ExitCode::SUCCESS
}

fn start(args: &Args) -> Result<ExitCode, Refusal> {
    let (name, arguments) = args.command.split_first().ok_or("name a program")?;
    let profile = profile(args)?;
    let devices = devices(args, profile.as_ref())?;
    let mut configured = configured(args)?;
    let library = library::find(args.libraries.library.as_deref())?;
    let path = program::find(name)?;
    let mut also = bundled::names(&path);
    for name in &args.libraries.also {
        also.insert(bundled::check(name).map_err(|error| format!("--also: {error}"))?);
    }
    if let Some(why) = library::unfit(&path, &library) {
        let line = format!("{} {why}", path.display());
        return Err(Refusal { status: NOT_EXECUTABLE, line });
    }
    let directory = library::directory(&library, &also)?;
    if args.sysfs {
        mounts::enter(&devices, profile.as_ref())?;
        configured.env(SYSFS, sysfs::CLASS);
    }
    configured.env("LD_LIBRARY_PATH", before(&directory, env::var_os("LD_LIBRARY_PATH")));
    let mut preloaded = env::var_os("LD_PRELOAD");
    if args.sockets {
        preloaded = Some(before(&library::sockets(&library)?, preloaded));
    }
    if args.sockets || !also.is_empty() {
        configured.env("LD_PRELOAD", bundled::preloading(&also, preloaded));
    }
    if args.each.fail_each.is_some() {
        return fail_each::run(&args.each, || configured.command(&path, name, arguments));
    }
    let live = args.ladder.then(Live::new).transpose();
    let live = live.map_err(|error| format!("--ladder: {error}"))?;
    if let Some(live) = &live {
        configured.env(PCAP, live.pattern());
    }
    let mut command = configured.command(&path, name, arguments);
    let result = if args.reaper || live.is_some() {
        let reaper = args.reaper.then(Reaper::new).transpose();
        reaper.and_then(|reaper| child::run(command, reaper, live))
    } else {
        Err(command.exec())
    };
    result.map_err(|error| Refusal {
        status: NOT_EXECUTABLE,
        line: format!("cannot execute {}: {}", path.display(), program::explain(&error)),
    })
}

fn profile(args: &Args) -> Result<Option<Profile>, Refusal> {
    Ok(match &args.adapter {
        Some(name) => Some(Profile::named(name).map_err(|error| format!("--as: {error}"))?),
        None => environment::profile()?,
    })
}

fn devices(args: &Args, profile: Option<&Profile>) -> Result<Vec<Device>, Refusal> {
    let named = if args.device.is_empty() {
        // the library reports the rest
        environment::devices_here(profile).map(|(devices, _)| devices)
    } else {
        environment::devices_as(&args.device.join(","), profile)
    };
    Ok(named.map_err(|error| match error {
        EnvironmentError::Device(error) if !args.device.is_empty() => format!("--device: {error}"),
        error => error.to_string(),
    })?)
}

#[derive(Default)]
struct Configured(Vec<(&'static str, OsString)>);

impl Configured {
    fn env(&mut self, name: &'static str, value: impl Into<OsString>) {
        self.0.push((name, value.into()));
    }

    fn command(&self, path: &Path, name: &OsStr, arguments: &[OsString]) -> Command {
        let mut command = Command::new(path);
        command.arg0(name).args(arguments).envs(self.0.iter().cloned());
        command
    }
}

fn configured(args: &Args) -> Result<Configured, Refusal> {
    let mut configured = Configured::default();
    if !args.device.is_empty() {
        configured.env(DEVICES, args.device.join(","));
    }
    if let Some(name) = &args.adapter {
        let is_path = !Profile::built_in().any(|known| known == name);
        let absolute = || std::path::absolute(name).map_err(|error| format!("--as: {error}"));
        configured.env(AS, if is_path { absolute()?.into() } else { OsString::from(name) });
    }
    if !args.faults.fault.is_empty() {
        let rules = args.faults.fault.join(", ");
        rules.parse::<FaultRules>().map_err(|error| format!("--fault: {error}"))?;
        configured.env(FAULT, rules);
    }
    if let Some(seed) = args.faults.seed {
        configured.env(FAULT_SEED, seed.to_string());
    }
    if let Some(place) = &args.faults.control {
        let place = match place.as_str() {
            "1" => place.into(),
            path => {
                std::path::absolute(path).map_err(|error| format!("--control: {path}: {error}"))?
            }
        };
        configured.env(CONTROL, place);
    }
    if let Some(form) = &args.explain {
        configured.env(EXPLAIN, if form == "json" { "json" } else { "1" });
    }
    if let Some(words) = &args.checks.check {
        let mut checks: Checks = words.parse().map_err(|error| format!("--check: {error}"))?;
        if checks.are_late() && checks.seed.is_none() {
            checks.seed = Some(checks.seed()); // one seed for all processes
            errln!("roce: --check={checks} repeats this run");
        }
        if let Some(file) =
            checks.file.as_ref().filter(|file| !file.to_string_lossy().contains("%p"))
        {
            // The program's processes append to it.
            std::fs::File::create(file)
                .map_err(|error| format!("--check: {}: {error}", file.display()))?;
        }
        configured.env(CHECK, checks.to_string());
    }
    if let Some(file) = &args.checks.suppressions {
        let refuse = |error| format!("--suppressions: {}: {error}", file.display());
        std::fs::File::open(file).map_err(refuse)?;
        configured.env(CHECK_SUPPRESSIONS, std::path::absolute(file).map_err(refuse)?);
    }
    if let Some(bytes) = args.receive_buffer {
        configured.env(RECEIVE_BUFFER, bytes.to_string());
    }
    // The environment supplies what options do not.
    if args.faults.fault.is_empty() {
        OpenOptions::from_environment()?;
    }
    let inherited = environment::value(PCAP).map(PathBuf::from);
    if let Some(pcap) = args.pcap.clone().or(inherited) {
        let absolute = std::path::absolute(&pcap).map_err(|error| format!("--pcap: {error}"))?;
        let place = absolute.parent().unwrap_or(&absolute);
        if absolute.is_dir() || !place.is_dir() && !place.as_os_str().as_bytes().contains(&b'%') {
            let problem = if absolute.is_dir() {
                "is a directory"
            } else {
                "is in a directory that does not exist"
            };
            fail!("--pcap: {} {problem}; name a file to write", pcap.display());
        }
        configured.env(PCAP, absolute);
    }
    Ok(configured)
}

/// Empty parts, the current directory, stay.
fn before(directory: &Path, rest: Option<OsString>) -> OsString {
    let own = directory.as_os_str().as_bytes();
    let rest = rest.filter(|rest| !rest.is_empty());
    let others = rest.iter().flat_map(|rest| rest.as_bytes().split(|byte| *byte == b':'));
    let list: Vec<_> = iter::once(own).chain(others.filter(|other| *other != own)).collect();
    OsString::from_vec(list.join(&b':'))
}
