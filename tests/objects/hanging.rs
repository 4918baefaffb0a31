use std::{env, os::unix::process::ExitStatusExt, process::Command, sync::mpsc};

use super::{connected, open};

#[test]
#[ignore = "hangs, for the other test"]
fn one_that_hangs() {
    let (a, b) = (open(), open());
    let (cq_a, cq_b) = (a.create_cq(4, None).unwrap(), b.create_cq(4, None).unwrap());
    let _connection = connected(&a, &cq_a, &b, &cq_b);
    let (_sender, receiver) = mpsc::channel::<()>();
    receiver.recv().unwrap();
}

#[test]
fn a_test_that_hangs_says_where() {
    let output = Command::new(env::current_exe().unwrap())
        .args(["--ignored", "--exact", "objects::hanging::one_that_hangs"])
        .env("ROCE_TEST_SECONDS", "1")
        .output()
        .unwrap();
    let text = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.signal(), Some(libc::SIGABRT), "{text}");
    for expected in [
        "watchdog: the test objects::hangin has run for 1 s", // the kernel keeps 15 bytes of a name
        "objects::hanging::one_that_hangs",                   // in its stack
        " roce: ",                                            // the engine's thread
        "engine: ",
        "state: Rts",
    ] {
        assert!(text.contains(expected), "{expected}: {text}");
    }
}
