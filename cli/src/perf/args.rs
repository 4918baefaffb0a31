use std::time::Duration;

/// A day.
const LONGEST: f64 = 86_400.0;

/// Options of `roce perf write` and its like.
#[derive(clap::Args)]
pub(crate) struct TestArgs {
    /// The server; without it and --local, this is the server
    pub(super) server: Option<String>,
    /// Be both sides: two devices of this process
    #[arg(long, conflicts_with_all = ["server", "port"])]
    pub(super) local: bool,
    /// Measure latency
    ///
    /// One message at a time, each timed.
    #[arg(long, conflicts_with_all = ["bidirectional", "qps", "tx_depth", "post_list", "report_gbits"])]
    pub(super) lat: bool,
    /// Name from `roce devinfo`, or udp:ADDRESS
    ///
    /// By default the device of the TCP connection to the peer.
    #[arg(short = 'd', long, value_name = "DEV")]
    pub(super) device: Option<String>,
    /// Use sockets instead of shared memory
    #[arg(long)]
    pub(super) sockets: bool,
    /// TCP port of the server
    ///
    /// 0: a free one, which it prints.
    #[arg(short, long, default_value_t = 18515, hide_short_help = true)]
    pub(super) port: u16,
    #[command(flatten)]
    pub(super) amount: AmountArgs,
    #[command(flatten)]
    pub(super) queues: QueueArgs,
    /// Path MTU [default: the ports' largest]
    ///
    /// 256, 512, 1024, 2048 or 4096.
    #[arg(short, long)]
    pub(super) mtu: Option<u32>,
    /// Both sides send; figures for both
    #[arg(short, long)]
    pub(super) bidirectional: bool,
    /// Sleep for completions instead of polling
    #[arg(short, long)]
    pub(super) events: bool,
    /// Ignored; for compatibility with perftest
    #[arg(short = 'F', long = "CPU-freq", hide_short_help = true)]
    pub(super) frequency: bool,
    /// Gigabits a second, instead of MB/s of 2^20 bytes
    #[arg(long = "report_gbits", alias = "report-gbits", conflicts_with = "json")]
    #[arg(hide_short_help = true)]
    pub(super) report_gbits: bool,
    /// Print JSON (the client, or --local)
    ///
    /// Every figure in bytes, seconds and microseconds.
    #[arg(long)]
    pub(super) json: bool,
}

/// How much is sent.
#[derive(clap::Args)]
pub(crate) struct AmountArgs {
    /// Bytes a message [default: 65536]
    ///
    /// 1 to 2147483648; 2 by default for latency; an atomic has 8.
    #[arg(short, long, conflicts_with = "all")]
    pub(super) size: Option<u32>,
    /// All powers of two from 2 bytes to 8 MiB
    #[arg(short, long)]
    pub(super) all: bool,
    /// Messages a size and queue pair
    ///
    /// 5000 by default; 1000 for latency.
    #[arg(short = 'n', long, conflicts_with = "duration",
        value_parser = clap::value_parser!(u32).range(1..))]
    pub(super) iters: Option<u32>,
    /// Time for each size, instead of -n
    ///
    /// 10 or 0.5, for example.
    #[arg(short = 'D', long, value_name = "SECONDS", value_parser = seconds)]
    pub(super) duration: Option<Duration>,
}

/// Queues, and how full they are.
#[derive(clap::Args)]
pub(crate) struct QueueArgs {
    /// Queue pairs of each thread
    #[arg(short, long, default_value_t = 1, value_parser = clap::value_parser!(u16).range(1..=4096))]
    pub(super) qps: u16,
    /// Threads of each side
    ///
    /// Each has queue pairs, memory and a completion queue of its own.
    #[arg(long, default_value_t = 1, conflicts_with_all = ["lat", "bidirectional"],
        value_parser = clap::value_parser!(u16).range(1..=256), hide_short_help = true)]
    pub(super) threads: u16,
    /// Shards of this side's device [default: 1]
    ///
    /// The threads' queue pairs are spread over them.
    #[arg(long, value_parser = clap::value_parser!(u16).range(1..=16), hide_short_help = true)]
    pub(super) shards: Option<u16>,
    /// Messages in flight, a queue pair
    #[arg(short, long, default_value_t = 128, value_parser = clap::value_parser!(u16).range(1..=16_384))]
    pub(super) tx_depth: u16,
    /// Messages posted by one call, a queue pair
    #[arg(short = 'l', long = "post_list", alias = "post-list", default_value_t = 1, value_name = "SIZE",
        value_parser = clap::value_parser!(u16).range(1..=16_384), hide_short_help = true)]
    pub(super) post_list: u16,
}

fn seconds(text: &str) -> Result<Duration, String> {
    let seconds = text.parse().ok().filter(|seconds| (1e-3..=LONGEST).contains(seconds));
    seconds
        .map(Duration::from_secs_f64)
        .ok_or_else(|| format!("not a duration; expected seconds from 0.001 to {LONGEST}"))
}
