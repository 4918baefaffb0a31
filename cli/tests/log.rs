use std::process::{Command, Output};

fn demo(level: Option<&str>) -> Output {
    crate::watchdog::start(String::new);
    let mut command = Command::new(env!("CARGO_BIN_EXE_roce"));
    command.arg("demo").env_remove("ROCE_LOG");
    if let Some(level) = level {
        command.env("ROCE_LOG", level);
    }
    command.output().unwrap()
}

#[test]
fn the_log_shows_devices_and_queue_pairs_when_asked_for() {
    let logged = |level| String::from_utf8(demo(level).stderr).unwrap();
    assert_eq!(logged(None), "");
    assert_eq!(logged(Some("")), "");
    let log = logged(Some("debug"));
    for line in ["device opened", "queue pair moved to Rts", "device closed"] {
        assert!(log.contains(line), "{line}: {log}");
    }
}

#[test]
fn a_level_that_does_not_exist_is_refused() {
    let output = demo(Some("loud"));
    assert!(!output.status.success());
    let message =
        "roce: ROCE_LOG: \"loud\" is not a level; write error, warn, info, debug or trace\n";
    assert_eq!(String::from_utf8(output.stderr).unwrap(), message);
}
