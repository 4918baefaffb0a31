use std::{error::Error, fs, path::Path, time::Duration};

use super::{
    event_loop,
    figures::{Kind, Table},
    others::UCX_SHARED,
    yardsticks::{COPY, COPYING_PUMP, COPYING_PUMP_1024, PUMP, PUMP_1024, UDP},
};

/// Marks around the tables.
const BEGIN: &str = "<!-- measured -->\n";
const END: &str = "<!-- end of what was measured -->\n";

/// Only the plot shows these sizes.
const IN_PLOT: [usize; 2] = [512, 8 << 20];

/// Tables omit quartiles up to this ratio.
const SPREAD: f64 = 1.1;

/// Quantity, ours, yardstick, and the ratio that only a fault reaches: about three times worse than
/// the worst that is usual.
const RATIOS: [(Kind, &str, &str, f64); 13] = [
    (Kind::Throughput, "roce WRITE, sockets", PUMP, 0.02),
    (Kind::Throughput, "roce WRITE, sockets, MTU 1024", PUMP_1024, 0.02),
    (Kind::Throughput, "roce WRITE, sockets", COPYING_PUMP, 0.04),
    (Kind::Throughput, "roce WRITE, sockets, MTU 1024", COPYING_PUMP_1024, 0.04),
    (Kind::Throughput, "roce WRITE, shared memory", COPY, 0.003),
    (Kind::Latency, "roce SEND, sockets", UDP, 6.0),
    (Kind::Latency, "roce WRITE, sockets", "roce SEND, sockets", 3.0),
    (Kind::Latency, "roce WRITE, shared memory", "roce SEND, shared memory", 3.0),
    (Kind::Latency, "roce SEND, shared memory", UCX_SHARED, 18.0),
    (Kind::EventLoop, event_loop::SHARED, event_loop::TCP, 0.2),
    (Kind::EventLoop, event_loop::SOCKETS, event_loop::TCP, 0.12),
    (Kind::EventLoop, event_loop::SHARED_ONE, event_loop::TCP_ONE, 0.3),
    (Kind::EventLoop, event_loop::SOCKETS_ONE, event_loop::TCP_ONE, 0.2),
];

/// Ratios beyond their bound.
pub(crate) fn faults(tables: &[Table]) -> Vec<String> {
    let mut faults = Vec::new();
    for table in tables {
        let is_fault = |ratio: f64, bound| match table.kind {
            Kind::Latency => ratio > bound,
            _ => ratio < bound,
        };
        for &(_, ours, yardstick, bound) in RATIOS.iter().filter(|(kind, ..)| *kind == table.kind) {
            for &size in table.sizes {
                let ratio = table.ratio(ours, yardstick, size);
                if let Some(ratio) = ratio.filter(|ratio| is_fault(*ratio, bound)) {
                    faults.push(format!("{ours} : {yardstick}, {size}: {ratio:.3}, bound {bound}"));
                }
            }
        }
    }
    faults
}

