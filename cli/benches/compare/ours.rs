use std::{
    error::Error,
    io::{BufRead, BufReader},
    process::{Child, Command, Stdio},
    time::Duration,
};

use serde_json::Value;

use super::figures::{Kind, Lane};

pub(crate) const ROCE: &str = env!("CARGO_BIN_EXE_roce");

pub(crate) fn lanes() -> Vec<Lane> {
    let sized = |kind, name, words: &'static str, result: &'static str, scale: f64| {
        Lane::new(kind, name, move |size, time| {
            Ok(perf(&format!("{words} -s {size}"), time, result)? * scale)
        })
    };
    let bytes = "/results/0/bytes_per_second";
    let usec = "/results/0/usec/median";
    let (throughput, latency) = (Kind::Throughput, Kind::Latency);
    let pairs = |name, words: &'static str| {
        Lane::new(Kind::QueuePairs, name, move |qps, time| {
            // constant total depth
            let depth = (128 / qps).max(2);
            Ok(perf(&format!("{words} -q {qps} -t {depth}"), time, bytes)? / 1e9)
        })
    };
    let messages = |name, words: &'static str| {
        Lane::new(Kind::Messages, name, move |qps, time| {
            let words = format!("{words} -s 64 -q {qps}");
            Ok(perf(&words, time, "/results/0/messages_per_second")? / 1e6)
        })
    };
    let threads = |name, words: &'static str, shards: usize| {
        Lane::new(Kind::Shards, name, move |qps, time| {
            let words = format!("{words} -s 64 -q {} --threads 2 --shards {shards}", qps / 2);
            Ok(perf(&words, time, "/results/0/messages_per_second")? / 1e6)
        })
    };
    vec![
        sized(throughput, "roce WRITE, shared memory", "write", bytes, 1e-9),
        sized(throughput, "roce WRITE, shared memory, MTU 1024", "write -m 1024", bytes, 1e-9),
        sized(throughput, "roce WRITE, sockets", "write --sockets", bytes, 1e-9),
        sized(throughput, "roce WRITE, sockets, lists of 32", "write --sockets -l 32", bytes, 1e-9),
        sized(throughput, "roce WRITE, sockets, MTU 1024", "write --sockets -m 1024", bytes, 1e-9),
        sized(throughput, "roce READ, sockets", "read --sockets", bytes, 1e-9),
        sized(latency, "roce SEND, shared memory", "send --lat", usec, 1.0),
        sized(latency, "roce WRITE, shared memory", "write --lat", usec, 1.0),
        sized(latency, "roce SEND, sockets", "send --lat --sockets", usec, 1.0),
        sized(latency, "roce WRITE, sockets", "write --lat --sockets", usec, 1.0),
        pairs("64 KiB WRITE, shared memory", "write"),
        pairs("64 KiB WRITE, sockets", "write --sockets"),
        pairs("64 KiB WRITE, sockets, MTU 1024", "write --sockets -m 1024"),
        messages("64 B WRITE, shared memory", "write"),
        messages("64 B WRITE, sockets", "write --sockets"),
        messages("64 B SEND, sockets", "send --sockets"),
        messages("64 B READ, sockets", "read --sockets"),
        threads("WRITE, shared memory, one shard", "write", 1),
        threads("WRITE, shared memory, two shards", "write", 2),
        threads("WRITE, sockets, one shard", "write --sockets", 1),
        threads("WRITE, sockets, two shards", "write --sockets", 2),
        threads("SEND, sockets, one shard", "send --sockets", 1),
        threads("SEND, sockets, two shards", "send --sockets", 2),
        threads("READ, sockets, one shard", "read --sockets", 1),
        threads("READ, sockets, two shards", "read --sockets", 2),
    ]
}

fn perf(words: &str, time: Duration, figure: &str) -> Result<f64, Box<dyn Error>> {
    perf_between([ROCE, ROCE], [words, words], "127.0.0.1", time, figure)
}

/// The first program, perhaps `roce` in another network namespace, is the server at `address`.
pub(crate) fn perf_between(
    [server, client]: [&str; 2],
    [server_words, client_words]: [&str; 2],
    address: &str,
    time: Duration,
    figure: &str,
) -> Result<f64, Box<dyn Error>> {
    let time = time.as_secs_f64();
    let mut server = Running::start(&format!("{server} perf {server_words} -D {time} -p 0"))?;
    let mut line = String::new();
    let out = server.0.stdout.take().ok_or("no output")?;
    // unread from here on; the rest fits the pipe
    let mut out = BufReader::new(out);
    out.read_line(&mut line)?;
    let port = line.trim().rsplit(' ').next().unwrap_or_default();
    let words = format!("{client} perf {client_words} -D {time} {address} -p {port} --json");
    let client = command(&words).stdin(Stdio::null()).stderr(Stdio::inherit()).output()?;
    if !client.status.success() {
        return Err(format!("{words} failed").into());
    }
    server.end()?;
    let document: Value = serde_json::from_slice(&client.stdout)?;
    document.pointer(figure).and_then(Value::as_f64).ok_or("nothing was measured".into())
}

pub(crate) fn command(line: &str) -> Command {
    let mut words = line.split(' ');
    let mut command = Command::new(words.next().unwrap_or_default());
    command.args(words);
    command
}

/// A program, killed on drop.
pub(crate) struct Running(Child);

impl Running {
    pub(crate) fn start(line: &str) -> Result<Self, Box<dyn Error>> {
        Ok(Self(command(line).stdin(Stdio::null()).stdout(Stdio::piped()).spawn()?))
    }

    pub(crate) fn end(mut self) -> Result<(), Box<dyn Error>> {
        self.0.wait()?;
        Ok(())
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}
