//! `ROCE_CHECK`. For mistakes see [`wrong`](super::wrong).

use std::{env, ffi::OsStr, fs, process::Command};

use serde_json::{Value, json};

use super::{FOUND, common::Directory, program, sources, wrong};

fn objects(lines: &str) -> Vec<Value> {
    lines.lines().map(|line| serde_json::from_str(line).unwrap()).collect()
}

#[test]
fn programs_without_a_mistake_are_clean() {
    const DELAY: &str = "json,delay,seed=1";
    for (name, words) in [
        ("queue_pairs", &["json"][..]),
        ("forks", &["json"]),
        ("event_thread", &["json", DELAY]),
        ("ended_by_another", &["json"]),
    ] {
        let Some(program) = program(name) else { return };
        for &words in words {
            let lines = program.run(&[("ROCE_CHECK", words)], 0).stderr;
            let is_clean =
                |object: &Value| object["summary"] == json!([]) && object["suppressed"] == 0;
            assert!(!lines.is_empty() && objects(&lines).iter().all(is_clean), "{name}: {lines}");
        }
    }
}

#[test]
fn a_late_completion_loses_a_wake_up() {
    let Some(program) = wrong::compile("lost_if_late", false) else { return };
    let lines = program.run(&[("ROCE_CHECK", "json,delay,seed=1")], 1).stderr;
    assert!(lines.contains("\"finding\":\"lost_wake_up\""), "{lines}");
}

/// Destroyed objects may crash.
#[test]
fn nothing_is_said_when_it_is_not_asked_for() {
    for mistake in ["send_changed", "receive_twice", "alive"] {
        let Some(program) = wrong::compile(mistake, false) else { return };
        for value in ["", "0"] {
            assert_eq!(program.run(&[("ROCE_CHECK", value)], 0).stderr, "", "{mistake}");
        }
    }
}

#[test]
fn what_a_file_names_is_not_told() {
    let Some(program) = wrong::compile("receive_twice", false) else { return };
    let directory = Directory::new();
    let file = directory.file("suppressions");
    let name = file.to_str().unwrap().to_owned();
    let check = |text: &str, status: i32| {
        fs::write(&file, text).unwrap();
        let variables = [("ROCE_CHECK", "1"), ("ROCE_CHECK_SUPPRESSIONS", &*name)];
        program.run(&variables, status).stderr
    };
    let told = check("send_buffer_changed\nreceive_overlap main2\n", FOUND);
    for part in [
        "roce check: receive_overlap: qp 0x",
        "\n  why:  two posted receives",
        "\n  look: give each",
        "\n  posted:\n",
        "receive_at (wrong/wrong.h:",
        "\n  the other request:\n",
        "    main (wrong/receive_twice.c:",
        "\nroce check: 1 finding\n      1 × receive_overlap  receive_at (wrong/wrong.h:",
    ] {
        assert!(told.contains(part), "{part:?} is not in\n{told}");
    }
    let unused = "\n  unused lines of the suppressions: 1, 2\n";
    assert!(told.ends_with(unused), "{told}");
    assert_eq!(check("* receive_*", 0), "roce check: no findings, 1 suppressed\n");
    let wrong = check("receive_overlap\nno_such_thing\n", 0);
    assert_eq!(
        wrong,
        format!(
            "roce: ROCE_CHECK_SUPPRESSIONS: {name}:2: unknown finding no_such_thing\nroce check: no findings, 1 suppressed\n"
        )
    );
}