pub(crate) fn text(tables: &[Table], absent: &[String], rounds: usize, time: Duration) -> String {
    let mut text = format!(
        "{}. Medians of {rounds} interleaved rounds in one run of {:.0} s, quartiles in brackets if over 10 % apart.\n\n",
        machine(),
        time.as_secs_f64()
    );
    for table in tables {
        let (title, first) = match table.kind {
            Kind::Throughput => ("Throughput, GB/s (10^9 bytes)", "bytes"),
            Kind::Latency => ("Latency, µs, one way", "bytes"),
            Kind::QueuePairs => (
                "Throughput with many queue pairs, GB/s, 128 messages outstanding or two of each",
                "queue pairs",
            ),
            Kind::Messages => (
                "Messages of 64 B with many queue pairs, million a second, 128 outstanding on each",
                "queue pairs",
            ),
            Kind::Shards => (
                "Messages of 64 B of two threads, each with half of the queue pairs, million a second, 128 \
                 outstanding on each, by shards",
                "queue pairs",
            ),
            Kind::EventLoop => (
                "Event loops, a message of 64 B going back and forth on each connection, thousand round trips a \
                 second",
                "connections",
            ),
        };
        text += &format!("{title}:\n\n| {first} |{}", columns(table));
        text += &format!("\n|---|{}\n", "---:|".repeat(sizes(table).count()));
        for name in &table.names {
            let cells = sizes(table).map(|size| {
                let Some(cell) = table.cell(name, size) else { return " – |".to_owned() };
                let [median, low, high] = [cell.median, cell.low, cell.high].map(short);
                if cell.high <= SPREAD * cell.low {
                    return format!(" {median} |");
                }
                format!(" {median} ({low}–{high}) |")
            });
            text += &format!("| {name} |{}\n", cells.collect::<String>());
        }
        text.push('\n');
    }
    text += "Ratios of medians:\n\n";
    for table in tables {
        let ratios = RATIOS.iter().filter(|(kind, ours, yardstick, _)| {
            *kind == table.kind && [ours, yardstick].iter().all(|name| table.names.contains(name))
        });
        let ratios: Vec<_> = ratios.collect();
        if ratios.is_empty() {
            continue;
        }
        let quantity = match table.kind {
            Kind::Latency => "latency (less is better)",
            _ => "throughput (more is better)",
        };
        text += &format!("| {quantity} |{}", columns(table));
        text += &format!("\n|---|{}\n", "---:|".repeat(sizes(table).count()));
        for (_, ours, yardstick, _) in ratios {
            text += &format!("| {ours} : {yardstick} |");
            for size in sizes(table) {
                let ratio = table.ratio(ours, yardstick, size);
                text += &ratio.map_or_else(|| " – |".to_owned(), |ratio| format!(" {ratio:.2} |"));
            }
            text.push('\n');
        }
        text.push('\n');
    }
    for line in absent {
        text += &format!("{line}.\n");
    }
    text
}

fn columns(table: &Table) -> String {
    let by_size = table.kind.is_by_size();
    let head = |size| if by_size { bytes(size) } else { size.to_string() };
    sizes(table).map(|size| format!(" {} |", head(size))).collect()
}

fn sizes(table: &Table) -> impl Iterator<Item = usize> {
    let by_size = table.kind.is_by_size();
    table.sizes.iter().copied().filter(move |size| !by_size || !IN_PLOT.contains(size))
}

pub(crate) fn write(page: &Path, text: &str) -> Result<(), Box<dyn Error>> {
    let whole = fs::read_to_string(page)?;
    let marked = whole.split_once(BEGIN).and_then(|(before, rest)| {
        let (_, after) = rest.split_once(END)?;
        Some((before, after))
    });
    let (before, after) = marked.ok_or_else(|| {
        format!("{} lacks the lines between which tables stand: {BEGIN}{END}", page.display())
    })?;
    fs::write(page, format!("{before}{BEGIN}\n{}\n{END}{after}", text.trim_end()))?;
    Ok(())
}

fn machine() -> String {
    let processors = fs::read_to_string("/proc/cpuinfo").unwrap_or_default();
    let of = |name: &str| {
        let line = processors.lines().find(|line| line.starts_with(name));
        line.and_then(|line| line.split_once(": ")).map_or("?", |(_, value)| value)
    };
    let count = std::thread::available_parallelism().map_or(1, usize::from);
    let kernel = fs::read_to_string("/proc/sys/kernel/osrelease").unwrap_or_default();
    let guest = of("flags").split(' ').any(|flag| flag == "hypervisor");
    format!(
        "{count} processors of {} ({} MHz){}, Linux {}, roce {}",
        of("model name"),
        of("cpu MHz").split('.').next().unwrap_or_default(),
        if guest { " in a virtual machine" } else { "" },
        kernel.trim(),
        env!("CARGO_PKG_VERSION")
    )
}

pub(crate) fn bytes(size: usize) -> String {
    match size {
        1_048_576.. => format!("{} MiB", size >> 20),
        1024.. => format!("{} KiB", size >> 10),
        _ => format!("{size} B"),
    }
}

fn short(value: f64) -> String {
    match value {
        100.0.. => format!("{value:.0}"),
        10.0.. => format!("{value:.1}"),
        0.1.. => format!("{value:.2}"),
        _ => format!("{value:.3}"),
    }
}
