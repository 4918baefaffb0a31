mod args;
mod bandwidth;
mod figures;
mod latency;
mod layout;
mod plan;
mod progress;
mod side;

use std::thread;

use roce::{Context, Device};

use crate::{exchange::Exchange, failure::Failure, output::outln};
use args::TestArgs;
use figures::{Bandwidth, Figures, document};
use plan::{Amount, Plan, Test};
use side::{Side, options};

/// Measure bandwidth and latency
///
/// Start the server without SERVER, then the client with the server's name or address and the same
/// options. --local is both. On one host:
///
///     roce perf write
///     roce perf write 127.0.0.1
///
///     roce perf send --lat --local
///
/// Options and output are those of perftest (ib_write_bw, ib_send_lat and so on). The peer must be
/// roce perf: perftest's exchange differs in each version. Every received byte is verified, after
/// each size and outside the measured time. A figure that was not measured is a dash, or null in
/// JSON.
///
/// Latency of write and send is half of a round trip; of read and atomic, the time from post to
/// completion. write --lat polls memory, as ib_write_lat does.
#[derive(clap::Args)]
#[command(verbatim_doc_comment)]
pub(crate) struct Args {
    #[command(subcommand)]
    measure: Measure,
}

#[derive(clap::Subcommand)]
enum Measure {
    /// RDMA WRITE: to the server's memory
    Write(TestArgs),
    /// RDMA READ: from the server's memory
    Read(TestArgs),
    /// SEND: to receive requests of the server
    Send(TestArgs),
    /// FETCH_AND_ADD: one counter of the server's for each queue pair
    Atomic(TestArgs),
}

pub(crate) fn run(args: &Args) -> Result<(), Failure> {
    match &args.measure {
        Measure::Write(args) => measure(Test::Write, args),
        Measure::Read(args) => measure(Test::Read, args),
        Measure::Send(args) => measure(Test::Send, args),
        Measure::Atomic(args) => measure(Test::Atomic, args),
    }
}

fn measure(test: Test, args: &TestArgs) -> Result<(), Failure> {
    let plan = Plan::new(test, args)?;
    if args.json && !args.local && args.server.is_none() {
        return Err("--json is an option of the client, which has the figures; omit it here".into());
    }
    options(args)?; // Report a bad environment before contacting the peer.
    if args.local {
        return local(&plan, args);
    }
    // Report errors before contacting the peer.
    let device = named(args)?;
    match &args.server {
        Some(server) => {
            let connect = || Exchange::connect("perf", server, args.port);
            play(plan, args, device, connect)
        }
        None => {
            let listener = Exchange::listen(args.port)?;
            let port = listener.local_addr()?.port();
            outln!("waiting for a client on TCP port {port}");
            play(plan, args, device, || Exchange::accept(&listener))
        }
    }
}

fn local(plan: &Plan, args: &TestArgs) -> Result<(), Failure> {
    let exchanges = (0..plan.threads).map(|_| Exchange::pair()).collect::<Result<Vec<_>, _>>()?;
    let (clients, servers): (Vec<_>, Vec<_>) = exchanges.into_iter().unzip();
    let next = |exchanges: Vec<Exchange>| {
        let mut exchanges = exchanges.into_iter();
        move || exchanges.next().ok_or("one connection for each thread".into())
    };
    let (here, there) = (named(args)?, named(args)?);
    thread::scope(|scope| {
        let server = scope.spawn(move || {
            play(plan.clone(), args, there, next(servers)).map_err(|error| error.to_string())
        });
        let client = play(plan.clone(), args, here, next(clients));
        let server = server.join().unwrap_or_else(|_| Err("it has failed".to_owned()));
        match (client, server) {
            (Ok(()), Ok(())) => Ok(()),
            (Ok(()), Err(server)) => Err(format!("the server: {server}").into()),
            (Err(client), Ok(())) => Err(client),
            (Err(client), Err(server)) => Err(format!("{client}; the server: {server}").into()),
        }
    })
}

