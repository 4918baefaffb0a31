//! Counts, output and refusals; speeds depend on the machine.

use std::{
    io::{BufRead, BufReader},
    process::{Child, Command, Output, Stdio},
    time::Duration,
};

use serde_json::Value;

const PATIENCE: Duration = Duration::from_secs(60);

fn roce(arguments: &str) -> Command {
    crate::watchdog::start(String::new);
    let mut command = Command::new(env!("CARGO_BIN_EXE_roce"));
    command.arg("perf").args(arguments.split(' '));
    command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
    command
}

fn end(child: Child) -> Output {
    crate::watchdog::programs::wait_with_output(child, PATIENCE)
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

fn printed(arguments: &str) -> String {
    let output = end(roce(arguments).spawn().unwrap());
    assert!(output.status.success(), "roce perf {arguments}: {}", text(&output.stderr));
    text(&output.stdout)
}

fn json(arguments: &str) -> Value {
    serde_json::from_str(&printed(&format!("{arguments} --local --json"))).unwrap()
}

fn error(arguments: &str) -> String {
    let output = end(roce(arguments).spawn().unwrap());
    assert!(!output.status.success(), "roce perf {arguments}: {}", text(&output.stdout));
    text(&output.stderr)
}

fn both(server: &str, client: &str) -> (Output, Output) {
    let mut server = roce(&format!("{server} -p 0")).spawn().unwrap();
    let mut line = String::new();
    let mut out = BufReader::new(server.stdout.take().unwrap());
    out.read_line(&mut line).unwrap();
    let port = line.trim().rsplit(' ').next().unwrap().to_owned();
    let client = end(roce(&format!("{client} 127.0.0.1 -p {port}")).spawn().unwrap());
    let mut rest = Vec::new();
    std::io::Read::read_to_end(&mut out, &mut rest).unwrap();
    let mut server = end(server);
    server.stdout = rest;
    (server, client)
}

#[test]
fn bandwidth_counts_every_message_of_every_queue_pair() {
    for test in ["write", "read", "send", "atomic"] {
        let size = if test == "atomic" { 8 } else { 3000 };
        let sized = if test == "atomic" { String::new() } else { format!(" -s {size}") };
        let found = json(&format!("{test}{sized} -n 40 -q 3 -t 16 -m 1024"));
        assert_eq!(found["test"], test);
        assert_eq!(found["measures"], "bandwidth");
        assert_eq!(
            (&found["mtu"], &found["qps"], &found["tx_depth"]),
            (&1024.into(), &3.into(), &16.into())
        );
        let result = &found["results"][0];
        assert_eq!((&result["bytes"], &result["messages"]), (&size.into(), &120.into()));
        let (seconds, rate) =
            (result["seconds"].as_f64().unwrap(), result["messages_per_second"].as_f64().unwrap());
        assert!((seconds * rate - 120.0).abs() < 1e-6, "{result}");
        let bytes = result["bytes_per_second"].as_f64().unwrap();
        assert!((bytes / rate - f64::from(size)).abs() < 1e-6, "{result}");
        assert_eq!(result["back"], Value::Null);
        assert_eq!(result["peak_bytes_per_second"], Value::Null, "a peak needs more messages");
    }
}

#[test]
fn both_ways_are_counted_apart() {
    for test in ["write", "read", "send", "atomic"] {
        let result = &json(&format!("{test} -n 30 -q 2 -b"))["results"][0];
        assert_eq!((&result["messages"], &result["back"]["messages"]), (&60.into(), &60.into()));
    }
}

#[test]
fn latency_is_of_each_message() {
    for (test, extra) in [
        ("write", ""),
        ("write", " --sockets -s 70000"),
        ("read", ""),
        ("send", " -e"),
        ("send", " -s 5000"),
        ("atomic", " -e"),
    ] {
        let found = json(&format!("{test} --lat -n 150{extra}"));
        assert_eq!(found["measures"], "latency");
        let result = &found["results"][0];
        assert_eq!(result["messages"], 150);
        let usec = |name: &str| result["usec"][name].as_f64().unwrap();
        assert!(0.0 < usec("min") && usec("min") <= usec("median"), "{result}");
        assert!(usec("median") <= usec("p99") && usec("p99") <= usec("max"), "{result}");
        assert!(usec("min") <= usec("average") && usec("average") <= usec("max"), "{result}");
        assert_eq!(result["usec"]["p99.9"], Value::Null, "it needs a thousand messages");
    }
}

#[test]
fn all_sizes_are_measured_with_both_ways_to_wait() {
    for events in ["", " -e"] {
        let found = json(&format!("send -a -n 3{events}"));
        let sizes: Vec<_> =
            found["results"].as_array().unwrap().iter().map(|one| &one["bytes"]).collect();
        assert_eq!(
            sizes,
            (1..=23)
                .map(|power| Value::from(1 << power))
                .collect::<Vec<_>>()
                .iter()
                .collect::<Vec<_>>()
        );
        assert_eq!(found["events"], !events.is_empty());
    }
}

#[test]
fn a_duration_ends_and_counts_what_was_complete() {
    for lat in ["", " --lat"] {
        let found = json(&format!("send -s 512 -D 0.5{lat}"));
        assert_eq!((&found["duration"], &found["iterations"]), (&0.5.into(), &Value::Null));
        assert!(found["results"][0]["messages"].as_u64().unwrap() > 0, "{found}");
    }
}

#[test]
fn two_processes_print_what_perftest_prints() {
    let (server, client) =
        both("write -s 2048 -n 100 -q 2 -F", "write -s 2048 -n 100 -q 2 --report_gbits");
    assert!(server.status.success() && client.status.success(), "{server:?} {client:?}");
    assert!(
        text(&server.stdout).contains(" 2048 bytes: done, every byte verified\n"),
        "{server:?}"
    );
    let client = text(&client.stdout);
    assert!(
        client.contains("RDMA_Write BW Test") && client.contains("Number of qps   : 2"),
        "{client}"
    );
    let (head, line) = client.trim_end().rsplit_once('\n').unwrap();
    assert!(
        head.ends_with(
            " #bytes     #iterations    BW peak[Gb/sec]    BW average[Gb/sec]   MsgRate[Mpps]"
        ),
        "{client}"
    );
    let columns: Vec<_> = line.split_whitespace().collect();
    assert_eq!((columns.len(), &columns[..3]), (5, &["2048", "200", "-"][..]), "{line}");

    let (server, client) = both("send --lat -n 100", "send --lat -n 100 --sockets");
    assert!(server.status.success() && client.status.success(), "{server:?} {client:?}");
    let client = text(&client.stdout);
    let line = client.lines().last().unwrap();
    let columns: Vec<_> = line.split_whitespace().collect();
    assert_eq!((columns.len(), columns[0], columns[1], columns[8]), (9, "2", "100", "-"), "{line}");
}

#[test]
fn threads_and_shards() {
    for test in ["write", "read", "send", "atomic"] {
        for options in ["", " --shards 3", " --sockets --shards 2", " -e --shards 2"] {
            let found = json(&format!("{test} -n 50 -q 2 --threads 3{options}"));
            assert_eq!(found["threads"], 3);
            assert_eq!(found["results"][0]["messages"], 300, "{test}{options}: {found}");
            assert_eq!(found["results"][0]["peak_bytes_per_second"], Value::Null);
        }
    }
    let words = "send -s 512 -n 100 -q 2 --threads 2";
    let (server, client) = both(words, &format!("{words} --shards 2"));
    assert!(server.status.success() && client.status.success(), "{server:?} {client:?}");
    let client = text(&client.stdout);
    assert!(client.contains(" Threads         : 2 "), "{client}");
    let columns: Vec<_> = client.lines().last().unwrap().split_whitespace().collect();
    assert_eq!(columns[..3], ["512", "400", "-"], "{client}");
    let refused = error("write --threads 2 --lat --local");
    assert!(refused.contains("cannot be used with"), "{refused}");
}

#[test]
fn sides_that_do_not_agree_both_say_which_option() {
    for (server, client, option) in [
        ("write -s 64", "write -s 65", "-s is 64 here and 65 at"),
        ("write", "read", "the test is write here and read at"),
        ("send -n 10", "send -D 1", "-n or -D is -n 10 here and -D 1 at"),
        ("send --lat", "send", "--lat is given here and not given at"),
        ("send --threads 2", "send", "--threads is 2 here and 1 at"),
    ] {
        let (served, asked) = both(server, client);
        assert!(!served.status.success() && !asked.status.success(), "{server} | {client}");
        for output in [&served, &asked] {
            let error = text(&output.stderr);
            assert!(error.ends_with("; use the same on both sides\n"), "{error}");
            assert_eq!(error.lines().count(), 1, "{error}");
        }
        assert!(text(&served.stderr).contains(option), "{served:?}");
    }
}

#[test]
fn errors_say_what_to_do() {
    for (arguments, words) in [
        ("write --local -s 0", "-s 0 is out of range; expected 1 to 2147483648 bytes"),
        (
            "write --local -m 1000",
            "1000 is not a path MTU; choose 256, 512, 1024, 2048 or 4096 with -m",
        ),
        ("atomic --local -s 16", "an atomic always has 8 bytes; omit -s and -a"),
        ("write --lat -e --local", "omit -e, or use send --lat"),
        ("write --json", "--json is an option of the client"),
        ("write 127.0.0.1 -p 1", "cannot reach a perf server at 127.0.0.1, TCP port 1"),
        ("write --local -d none", "none"),
        ("write -d none", "none"),
    ] {
        let error = error(arguments);
        assert!(error.contains(words), "roce perf {arguments}: {error}");
        assert_eq!(error.lines().count(), 1, "roce perf {arguments}: {error}");
    }
    for arguments in ["write --lat -b --local", "write -n 5 -D 1 --local", "write -s 5 -a --local"]
    {
        let error = error(arguments);
        assert!(error.contains("cannot be used with"), "roce perf {arguments}: {error}");
    }
}

#[test]
fn a_wrong_variable_is_said_first() {
    for arguments in ["write -p 0", "write 127.0.0.1 -p 1", "write --local"] {
        let output = end(roce(arguments).env("ROCE_SHARDS", "many").spawn().unwrap());
        let line = text(&output.stderr);
        assert!(line.contains("ROCE_SHARDS: \"many\" is not a number"), "{arguments}: {line}");
        assert!(!output.status.success() && output.stdout.is_empty(), "{output:?}");
    }
}
