use std::{
    fs,
    process::{Command, Stdio},
    thread::sleep,
    time::{Duration, Instant},
};

use tempfile::TempDir;

use crate::running::Running;

const PATIENCE: Duration = Duration::from_secs(20);

#[track_caller]
fn eventually(what: &str, mut holds: impl FnMut() -> bool) {
    let start = Instant::now();
    while !holds() {
        assert!(start.elapsed() < PATIENCE, "{what}");
        sleep(Duration::from_millis(5));
    }
}

struct Runtime(TempDir);

impl Runtime {
    fn new() -> Self {
        Self(tempfile::tempdir().unwrap())
    }

    fn roce(&self, arguments: &[&str]) -> Command {
        crate::watchdog::start(String::new);
        let mut command = Command::new(env!("CARGO_BIN_EXE_roce"));
        command
            .args(arguments)
            .env("XDG_RUNTIME_DIR", self.0.path())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped());
        command
    }

    fn list(&self) -> Vec<serde_json::Value> {
        let output = self.roce(&["devinfo", "--counters", "--json"]).output().unwrap();
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        serde_json::from_slice(&output.stdout).unwrap()
    }

    fn files(&self) -> usize {
        fs::read_dir(self.0.path().join("roce")).map_or(0, Iterator::count)
    }
}

#[test]
fn counters_of_other_processes() {
    let runtime = Runtime::new();
    assert_eq!(runtime.list(), Vec::<serde_json::Value>::new());
    let address = format!("127.78.{}.1", std::process::id() as u8);
    let device = format!("udp:{address}");
    let port = (20_000 + std::process::id() % 10_000).to_string();
    let mut dying =
        Running(runtime.roce(&["pingpong", "rc", "-d", &device, "-p", &port]).spawn().unwrap());
    eventually("the server publishes its device", || runtime.list().len() == 1);
    let published = &runtime.list()[0];
    assert_eq!(
        (&published["name"], &published["pid"]),
        (&device.as_str().into(), &dying.0.id().into())
    );
    assert_eq!(published["program"], "roce");
    assert_eq!(published["gids"][0], format!("::ffff:{address}"));
    assert_eq!(published["counters"]["sent_packets"]["value"], 0);
    assert!(published["counters"]["bad_icrc"]["explanation"].as_str().unwrap().len() > 5);
    assert!(published["counters"]["link_send_errors"].is_object());

    // The next scan removes a killed process's file.
    dying.0.kill().unwrap();
    dying.0.wait().unwrap();
    assert_eq!(runtime.files(), 1);
    assert_eq!(runtime.list().len(), 0);
    assert_eq!(runtime.files(), 0);
}

/// The kernel grants twice the request, to cover its bookkeeping.
#[test]
fn the_receive_buffer_that_is_granted() {
    let runtime = Runtime::new();
    let run = |arguments: &[&str]| {
        let output = runtime.roce(arguments).env("ROCE_RECEIVE_BUFFER", "100000").output().unwrap();
        String::from_utf8(output.stdout).unwrap()
    };
    let list: serde_json::Value =
        serde_json::from_str(&run(&["devinfo", "-d", "roce_lo", "--json"])).unwrap();
    assert_eq!(list[0]["receive_buffer"], 200_000);
    let text = run(&["devinfo", "-d", "roce_lo"]);
    let line = text.lines().find(|line| line.contains("receive_buffer:")).unwrap();
    assert!(line.ends_with("200000 bytes"), "no advice, since it was asked for: {line}");
}
