//! Throughput and latency of roce, bare sockets, memory copies, and, if installed, UCX and
//! libfabric. Rounds interleave all, as shared machines change speed.
//!
//! `cargo bench -p roce-cli --bench compare` updates docs/performance.md and docs/performance.svg.
//! It fails if a ratio to a yardstick is out of bounds.
//! `-- --short` takes under a minute and writes nothing. `-- --wire` compares UDP sockets, packet
//! sockets and AF_XDP over a veth pair; it needs root and writes nothing.

mod event_loop;
mod figures;
mod others;
mod ours;
mod page;
mod plot;
#[path = "../../../benches/pump/mod.rs"]
mod pump;
mod wire;
mod yardsticks;

use std::{
    error::Error,
    io::{IsTerminal, stderr},
    path::Path,
    time::{Duration, Instant},
};

use indicatif::{ProgressBar, ProgressStyle};

use figures::{Kind, Lane, Table};

const KIB: usize = 1 << 10;
const MIB: usize = 1 << 20;

struct Scale {
    rounds: usize,
    /// per figure
    time: Duration,
    throughput: &'static [usize],
    latency: &'static [usize],
    qps: &'static [usize],
    shards: &'static [usize],
    connections: &'static [usize],
}

const FULL: Scale = Scale {
    rounds: 5,
    time: Duration::from_millis(120),
    throughput: &[8, 64, 512, 4 * KIB, 64 * KIB, MIB, 8 * MIB],
    latency: &[8, 64, 512, 4 * KIB, 64 * KIB, MIB, 8 * MIB],
    qps: &[1, 4, 16, 64, 256],
    shards: &[2, 8, 32, 128],
    connections: &[1, 4, 20, 100],
};

const SHORT: Scale = Scale {
    rounds: 3,
    time: Duration::from_millis(60),
    throughput: &[64, 64 * KIB],
    latency: &[8],
    qps: &[1, 16],
    shards: &[32],
    connections: &[1, 20],
};

fn main() -> Result<(), Box<dyn Error>> {
    let (mut short, mut wire) = (false, false);
    for argument in std::env::args().skip(1) {
        match argument.as_str() {
            "--short" => short = true,
            "--wire" => wire = true,
            // cargo adds it
            "--bench" => {}
            other => {
                return Err(format!("{other} is no option; there are --short and --wire").into());
            }
        }
    }
    let scale = if short { SHORT } else { FULL };
    if wire {
        return wire::run(&scale);
    }
    let start = Instant::now();
    let mut lanes = ours::lanes();
    lanes.extend(event_loop::lanes());
    lanes.extend(yardsticks::lanes());
    let (found, absent) = others::lanes();
    lanes.extend(found);
    let sizes = |kind| match kind {
        Kind::Throughput => scale.throughput,
        Kind::Latency => scale.latency,
        Kind::QueuePairs | Kind::Messages => scale.qps,
        Kind::Shards => scale.shards,
        Kind::EventLoop => scale.connections,
    };
    let kinds = [
        Kind::Throughput,
        Kind::Latency,
        Kind::QueuePairs,
        Kind::Messages,
        Kind::Shards,
        Kind::EventLoop,
    ];
    let mut tables = kinds.map(|kind| {
        let names = lanes.iter().filter(|lane| lane.kind == kind).map(|lane| lane.name).collect();
        Table::new(kind, names, sizes(kind))
    });
    measure(&scale, &mut lanes, &mut tables, sizes)?;
    let text = page::text(&tables, &absent, scale.rounds, start.elapsed());
    println!("{text}");
    if !short {
        let docs = Path::new(env!("CARGO_MANIFEST_DIR")).join("../docs");
        page::write(&docs.join("performance.md"), &text)?;
        plot::draw(&docs.join("performance.svg"), &tables)?;
    }
    let faults = page::faults(&tables);
    if faults.is_empty() { Ok(()) } else { Err(faults.join("; ").into()) }
}

fn measure(
    scale: &Scale,
    lanes: &mut [Lane],
    tables: &mut [Table],
    sizes: impl Fn(Kind) -> &'static [usize],
) -> Result<(), Box<dyn Error>> {
    let count: usize = lanes.iter().map(|lane| sizes(lane.kind).len()).sum();
    let bar = ProgressBar::new((count * scale.rounds) as u64);
    bar.set_style(ProgressStyle::with_template("{wide_bar} {percent}% {eta} left {msg}")?);
    if !stderr().is_terminal() {
        bar.set_draw_target(indicatif::ProgressDrawTarget::hidden());
    }
    for _ in 0..scale.rounds {
        for lane in lanes.iter_mut() {
            for &size in sizes(lane.kind) {
                bar.set_message(lane.name);
                if lane.fits(size) {
                    let figure = (lane.measure)(size, scale.time)
                        .map_err(|error| format!("{}, {size}: {error}", lane.name))?;
                    for table in tables.iter_mut().filter(|table| table.kind == lane.kind) {
                        table.add(lane.name, size, figure);
                    }
                }
                bar.inc(1);
            }
        }
    }
    bar.finish_and_clear();
    Ok(())
}
