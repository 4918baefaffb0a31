//! Programs with one mistake each that works by luck, and what `ROCE_CHECK` finds; in the same without
//! the mistake, nothing.

use std::fs;

use serde_json::Value;

use crate::{common::Directory, program};

/// Exit status of a program that ends well, and of which something was found.
const FOUND: i32 = 99;

/// The mistake, what is found, and the function of the program that is named for it.
const MISTAKES: [(&str, &str, &str); 26] = [
    ("send_changed", "send_buffer_changed", "send_with"),
    ("unsignaled_send_changed", "send_buffer_changed", "send_with"),
    ("write_changed", "send_buffer_changed", "send_with"),
    ("inline_is_copied", "send_buffer_changed", "send_with"),
    ("send_overwritten", "send_buffer_overwritten", "send_with"),
    ("receive_twice", "receive_overlap", "receive_at"),
    ("receives_overlap", "receive_overlap", "receive_at"),
    ("receive_again", "receive_written", "receive_at"),
    ("receive_written_behind", "receive_written", "receive_at"),
    ("read_target", "read_target_written", "send_with"),
    ("shared_receive", "receive_overlap", "shared_receive"),
    ("unmapped", "memory_unmapped", "send_with"),
    ("region_in_use", "region_in_use", "region_in_use"),
    ("queue_too_small", "cq_overrun", "send_with"),
    ("nothing_signaled", "nothing_signaled", "nothing_signaled"),
    ("too_many_sends", "send_queue_full", "send_with"),
    ("not_acknowledged", "cq_events_unacknowledged", "without_channel"),
    ("lost_by_luck", "lost_wake_up", "wait_for_one"),
    ("lost", "lost_wake_up", "lost"),
    ("alive", "object_alive", "alive"),
    ("destroyed_twice", "used_after_destroy", "destroyed_twice"),
    ("posted_after_destroy", "used_after_destroy", "send_with"),
    ("polled_after_destroy", "used_after_destroy", "polled_after_destroy"),
    ("no_timeout", "timeout_zero", "to_rts"),
    ("no_retry", "retry_zero", "settings"),
    ("longest_rnr_timer", "rnr_timer_zero", "settings"),
];

/// What was found, each as an object, and the summary.
fn found(lines: &str) -> (Vec<Value>, Value) {
    let mut objects: Vec<Value> = lines
        .lines()
        .map(|line| serde_json::from_str(line).unwrap_or_else(|_| panic!("no JSON: {line}")))
        .collect();
    let summary = objects.pop().unwrap_or_default();
    (objects, summary)
}

#[test]
fn each_mistake_is_found_and_its_repair_is_clean() {
    let Some(program) = program("checks") else {
        println!("no C compiler is installed: nothing was run");
        return;
    };
    for (mistake, finding, function) in MISTAKES {
        let variables = [("MISTAKE", mistake), ("ROCE_CHECK", "json")];
        let output = program.run(&variables, FOUND);
        let (findings, summary) = found(&output.stderr);
        let names: Vec<_> = findings.iter().map(|found| found["finding"].as_str()).collect();
        // at each of its places
        let is_all = !names.is_empty() && names.iter().all(|name| *name == Some(finding));
        assert!(is_all, "{mistake}: {}", output.stderr);
        let frames = findings[0]["stacks"][0]["frames"].as_array().unwrap();
        let is_named = frames.iter().any(|frame| {
            let place = frame["place"].as_str().unwrap();
            frame["function"] == function
                && (place.contains("checks.c:") || place.contains("pair.h:"))
        });
        assert!(is_named, "{mistake}: {frames:?}");
        assert_eq!(summary["summary"][0]["finding"], finding, "{mistake}");

        let repaired = [&variables[..], &[("REPAIRED", "1")]].concat();
        let output = program.run(&repaired, 0);
        let (findings, summary) = found(&output.stderr);
        assert_eq!(
            (findings.len(), summary["summary"].as_array().unwrap().len()),
            (0, 0),
            "{mistake}, repaired: {}",
            output.stderr
        );
    }
}

/// One that posts in many ways, and one whose children use the library.
#[test]
fn programs_without_a_mistake_are_clean() {
    for name in ["queue_pairs", "forks"] {
        let Some(program) = program(name) else { return };
        let lines = program.run(&[("ROCE_CHECK", "json")], 0).stderr;
        let empty = "{\"summary\":[],\"suppressed\":0}";
        assert!(!lines.is_empty() && lines.lines().all(|line| line == empty), "{name}: {lines}");
    }
}

/// Destroyed objects are not looked at here: that is a crash, or not.
#[test]
fn nothing_is_said_when_it_is_not_asked_for() {
    let Some(program) = program("checks") else { return };
    for (mistake, ..) in [MISTAKES[0], MISTAKES[5], MISTAKES[19]] {
        for value in ["", "0"] {
            let variables = [("MISTAKE", mistake), ("ROCE_CHECK", value)];
            assert_eq!(program.run(&variables, 0).stderr, "", "{mistake}");
        }
    }
}

#[test]
fn what_a_file_names_is_not_told() {
    let Some(program) = program("checks") else { return };
    let directory = Directory::new();
    let file = directory.file("suppressions");
    let name = file.to_str().unwrap().to_owned();
    let check = |text: &str, status: i32| {
        fs::write(&file, text).unwrap();
        let variables = [
            ("MISTAKE", "receive_twice"),
            ("ROCE_CHECK", "1"),
            ("ROCE_CHECK_SUPPRESSIONS", &*name),
        ];
        program.run(&variables, status).stderr
    };
    let told = check("send_buffer_changed\nreceive_overlap main2\n", FOUND);
    for part in [
        "roce check: receive_overlap: qp 0x",
        "\n  why:  two messages",
        "\n  look: give each",
        "\n  posted:\n",
        "receive_at (programs/checks.c:",
        "\n  the other one:\n",
        "    main (programs/checks.c:",
        "\nroce check: 1 finding\n      1 × receive_overlap  receive_at (programs/checks.c:",
    ] {
        assert!(told.contains(part), "{part:?} is not in\n{told}");
    }
    assert_eq!(check("* receive_*", 0), "roce check: no findings, 1 suppressed\n");
    let wrong = check("receive_overlap\nno_such_thing\n", 0);
    assert_eq!(
        wrong,
        format!(
            "roce: ROCE_CHECK_SUPPRESSIONS: {name}:2: there is no finding no_such_thing\nroce check: no findings, 1 suppressed\n"
        )
    );
}
