//! `ROCE_CHECK`. For mistakes see [`wrong`](super::wrong).

use std::{env, ffi::OsStr, fs, process::Command};

use serde_json::Value;

use super::{FOUND, common::Directory, program, sources, wrong};

#[test]
fn programs_without_a_mistake_are_clean() {
    for name in ["queue_pairs", "forks", "event_thread"] {
        let Some(program) = program(name) else { return };
        let lines = program.run(&[("ROCE_CHECK", "json")], 0).stderr;
        let empty = "{\"summary\":[],\"suppressed\":0}";
        assert!(!lines.is_empty() && lines.lines().all(|line| line == empty), "{name}: {lines}");
    }
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
