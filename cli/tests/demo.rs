//! `roce demo --scenario`: what is printed is what is in `tests/scenarios`, byte for byte.
//!
//! After a change that is meant, `ROCE_BLESS=1 cargo test -p roce-cli --test demo` writes the files;
//! read the difference.

use std::{
    collections::BTreeSet,
    env, fs,
    path::PathBuf,
    process::{Command, Output, Stdio},
};

fn roce(arguments: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_roce")).args(arguments).stdin(Stdio::null()).output().unwrap()
}

fn said(output: &Output) -> String {
    assert!(output.status.success(), "{output:?}");
    String::from_utf8(output.stdout.clone()).unwrap()
}

fn names() -> Vec<String> {
    let list = said(&roce(&["demo", "--list"]));
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
        (&["demo", "--step"], "standard input is no terminal"),
        (&["demo", "--pcap", "/nonexistent/file"], "--pcap: "),
    ] {
        let output = roce(arguments);
        let error = String::from_utf8(output.stderr).unwrap();
        assert!(!output.status.success() && error.lines().count() == 1, "{error}");
        assert!(error.contains(said), "{error}");
    }
}

/// What is drawn as lost is lost, and all else is not.
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
    assert_eq!((packets, lost), (sent, drawn.matches("is lost").count() - 1));
}