/// Errors go to stderr.
#[test]
fn findings_are_one_document_for_tools() {
    let Some(program) = wrong::compile("receive_twice", false) else { return };
    let directory = Directory::new();
    let file = directory.file("found.sarif");
    let words = format!("sarif,reorder,seed=5,file={}", file.display());
    assert_eq!(program.run(&[("ROCE_CHECK", &words)], FOUND).stderr, "");
    let document: Value = serde_json::from_str(&fs::read_to_string(&file).unwrap()).unwrap();
    let run = &document["runs"][0];
    assert_eq!((&document["version"], &run["properties"]["seed"]), (&"2.1.0".into(), &5.into()));
    let results = run["results"].as_array().unwrap();
    assert_eq!((results.len(), &results[0]["ruleId"]), (1, &"receive_overlap".into()));
    assert_eq!(program.run(&[("ROCE_CHECK", &words)], FOUND).stderr, "");
    let both: Value = serde_json::from_str(&fs::read_to_string(&file).unwrap()).unwrap();
    assert_eq!(both["runs"].as_array().unwrap().len(), 2, "each process adds a run");
    let place = &results[0]["locations"][0]["physicalLocation"];
    assert!(place["artifactLocation"]["uri"].as_str().unwrap().ends_with("tests/wrong/wrong.h"));
    assert!(place["region"]["startLine"].as_u64().unwrap() > 1);

    let said = program.run(&[("ROCE_CHECK", "jsn")], 1).stderr;
    assert!(
        said.starts_with("roce: ROCE_CHECK: unknown word \"jsn\"; expected text, json"),
        "{said}"
    );
}

#[test]
fn what_a_signal_ends_has_its_findings() {
    let Some(program) = program("killed") else { return };
    let directory = Directory::new();
    let file = directory.file("found.sarif");
    let words = format!("sarif,file={}", file.display());
    let said = program.run(&[("ROCE_CHECK", &words)], 0).stderr;
    assert_eq!(said, "");
    let document: Value = serde_json::from_str(&fs::read_to_string(&file).unwrap()).unwrap();
    let results = document["runs"][0]["results"].as_array().unwrap();
    let has = |rule: &str| results.iter().any(|result| result["ruleId"] == rule);
    assert!(has("timeout_zero") && has("object_alive"), "{results:?}");
}

#[test]
fn what_a_signal_ends_has_its_endless_wait() {
    let Some(program) = program("killed_waiting") else { return };
    let (interrupt, terminate) = (libc::SIGINT.to_string(), libc::SIGTERM.to_string());
    for (form, signal, how, forked) in [
        ("text", &*interrupt, "call", None),
        ("json", &*terminate, "poll", Some(("FORKED", "1"))),
        ("json", &*interrupt, "solicited", None),
    ] {
        let mut variables = vec![("ROCE_CHECK", form), ("SIGNAL", signal), ("WAITS", how)];
        variables.extend(forked);
        let said = program.run(&variables, 0).stderr;
        let kinds = ["endless_wait", "object_alive"];
        let is_summary = |object: &Value| {
            let list = object["summary"].as_array().into_iter().flatten();
            let found: Vec<_> = list.map(|entry| entry["finding"].as_str().unwrap()).collect();
            kinds.iter().all(|kind| found.contains(kind))
        };
        let has_all = match form {
            "text" => kinds.iter().all(|kind| said.contains(&format!(" × {kind}  "))),
            _ => objects(&said).iter().any(is_summary),
        };
        assert!(has_all, "{how}: {said}");
    }
}

#[test]
fn what_else_a_program_missed_is_told() {
    for (mistake, status, text) in [
        ("opcode_of_flushed", 1, "\n  5 completions failed: of these, only wr_id, "),
        ("cm_disconnected", FOUND, "3 × rdma_cm_id, 1 with RDMA_CM_EVENT_DISCONNECTED and "),
    ] {
        let Some(program) = wrong::compile(mistake, false) else { return };
        let said = program.run(&[("ROCE_CHECK", "text")], status).stderr;
        assert!(said.contains(text), "{said}");
    }
}

#[test]
fn a_seed_is_told() {
    let Some(program) = wrong::compile("alive", false) else { return };
    let said = program.run(&[("ROCE_CHECK", "delay")], FOUND).stderr;
    assert!(said.starts_with("roce: ROCE_CHECK=text,delay,seed="), "{said}");
}

