//! A departing reader, as in `roce devinfo | head -1`.

use std::{
    fs::File,
    io::pipe,
    process::{Child, Command, Stdio},
    thread::sleep,
    time::{Duration, Instant},
};

const PATIENCE: Duration = Duration::from_secs(30);

/// After SIGPIPE, in a shell.
const BROKEN_PIPE: i32 = 141;

fn roce(arguments: &str) -> Command {
    crate::watchdog::start(String::new);
    let mut command = Command::new(env!("CARGO_BIN_EXE_roce"));
    command.args(arguments.split(' ')).stdin(Stdio::null()).stderr(Stdio::piped());
    command
}

fn unread(arguments: &str) -> Child {
    let (reader, writer) = pipe().unwrap();
    drop(reader);
    roce(arguments).stdout(writer).spawn().unwrap()
}

fn end(child: Child) -> (Option<i32>, String) {
    let output = crate::watchdog::programs::wait_with_output(child, PATIENCE);
    (output.status.code(), String::from_utf8(output.stderr).unwrap())
}

#[test]
fn commands_that_print_at_once_end() {
    for arguments in [
        "demo",
        "demo --scenario congestion",
        "demo --script ../world/src/script/example.script",
        "explain ../transport/tests/captures/rc_write_mtu4096.pcap",
        "devinfo",
        "devinfo -v",
        "devinfo --json",
        "devinfo --counters",
        "conform --list",
        "conform --virtual",
        "run --as list",
        "perf send --local -n 5",
        "perf write --local --lat -n 5 --json",
        "perf read -p 0",
        "mckey -m 239.79.8.1 --device udp:127.79.8.1",
        "ucmatose --device udp:127.79.8.2",
        "udaddy --device udp:127.79.8.3",
    ] {
        let ended = end(unread(arguments));
        assert_eq!(ended, (Some(BROKEN_PIPE), String::new()), "roce {arguments}");
    }
}

#[test]
fn help_is_shown_to_nobody_without_complaint() {
    let commands = [
        "demo",
        "devinfo",
        "mckey",
        "perf",
        "perf write",
        "pingpong",
        "rping",
        "run",
        "ucmatose",
        "udaddy",
    ];
    let of_each = commands.map(|command| format!("{command} --help"));
    let all = of_each.iter().map(String::as_str).chain(["--help", "-h", "help", "--version"]);
    for arguments in all {
        let (status, error) = end(unread(arguments));
        assert!(matches!(status, Some(0 | BROKEN_PIPE)), "roce {arguments}: {status:?}");
        assert_eq!(error, "", "roce {arguments}");
    }
}

#[test]
fn servers_that_print_for_a_client_end() {
    for (server, client) in [
        (
            "pingpong rc -p 18579 -d udp:127.79.8.4",
            "pingpong rc 127.0.0.1 -p 18579 -d udp:127.79.8.5",
        ),
        (
            "rping -s -v --device udp:127.79.8.6",
            "rping -c -a 127.79.8.6 -C 3 --device udp:127.79.8.7",
        ),
    ] {
        let mut waiting = unread(server);
        let start = Instant::now();
        while waiting.try_wait().unwrap().is_none() && start.elapsed() < PATIENCE {
            // Retries until the server listens; a client may wait long for a departed server.
            let mut asking = roce(client).stdout(Stdio::null()).spawn().unwrap();
            while asking.try_wait().unwrap().is_none()
                && waiting.try_wait().unwrap().is_none()
                && start.elapsed() < PATIENCE
            {
                sleep(Duration::from_millis(5));
            }
            asking.kill().unwrap();
            let (_, error) = end(asking);
            assert!(!error.contains("panicked"), "roce {client}: {error}");
        }
        let ended = end(waiting);
        assert_eq!(ended, (Some(BROKEN_PIPE), String::new()), "roce {server}");
    }
}

#[test]
fn a_failure_that_nobody_reads_is_no_panic() {
    let (reader, writer) = pipe().unwrap();
    drop(reader);
    let status = roce("devinfo -d none").stdout(Stdio::null()).stderr(writer).status().unwrap();
    assert_eq!(status.code(), Some(1));
}

#[test]
fn a_full_disk_is_reported() {
    let full = File::options().write(true).open("/dev/full").unwrap();
    let (status, error) = end(roce("devinfo").stdout(full).spawn().unwrap());
    assert_eq!(status, Some(1));
    assert_eq!(error.lines().count(), 1, "{error}");
    assert!(error.starts_with("roce: cannot write to standard output: "), "{error}");
}
