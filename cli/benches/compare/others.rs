//! UCX and libfabric, if installed.

use std::{
    error::Error,
    net::TcpListener,
    process::{Command, Stdio},
    thread::sleep,
    time::{Duration, Instant},
};

use super::{
    figures::{Kind, Lane},
    ours::{Running, command},
};

const PATIENCE: Duration = Duration::from_secs(10);
/// Both count messages, not time: larger messages take very long.
const LARGEST: usize = 1 << 20;

pub(crate) const UCX_SHARED: &str = "UCX, shared memory";

pub(crate) fn lanes() -> (Vec<Lane>, Vec<String>) {
    let (mut lanes, mut absent) = (Vec::new(), Vec::new());
    if runs("ucx_perftest", "-h") {
        let lane = |kind, name, test, transports| {
            let measure = move |size, time| ucx(kind, test, transports, size, time);
            Lane { most: LARGEST, ..Lane::new(kind, name, measure) }
        };
        lanes.extend([
            lane(Kind::Throughput, "UCX put, TCP", "ucp_put_bw", "tcp"),
            lane(Kind::Throughput, UCX_SHARED, "ucp_put_bw", "posix,self"),
            lane(Kind::Latency, "UCX tag, TCP", "tag_lat", "tcp"),
            lane(Kind::Latency, UCX_SHARED, "tag_lat", "posix,self"),
        ]);
    } else {
        absent.push("UCX (`ucx_perftest`): not installed".to_owned());
    }
    if runs("fi_pingpong", "-h") {
        lanes.push(Lane { most: LARGEST, ..Lane::new(Kind::Latency, "libfabric, TCP", fabric) });
    } else {
        absent.push("libfabric (`fi_pingpong`): not installed".to_owned());
    }
    (lanes, absent)
}

fn runs(program: &str, help: &str) -> bool {
    let mut command = Command::new(program);
    command.arg(help).stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
    // 127: a library is missing
    command.status().is_ok_and(|status| status.code() != Some(127))
}

/// Messages that take about `time` on a typical host.
fn count(kind: Kind, size: usize, time: Duration) -> u64 {
    let (fixed, bytes) = if kind == Kind::Latency { (4e-6, 1.5e9) } else { (1e-6, 3e9) };
    ((time.as_secs_f64() / (fixed + size as f64 / bytes)) as u64).max(10)
}

fn ucx(
    kind: Kind,
    test: &str,
    transports: &str,
    size: usize,
    time: Duration,
) -> Result<f64, Box<dyn Error>> {
    let port = free_port()?;
    let program =
        format!("UCX_TLS={transports} UCX_NET_DEVICES=lo UCX_LOG_LEVEL=error ucx_perftest");
    let count = count(kind, size, time);
    let server = Running::start(&format!("env {program} -p {port}"))?;
    let words = format!(
        "env {program} 127.0.0.1 -p {port} -f -t {test} -s {size} -n {count} -w {}",
        (count / 10).max(1)
    );
    let row = row(&words)?;
    server.end()?;
    // iterations; median, average, overall µs; average, overall MB/s of 2^20
    let figure = if kind == Kind::Latency { row.get(1) } else { row.get(5) };
    let scale = if kind == Kind::Latency { 1.0 } else { f64::from(1 << 20) / 1e9 };
    Ok(figure.ok_or("ucx_perftest prints other columns than those of UCX 1.13")? * scale)
}

fn fabric(size: usize, time: Duration) -> Result<f64, Box<dyn Error>> {
    let (port, count) = (free_port()?, count(Kind::Latency, size, time));
    let common = format!("-p tcp -e msg -S {size} -I {count}");
    let server = Running::start(&format!("fi_pingpong {common} -B {port}"))?;
    let row = row(&format!("fi_pingpong {common} -P {port} 127.0.0.1"))?;
    server.end()?;
    // time per transfer is last but one; earlier columns have units
    row.iter().rev().nth(1).copied().ok_or("fi_pingpong prints other columns than 1.17".into())
}

fn free_port() -> std::io::Result<u16> {
    Ok(TcpListener::bind("127.0.0.1:0")?.local_addr()?.port())
}

/// Retries until the server listens. Returns the numbers of the last line.
fn row(words: &str) -> Result<Vec<f64>, Box<dyn Error>> {
    let start = Instant::now();
    loop {
        let output = command(words).stdin(Stdio::null()).stderr(Stdio::piped()).output()?;
        if output.status.success() {
            let text = String::from_utf8_lossy(&output.stdout).into_owned();
            let last = text
                .lines()
                .rev()
                .find(|line| line.trim_start().starts_with(|first: char| first.is_ascii_digit()));
            let fields = last.unwrap_or_default().split_whitespace();
            return Ok(fields.filter_map(|field| field.parse().ok()).collect());
        }
        if start.elapsed() > PATIENCE {
            return Err(String::from_utf8_lossy(&output.stderr).trim().to_owned().into());
        }
        sleep(Duration::from_millis(30));
    }
}