/// Also where ctypes has released the interpreter's lock.
#[test]
fn python_programs_have_their_lines() {
    let python = |variable: &str, arguments: &[&OsStr]| {
        Command::new("python3").args(arguments).env(variable, "json").output()
    };
    let version = "import sys; sys.exit(sys.version_info < (3, 9))";
    let is_there = python("NONE", &[OsStr::new("-c"), OsStr::new(version)]);
    if !is_there.is_ok_and(|output| output.status.success()) {
        println!("Python 3.9 is not installed: nothing was run");
        return;
    }
    let library = env::current_exe().unwrap().with_file_name("libroce_abi.so");
    let script = sources().join("lines.py");
    let [script, library] = [script.as_os_str(), library.as_os_str()];
    let done = python("ROCE_CHECK", &[script, library]).unwrap();
    let lines = String::from_utf8_lossy(&done.stderr);
    assert_eq!(done.status.code(), Some(FOUND), "{lines}");
    let found: Value = serde_json::from_str(lines.lines().next().unwrap()).unwrap();
    let stacks = found["stacks"].as_array().unwrap();
    let has = |frame: &Value, function: &str| {
        frame["function"] == function
            && frame["place"].as_str().unwrap().starts_with("programs/lines.py:")
    };
    assert_eq!(stacks.len(), 2, "{lines}");
    for caller in ["with_lock", "without"] {
        let is_it = |stack: &Value| {
            has(&stack["frames"][0], "open_device") && has(&stack["frames"][1], caller)
        };
        assert!(stacks.iter().any(is_it), "{caller}: {lines}");
    }
    let summary: Value = serde_json::from_str(lines.lines().nth(1).unwrap()).unwrap();
    let at = summary["summary"][0]["at"].as_str().unwrap();
    assert!(at.starts_with("open_device (programs/lines.py:"), "{at}");

    let done = python("ROCE_EXPLAIN", &[script, library, OsStr::new("fails")]).unwrap();
    let lines = String::from_utf8_lossy(&done.stderr);
    let explained: Value = serde_json::from_str(lines.lines().next().unwrap()).unwrap();
    let at = explained["at"].as_str().unwrap();
    assert!(done.status.success() && at.starts_with("fails (programs/lines.py:"), "{lines}");
}

#[test]
fn unused_suppressions_are_told_to_tools() {
    let Some(program) = wrong::compile("receive_twice", false) else { return };
    let directory = Directory::new();
    let (lines, found) = (directory.file("suppressions"), directory.file("found.sarif"));
    fs::write(&lines, "send_buffer_changed\n\nlost_wake_up main2\n").unwrap();
    let suppressions = ("ROCE_CHECK_SUPPRESSIONS", lines.to_str().unwrap());
    let numbers = |value: &Value| -> Vec<_> {
        value.as_array().unwrap().iter().map(|line| line.as_u64().unwrap()).collect()
    };

    let said = program.run(&[("ROCE_CHECK", "json"), suppressions], FOUND).stderr;
    let summary: Value = serde_json::from_str(said.lines().last().unwrap()).unwrap();
    assert_eq!(numbers(&summary["unused_suppressions"]), [1, 3], "{said}");

    let words = format!("sarif,file={}", found.display());
    assert_eq!(program.run(&[("ROCE_CHECK", &*words), suppressions], FOUND).stderr, "");
    let document: Value = serde_json::from_str(&fs::read_to_string(&found).unwrap()).unwrap();
    let invocation = &document["runs"][0]["invocations"][0];
    let notifications = invocation["toolConfigurationNotifications"].as_array().unwrap();
    let place = |notification: &Value| {
        notification["locations"][0]["physicalLocation"]["region"]["startLine"].clone()
    };
    assert_eq!(numbers(&notifications.iter().map(place).collect()), [1, 3], "{document}");
}

#[test]
fn a_file_has_the_findings_of_each_process() {
    let Some(program) = wrong::compile("receive_twice", false) else { return };
    for form in ["text", "json"] {
        let directory = Directory::new();
        let file = directory.file("found");
        let words = format!("{form},file={}", file.display());
        let run = || {
            assert_eq!(program.run(&[("ROCE_CHECK", &words)], FOUND).stderr, "");
            fs::read_to_string(&file).unwrap()
        };
        let (once, twice) = (run(), run());
        assert!(once.contains("receive_overlap") && twice.starts_with(&once), "{twice}");
        assert_eq!(twice.lines().count(), 2 * once.lines().count(), "{twice}");
    }
}
