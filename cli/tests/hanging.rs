use std::{
    env, fs,
    path::Path,
    process::{Command, Stdio},
    time::Duration,
};

const INSIDE: &str = "ROCE_TEST_RUNTIME";

/// Waits for a client forever.
fn server() -> std::process::Child {
    let runtime = env::var_os(INSIDE).expect("the other test runs this one");
    let device = format!("udp:127.79.{}.1", std::process::id() as u8);
    let port = (20_000 + std::process::id() % 10_000).to_string();
    Command::new(env!("CARGO_BIN_EXE_roce"))
        .args(["pingpong", "rc", "-d", &device, "-p", &port])
        .env("XDG_RUNTIME_DIR", runtime)
        .stdout(Stdio::piped())
        .spawn()
        .unwrap()
}

#[test]
#[ignore = "hangs, for the other test"]
fn a_test_that_hangs() {
    crate::watchdog::start(String::new);
    let _ = server().wait_with_output();
}

#[test]
#[ignore = "fails, for the other test"]
fn a_program_that_does_not_end() {
    crate::watchdog::programs::wait_with_output(server(), Duration::from_secs(2));
}

#[test]
fn a_program_that_hangs_is_shown() {
    for (test, expected) in [
        ("hanging::a_test_that_hangs", "watchdog: the test hanging::a_test has run for 2 s"),
        ("hanging::a_program_that_does_not_end", "a program does not end: Output"),
    ] {
        let runtime = tempfile::tempdir().unwrap();
        let output = Command::new(env::current_exe().unwrap())
            .args(["--ignored", "--exact", test])
            .env(INSIDE, runtime.path())
            .env("ROCE_TEST_SECONDS", "2")
            .output()
            .unwrap();
        let text = String::from_utf8_lossy(&output.stderr).into_owned()
            + &String::from_utf8_lossy(&output.stdout);
        for expected in
            [expected, "roce pingpong rc -d udp:127.79.", " roce: S ", "\"sent_packets\""]
        {
            assert!(text.contains(expected), "{expected}: {text}");
        }
        let number = text.lines().find_map(|line| line.strip_prefix("process ")?.split(':').next());
        let process = Path::new("/proc").join(number.unwrap()).join("cmdline");
        let line = fs::read_to_string(process).unwrap_or_default();
        assert!(!line.contains("pingpong"), "it goes on: {line}");
    }
}
