//! `roce demo --scenario` prints `tests/scenarios`. After an intended change, `ROCE_BLESS=1 cargo
//! test -p roce-cli --test main demo::` writes the files; read the diff.

use std::{
    collections::BTreeSet,
    env, fs,
    fs::File,
    io::{Read, Write},
    path::PathBuf,
    process::{Command, Output, Stdio},
};

fn roce(arguments: &[&str]) -> Output {
    crate::watchdog::start(String::new);
    Command::new(env!("CARGO_BIN_EXE_roce")).args(arguments).stdin(Stdio::null()).output().unwrap()
}

fn said(output: &Output) -> String {
    assert!(output.status.success(), "{output:?}");
    String::from_utf8(output.stdout.clone()).unwrap()
}

fn names() -> Vec<String> {
    let list = said(&roce(&["demo", "--list"]));
    assert!(list.lines().all(|line| line.chars().count() <= 60), "{list}");
    list.lines().map(|line| line.split_whitespace().next().unwrap().to_owned()).collect()
}

fn folder() -> PathBuf {
    [env!("CARGO_MANIFEST_DIR"), "tests", "scenarios"].iter().collect()
}

#[test]
fn each_scenario_prints_what_it_did_before() {
    let bless = env::var_os("ROCE_BLESS").is_some();
    let mut wrong = Vec::new();
    for name in names() {
        let printed = said(&roce(&["demo", "--scenario", &name]));
        let path = folder().join(format!("{name}.txt"));
        if bless {
            fs::write(&path, &printed).unwrap();
        } else if fs::read_to_string(&path).unwrap_or_default() != printed {
            wrong.push(name);
        }
    }
    assert!(wrong.is_empty(), "printed otherwise than before: {wrong:?}; see ROCE_BLESS above");
    let files = fs::read_dir(folder()).unwrap();
    let files: BTreeSet<_> =
        files.map(|file| file.unwrap().file_name().into_string().unwrap()).collect();
    let expected = names().into_iter().map(|name| format!("{name}.txt")).collect();
    assert_eq!(files, expected);
}

#[test]
fn a_script_is_played_and_its_mistake_is_one_line() {
    let example = concat!(env!("CARGO_MANIFEST_DIR"), "/../world/src/script/example.script");
    let printed = said(&roce(&["demo", "--script", example]));
    for words in ["NAK for the gap at 101", "FetchAdd psn 500", "no receive request is posted"] {
        assert!(printed.contains(words), "{words}: {printed}");
    }
    let path = env::temp_dir().join(format!("roce-demo-{}.script", std::process::id()));
    let mistake = |text: &[u8]| {
        fs::write(&path, text).unwrap();
        let output = roce(&["demo", "--script", path.to_str().unwrap()]);
        assert_eq!(output.status.code(), Some(1), "{output:?}");
        let error = String::from_utf8(output.stderr).unwrap();
        assert_eq!(error.lines().count(), 1, "{error}");
        error
    };
    assert!(
        mistake(b"connect rc\nA post wriet 1\n").contains("line 2: unknown operation: \"wriet\"")
    );
    assert!(mistake(b"\xff").contains("UTF-8"));
    assert!(mistake(b"connect rc\nA post send 1\n").contains("may go on for ever"));
    fs::remove_file(&path).unwrap();
    let missing = roce(&["demo", "--script", path.to_str().unwrap()]);
    assert_eq!((missing.status.code(), missing.stdout.len()), (Some(1), 0), "{missing:?}");
}

#[test]
fn every_line_fits_a_terminal_and_has_no_colours_without_one() {
    for name in names() {
        for line in said(&roce(&["demo", "--scenario", &name])).lines() {
            assert!(line.chars().count() <= 80, "{name}: {line}");
            assert!(!line.contains('\x1b'), "{name}: {line}");
        }
    }
}

#[test]
fn mistakes_are_said_in_one_line() {
    for (arguments, said) in [
        (&["demo", "--scenario", "nonsense"][..], "roce demo --list"),
        (&["demo", "--step"], "--step needs a terminal on standard input"),
        (&["demo", "--pcap", "/nonexistent/file"], "--pcap: "),
    ] {
        let output = roce(arguments);
        let error = String::from_utf8(output.stderr).unwrap();
        assert!(!output.status.success() && error.lines().count() == 1, "{error}");
        assert!(error.contains(said), "{error}");
    }
}

#[test]
fn the_capture_has_the_packets_that_were_drawn() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("loss.pcapng");
    let drawn = said(&roce(&["demo", "--scenario", "loss", "--pcap", path.to_str().unwrap()]));
    let bytes = fs::read(&path).unwrap();
    let mut reader = pcap_file::pcapng::PcapNgReader::new(&bytes[..]).unwrap();
    let (mut packets, mut lost) = (0, 0);
    while let Some(block) = reader.next_block() {
        if let Some(packet) = block.unwrap().into_enhanced_packet() {
            packets += 1;
            lost += usize::from(!packet.options.is_empty());
        }
    }
    let sent = drawn.lines().filter(|line| line.contains("▶ │") || line.contains("│ ◀")).count();
    assert_eq!((packets, lost), (sent, drawn.matches("is lost").count()));
}

/// A terminal waits for a key after each event, in colours; q ends.
#[test]
fn step_by_step() {
    crate::watchdog::start(String::new);
    let (mut terminal, theirs) = terminal();
    let mut child = Command::new(env!("CARGO_BIN_EXE_roce"))
        .args(["demo", "--scenario", "send", "--step"])
        .env_remove("NO_COLOR")
        .stdin(theirs.try_clone().unwrap())
        .stdout(theirs)
        .spawn()
        .unwrap();
    let mut shown = String::new();
    let mut until = |text: &str, terminal: &mut File| {
        let mut bytes = [0; 4096];
        while !shown.contains(text) {
            let count = terminal.read(&mut bytes).unwrap();
            shown += &String::from_utf8_lossy(&bytes[..count]);
        }
        shown.clone()
    };
    let first = until("post_recv 1", &mut terminal);
    assert!(first.contains("\x1b[1m") && !first.contains("post_send 2"), "{first}");
    terminal.write_all(b"x").unwrap();
    let second = until("post_send 2", &mut terminal);
    assert!(!second.contains("packet 1 of 3"), "{second}");
    terminal.write_all(b"q").unwrap();
    assert!(child.wait().unwrap().success());
}

fn terminal() -> (File, File) {
    use std::os::fd::FromRawFd;
    let (mut ours, mut theirs) = (-1, -1);
    let none = std::ptr::null_mut();
    // SAFETY: both places are valid, and the rest may be null
    let made = unsafe { libc::openpty(&mut ours, &mut theirs, none, none.cast(), none.cast()) };
    assert_eq!(made, 0, "{}", std::io::Error::last_os_error());
    // SAFETY: both are new and owned here
    unsafe { (File::from_raw_fd(ours), File::from_raw_fd(theirs)) }
}