fn named(args: &TestArgs) -> Result<Option<Context>, Failure> {
    let open = |spec| Ok(Device::named(spec)?.open(options(args)?)?);
    args.device.as_deref().map(open).transpose()
}

fn play(
    plan: Plan,
    args: &TestArgs,
    device: Option<Context>,
    mut connect: impl FnMut() -> Result<Exchange, Failure>,
) -> Result<(), Failure> {
    let mut side = Side::new(plan, args, device, connect()?)?;
    let is_client = side.exchange.is_client;
    let mut others = Vec::new();
    for _ in 1..side.plan.threads {
        let (plan, device) = (side.plan.clone(), Some(side.context.clone()));
        others.push(Side::new(plan, args, device, connect()?)?);
    }
    let speaks = is_client || !args.local;
    if speaks && !args.json {
        head(&side);
        if is_client {
            outln!("{}", Figures::heading(&side.plan, args.report_gbits));
        }
    }
    let mut results = Vec::new();
    let mut nothing = None;
    for number in 0..side.plan.sizes.len() {
        let figures = if side.plan.latency {
            latency::round(&mut side, number)?.map(Figures::Latency)
        } else {
            all_rounds(&mut side, &mut others, number)?.map(Figures::Bandwidth)
        };
        let size = side.plan.sizes[number];
        let Some(figures) = figures else {
            if speaks {
                outln!(" {size} bytes: done, every byte verified");
            }
            continue;
        };
        if figures.messages() == 0 {
            nothing = nothing.or(Some(size));
        }
        if !args.json {
            outln!("{}", figures.line(args.report_gbits));
        }
        results.push(figures);
    }
    if args.json && is_client {
        let document = document(&side.plan, side.context.name(), side.mtu.bytes(), &results);
        outln!("{document:#}");
    }
    match (nothing, side.plan.amount) {
        (Some(size), Amount::Time(time)) => Err(format!(
            "no message of {size} bytes completed in {} seconds; use a longer -D",
            time.as_secs_f64()
        )
        .into()),
        _ => Ok(()),
    }
}

/// This thread is the first.
fn all_rounds(
    side: &mut Side,
    others: &mut [Side],
    number: usize,
) -> Result<Option<Bandwidth>, Failure> {
    let is_client = side.exchange.is_client;
    let round = |side| bandwidth::round(side, number, false).map_err(|it| it.to_string());
    let parts = thread::scope(|scope| {
        let threads: Vec<_> =
            others.iter_mut().map(|side| scope.spawn(move || round(side))).collect();
        let first = bandwidth::round(side, number, is_client);
        let failed = |_| Err("a thread panicked".to_owned());
        let rest = threads.into_iter().map(|thread| thread.join().unwrap_or_else(failed));
        let rest = rest.collect::<Result<Vec<_>, _>>();
        Ok::<_, Failure>([vec![first?], rest?].concat())
    })?;
    Ok(Bandwidth::together(&parts.into_iter().flatten().collect::<Vec<_>>()))
}

/// As perftest.
fn head(side: &Side) {
    let plan = &side.plan;
    let line = "-".repeat(87);
    let what = match (plan.latency, plan.both_ways) {
        (true, _) => "Latency Test",
        (false, true) => "Bidirectional BW Test",
        (false, false) => "BW Test",
    };
    outln!("{line}");
    outln!("                    {} {what}", plan.test.title());
    outln!(" Device          : {:<20} Transport type : RoCEv2, software", side.context.name());
    outln!(" Number of qps   : {:<20} Connection type : RC", plan.qps);
    if plan.threads > 1 {
        outln!(" Threads         : {:<20} each with so many qps", plan.threads);
    }
    let depth = if plan.latency { "1".to_owned() } else { plan.depth.to_string() };
    outln!(" TX depth        : {depth:<20} Mtu             : {}[B]", side.mtu.bytes());
    outln!(" Completions     : {}", if plan.events { "events" } else { "polled" });
    outln!("{line}");
}
