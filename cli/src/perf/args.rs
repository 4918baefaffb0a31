//! Options of a measurement, as perftest has them.

use std::time::Duration;

/// Longest `-D`: a day.
const LONGEST: f64 = 86_400.0;

/// Options of `roce perf write` and its like.
#[derive(clap::Args)]
pub(crate) struct TestArgs {
    /// Name or address of the server; without it, and without --local, this is the server
    pub(super) server: Option<String>,
    /// Be both sides: two devices of this process
    #[arg(long, conflicts_with_all = ["server", "port"])]
    pub(super) local: bool,
    /// Measure latency instead of bandwidth: one message at a time, each timed by itself
    #[arg(long, conflicts_with_all = ["bidirectional", "qps", "tx_depth", "post_list", "report_gbits"])]
    pub(super) lat: bool,
    /// Device: a name from `roce devinfo`, or udp:ADDRESS. By default the one that the TCP
    /// connection to the peer uses
    #[arg(short = 'd', long, value_name = "DEV")]
    pub(super) device: Option<String>,
    /// Packets go through sockets, between programs of one host too, instead of shared memory
    #[arg(long)]
    pub(super) sockets: bool,
    /// TCP port on which the server listens; 0: one that is free, which it prints
    #[arg(short, long, default_value_t = 18515)]
    pub(super) port: u16,
    #[command(flatten)]
    pub(super) amount: AmountArgs,
    #[command(flatten)]
    pub(super) queues: QueueArgs,
    /// Path MTU: 256, 512, 1024, 2048 or 4096 [default: the most that both ports carry]
    #[arg(short, long)]
    pub(super) mtu: Option<u32>,
    /// Both sides send at once; the figures are of both ways together
    #[arg(short, long)]
    pub(super) bidirectional: bool,
    /// Sleep until a completion arrives, instead of polling
    #[arg(short, long)]
    pub(super) events: bool,
    /// Taken for perftest's sake: the processor's frequency is never looked at
    #[arg(short = 'F', long = "CPU-freq")]
    pub(super) frequency: bool,
    /// Gigabits per second, instead of MB/s of 2^20 bytes
    #[arg(long = "report_gbits", alias = "report-gbits", conflicts_with = "json")]
    pub(super) report_gbits: bool,
    /// JSON with every figure in bytes, seconds and microseconds (the client, or --local)
    #[arg(long)]
    pub(super) json: bool,
}

/// How much is sent.
#[derive(clap::Args)]
pub(crate) struct AmountArgs {
    /// Bytes per message, 1 to 2147483648 [default: 65536; 2 for latency; an atomic has 8]
    #[arg(short, long, conflicts_with = "all")]
    pub(super) size: Option<u32>,
    /// All sizes that are powers of two, from 2 bytes to 8 MiB
    #[arg(short, long)]
    pub(super) all: bool,
    /// Messages of each size and queue pair [default: 5000; 1000 for latency]
    #[arg(short = 'n', long, conflicts_with = "duration",
        value_parser = clap::value_parser!(u32).range(1..))]
    pub(super) iters: Option<u32>,
    /// Run for so many seconds with each size, such as 10 or 0.5, instead of a number of messages
    #[arg(short = 'D', long, value_name = "SECONDS", value_parser = seconds)]
    pub(super) duration: Option<Duration>,
}

/// Queues, and how full they are.
#[derive(clap::Args)]
pub(crate) struct QueueArgs {
    /// Queue pairs of each thread
    #[arg(short, long, default_value_t = 1, value_parser = clap::value_parser!(u16).range(1..=4096))]
    pub(super) qps: u16,
    /// Threads of each side, each with queue pairs, memory and a completion queue of its own
    #[arg(long, default_value_t = 1, conflicts_with_all = ["lat", "bidirectional"],
        value_parser = clap::value_parser!(u16).range(1..=64))]
    pub(super) threads: u16,
    /// Shards of the device of this side, between which the threads' queue pairs are spread
    /// [default: 1]
    #[arg(long, value_parser = clap::value_parser!(u16).range(1..=16))]
    pub(super) shards: Option<u16>,
    /// Messages outstanding at once on a queue pair
    #[arg(short, long, default_value_t = 128, value_parser = clap::value_parser!(u16).range(1..=16_384))]
    pub(super) tx_depth: u16,
    /// Messages of a queue pair that are posted with one call
    #[arg(short = 'l', long = "post_list", alias = "post-list", default_value_t = 1, value_name = "SIZE",
        value_parser = clap::value_parser!(u16).range(1..=16_384))]
    pub(super) post_list: u16,
}

fn seconds(text: &str) -> Result<Duration, String> {
    let seconds = text.parse().ok().filter(|seconds| (1e-3..=LONGEST).contains(seconds));
    seconds
        .map(Duration::from_secs_f64)
        .ok_or_else(|| format!("a number of seconds, 0.001 to {LONGEST}, is wanted"))
}
