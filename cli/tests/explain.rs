use std::{
    fs,
    io::{BufRead, BufReader, Read, Write},
    path::PathBuf,
    process::{Command, Output, Stdio},
};

use roce::transport::wire::{FrameFields, Ident, NetHeader, icrc};

fn capture(name: &str) -> String {
    let path: PathBuf =
        [env!("CARGO_MANIFEST_DIR"), "../transport/tests/captures", name].iter().collect();
    path.to_str().unwrap().to_owned()
}

fn roce(arguments: &[&str]) -> Output {
    crate::watchdog::start(String::new);
    Command::new(env!("CARGO_BIN_EXE_roce"))
        .arg("explain")
        .args(arguments)
        .stdin(Stdio::null())
        .output()
        .unwrap()
}

fn said(arguments: &[&str]) -> String {
    let output = roce(arguments);
    assert!(output.status.success(), "{output:?}");
    String::from_utf8(output.stdout).unwrap()
}

#[test]
fn a_ladder_findings_and_figures_in_eighty_columns() {
    for entry in fs::read_dir(capture("")).unwrap() {
        let path = entry.unwrap().path();
        let text = said(&[path.to_str().unwrap()]);
        for heading in ["connection 1: ", "\nfindings\n", "\nfigures\n"] {
            assert!(text.contains(heading), "{path:?}: {text}");
        }
        for line in text.lines().filter(|line| line.contains('│') || line.contains('├')) {
            assert!(line.chars().count() <= 80 && !line.contains('\x1b'), "{path:?}: {line}");
        }
    }
}

#[test]
fn fewer_columns() {
    for entry in fs::read_dir(capture("")).unwrap() {
        let path = entry.unwrap().path();
        let narrow = Command::new(env!("CARGO_BIN_EXE_roce"))
            .arg("explain")
            .arg(&path)
            .env("COLUMNS", "60")
            .output()
            .unwrap();
        let narrow = String::from_utf8(narrow.stdout).unwrap();
        let longest = narrow.lines().map(|line| line.chars().count()).max();
        assert!(longest <= Some(60), "{path:?}: {narrow}");
        let is_word = |word: &&str| word.chars().any(char::is_alphanumeric);
        let words = |text: &str| {
            let mut words: Vec<_> =
                text.split_whitespace().filter(is_word).map(str::to_owned).collect();
            words.sort();
            words
        };
        assert_eq!(words(&narrow), words(&said(&[path.to_str().unwrap()])), "{path:?}");
    }
}

#[test]
fn a_pipe_is_drawn_while_it_goes_on() {
    let path = capture("rc_write_mtu4096.pcap");
    let bytes = fs::read(&path).unwrap();
    let whole = said(&[&path]);
    let end = whole.find("findings\n").unwrap();
    let is_packet = |line: &&str| line.contains('│') || line.contains('├');
    let packets: Vec<_> = whole[..end].lines().filter(is_packet).collect();

    crate::watchdog::start(String::new);
    let mut command = Command::new(env!("CARGO_BIN_EXE_roce"));
    command.args(["explain", "--live", "-"]).stdin(Stdio::piped()).stdout(Stdio::piped());
    let mut child = command.spawn().unwrap();
    let (mut input, output) = (child.stdin.take().unwrap(), child.stdout.take().unwrap());
    let mut output = BufReader::new(output);
    // within a packet
    input.write_all(&bytes[..bytes.len() / 2]).unwrap();
    let mut first = String::new();
    while first.lines().filter(is_packet).count() == 0 {
        assert_ne!(output.read_line(&mut first).unwrap(), 0, "{first}");
    }
    input.write_all(&bytes[bytes.len() / 2..]).unwrap();
    drop(input);
    output.read_to_string(&mut first).unwrap();
    assert!(child.wait().unwrap().success());
    let (drawn, said) = first.split_at(first.find("findings\n").unwrap());
    assert_eq!(said, &whole[end..]);
    assert_eq!(drawn.lines().filter(is_packet).count(), packets.len());
}

#[test]
fn only_standard_input_is_drawn_live() {
    let output = roce(&["--live", &capture("rc_write_mtu4096.pcap")]);
    assert!(!output.status.success());
    let error = String::from_utf8(output.stderr).unwrap();
    assert!(error.contains("--live reads standard input only"), "{error}");
    let output = roce(&["--live", "-"]);
    let error = String::from_utf8(output.stderr).unwrap();
    assert!(error.contains("standard input is neither pcap nor pcapng"), "{error}");
}

fn foreign(name: &str) -> String {
    format!("{}/../capture/tests/captures/{name}", env!("CARGO_MANIFEST_DIR"))
}

#[test]
fn captures_of_other_stacks() {
    let text = said(&[&foreign("same-psn.pcapng")]);
    assert_eq!(text.matches(": reliable connection, path MTU, by its packets, 1024\n").count(), 3);
    assert!(!text.contains(" qp ?") && text.contains("\nfindings\nnone\n"), "{text}");
    let text = said(&[&foreign("blue-rdma-nak.pcapng")]);
    assert!(
        text.contains("retransmitted: NAK ") && !text.contains("no response in time"),
        "{text}"
    );
    assert!(text.contains(", path MTU, by its packets, at least 1024\n"), "{text}");
}

#[test]
fn findings_that_are_alike_are_counted() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("damaged.pcap");
    let mut bytes = fs::read(capture("rc_write_mtu4096.pcap")).unwrap();
    let (mut at, mut count) = (24, 0);
    while at < bytes.len() {
        let length = u32::from_le_bytes(bytes[at + 8..at + 12].try_into().unwrap()) as usize;
        at += 16 + length;
        if length > 4000 && count < 8 {
            count += 1;
            bytes[at - 100 - count] ^= 1; // another offset each
        }
    }
    fs::write(&path, &bytes).unwrap();
    let text = said(&[path.to_str().unwrap()]);
    let findings = text.split_once("\nfindings\n").unwrap().1;
    assert_eq!(findings.matches("wrong ICRC: damaged").count(), 6, "{text}");
    assert_eq!(findings.matches("and 3 more: wrong ICRC: damaged").count(), 1, "{text}");
}

#[test]
fn wrong_icrcs_and_one_direction_are_said_once() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("rewritten.pcap");
    let mut bytes = fs::read(capture("rc_send_4096_mtu1024.pcap")).unwrap();
    // File header; records with lengths, of Ethernet frames with IPv4.
    let mut kept = bytes[..24].to_vec();
    let mut rest = &mut bytes[24..];
    while rest.len() > 16 {
        let length = 16 + u32::from_le_bytes(rest[8..12].try_into().unwrap()) as usize;
        let (record, behind) = rest.split_at_mut(length);
        if record[16 + 12..16 + 14] == [8, 0] && record[16 + 14 + 15] == 3 {
            record[16 + 14 + 12] = 192; // 10.77.0.3
            kept.extend(&*record);
        }
        rest = behind;
    }
    fs::write(&path, &kept).unwrap();
    let text = said(&[path.to_str().unwrap()]);
    let once = text.split_whitespace().collect::<Vec<_>>().join(" ");
    let finding =
        "packets from 192.77.0.3 to 10.77.0.2 are wrong by the same change of the headers";
    assert_eq!(once.matches(finding).count(), 1, "{text}");
    assert!(once.contains("next of its message, wrong ICRC"), "{text}");
    assert_eq!(once.matches("no packet came from the other end").count(), 1, "{text}");
    let json: serde_json::Value =
        serde_json::from_str(&said(&[path.to_str().unwrap(), "--json"])).unwrap();
    assert!(json["packets"].as_array().unwrap().iter().all(|it| it["wrong_icrc"] == true));
    assert_eq!(json["findings"][0]["kind"], "wrong_icrcs");
}

#[test]
fn a_capture_of_the_demo_names_the_nak() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("loss.pcapng");
    let path = path.to_str().unwrap();
    let demo = Command::new(env!("CARGO_BIN_EXE_roce"))
        .args(["demo", "--scenario", "loss", "--pcap", path])
        .output()
        .unwrap();
    assert!(demo.status.success());
    let text = said(&[path]);
    assert!(
        text.contains("NAK for the gap at 102") && text.contains("retransmitted: NAK"),
        "{text}"
    );
    let errors = said(&[path, "--errors"]);
    assert!(errors.contains("retransmitted: NAK") && !errors.contains("psn 100"), "{errors}");
    let range = said(&[path, "--psn", "100..100"]);
    assert!(range.contains("psn 100") && !range.contains("psn 101 1024"), "{range}");
    let other = said(&[path, "--qp", "0x1"]);
    assert!(!other.contains("psn 100"), "{other}");
}

#[test]
fn the_state_of_both_ends_stands_beside_the_packets() {
    let path = capture("rc_fetch_add.pcap");
    let (plain, text) = (said(&[&path]), said(&[&path, "--state"]));
    let states: Vec<_> = text.lines().filter(|line| line.contains("state: ")).collect();
    // Five requests and five responses each change the requester's state.
    assert_eq!(states.len(), 10, "{text}");
    assert!(
        states[0].contains("no response from") && states[9].contains("psn 2699279, msn 5 "),
        "{text}"
    );
    let rest: Vec<_> = text.lines().filter(|line| !line.contains("state: ")).collect();
    assert_eq!(rest, plain.lines().collect::<Vec<_>>());
    let page = said(&[&path, "--state", "--html"]);
    assert_eq!(page.matches("<small>").count(), 10);
    let document: serde_json::Value = serde_json::from_str(&said(&[&path, "--json"])).unwrap();
    let packets = document["packets"].as_array().unwrap();
    let (first, last) = (&packets[0], &packets[9]);
    assert_eq!(first["requesters"][0]["oldest_unacked"], first["psn"]);
    assert_eq!(last["requesters"][0]["oldest_unacked"], serde_json::Value::Null);
    assert_eq!(last["requesters"][0]["next_psn"], last["psn"].as_u64().unwrap() + 1);
    assert_eq!(last["requesters"][1], serde_json::Value::Null, "it has sent no request");
}

#[test]
fn json_has_a_reason_for_each_packet() {
    let text = said(&[&capture("rc_fetch_add.pcap"), "--json"]);
    let document: serde_json::Value = serde_json::from_str(&text).unwrap();
    let packets = document["packets"].as_array().unwrap();
    assert_eq!(packets.len(), 10);
    assert!(packets.iter().all(|packet| packet["why"].is_string() && packet["psn"].is_u64()));
    assert_eq!(document["findings"].as_array().unwrap().len(), 0);
    assert_eq!(document["connections"][0]["service"], "RC");
}

/// The kernel's ACKs have code 31, no credits; these have code 6, 8 credits.
#[test]
fn credits_of_acks_are_shown() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("credits.pcap");
    let path = path.to_str().unwrap();
    let plain = capture("rc_send_4096_mtu1024.pcap");
    let mut bytes = fs::read(&plain).unwrap();
    // Any headers: only the difference of two ICRCs matters.
    let net = NetHeader {
        src: [10, 0, 0, 1].into(),
        dst: [10, 0, 0, 2].into(),
        src_port: 0,
        traffic_class: 0,
        hop_limit: 0,
        ident: Ident::Likely(0),
        frame: FrameFields::default(),
    };
    let (mut rest, mut acks) = (&mut bytes[24..], 0);
    while rest.len() > 16 {
        let length = 16 + u32::from_le_bytes(rest[8..12].try_into().unwrap()) as usize;
        let (record, behind) = rest.split_at_mut(length);
        // Ethernet, IPv4 and UDP have 42 bytes, BTH and AETH 16, the ICRC 4.
        let frame = &mut record[16..];
        if frame.len() == 62 && frame[42] == 0x11 {
            let before = icrc(&net, &frame[42..58]);
            frame[54] = 6;
            let change = before ^ icrc(&net, &frame[42..58]);
            let sum = u32::from_le_bytes(frame[58..].try_into().unwrap()) ^ change;
            frame[58..].copy_from_slice(&sum.to_le_bytes());
            acks += 1;
        }
        rest = behind;
    }
    fs::write(path, &bytes).unwrap();
    assert_eq!((acks, said(&[&plain]).matches("credits").count()), (10, 0));
    let text = said(&[path]);
    assert_eq!(text.matches(", 8 credits").count(), acks, "{text}");
    assert!(!text.contains("ICRC"), "{text}");
    let document: serde_json::Value = serde_json::from_str(&said(&[path, "--json"])).unwrap();
    let is_ack = |packet: &&serde_json::Value| packet["syndrome"] == "ACK";
    let packets = document["packets"].as_array().unwrap();
    let credits = packets.iter().filter(is_ack).filter(|packet| packet["credits"] == 8);
    assert_eq!(credits.count(), acks);
}

#[test]
fn a_pipe_is_read_to_its_end() {
    let mut child = Command::new(env!("CARGO_BIN_EXE_roce"))
        .args(["explain", "-"])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let bytes = fs::read(capture("rc_fetch_add.pcap")).unwrap();
    child.stdin.take().unwrap().write_all(&bytes).unwrap();
    let output = child.wait_with_output().unwrap();
    assert_eq!(String::from_utf8(output.stdout).unwrap(), said(&[&capture("rc_fetch_add.pcap")]));
}

#[test]
fn mistakes_are_said_in_one_line() {
    for (arguments, part) in [
        (&["/nonexistent/x.pcap"][..], "cannot read /nonexistent/x.pcap"),
        (&["/etc/passwd"], "neither pcap nor pcapng"),
    ] {
        let output = roce(arguments);
        let error = String::from_utf8(output.stderr).unwrap();
        assert!(!output.status.success() && error.lines().count() == 1, "{error}");
        assert!(error.contains(part), "{error}");
    }
    let output = roce(&[&capture("rc_fetch_add.pcap"), "--qp", "nonsense"]);
    assert!(String::from_utf8(output.stderr).unwrap().contains("for example 27 or 0x1b"));
}

#[test]
fn a_page_has_it_all_and_loads_nothing() {
    let directory = tempfile::tempdir().unwrap();
    for entry in fs::read_dir(capture("")).unwrap() {
        let path = entry.unwrap().path();
        let odd = directory.path().join("<img src=x>&.pcap");
        fs::copy(&path, &odd).unwrap();
        let odd = odd.to_str().unwrap();
        let page = said(&[odd, "--html"]);
        let json: serde_json::Value = serde_json::from_str(&said(&[odd, "--json"])).unwrap();
        for packet in json["packets"].as_array().unwrap() {
            if !packet["connection"].is_null() {
                let row = format!("<tr id=\"f{}\"", packet["frame"]);
                assert_eq!(page.matches(&row).count(), 1, "{path:?}: {row}");
            }
        }
        let findings = json["findings"].as_array().unwrap().len();
        assert_eq!(page.matches("<li class=\"bad\">").count(), findings, "{path:?}");
        assert!(page.contains("&lt;img src=x&gt;&amp;.pcap</h1>"), "{path:?}");
        for markup in ["<script", "<img", "<link", "src=\"", "href=\"http", "url("] {
            assert!(!page.contains(markup), "{path:?}: {markup}");
        }
    }
    let output = roce(&[&capture("rc_fetch_add.pcap"), "--html", "--json"]);
    assert!(!output.status.success());
}

#[test]
fn a_page_obeys_the_filters() {
    let page = said(&[&capture("rc_send_4096_mtu1024.pcap"), "--html", "--errors"]);
    assert!(!page.contains("<tr id=") && page.contains("packets are left out"), "{page}");
    // findings of hidden packets have no link
    let file = format!("{}/../docs/course/captures/first.pcapng", env!("CARGO_MANIFEST_DIR"));
    assert_eq!(said(&[&file, "--html"]).matches("<a href=\"#f").count(), 5);
    let page = said(&[&file, "--html", "--psn", "122"]);
    assert_eq!(page.matches("<a href=\"#f").count(), 1, "{page}");
    assert!(page.contains("<a href=\"#f25\">frame 25</a>"), "{page}");
}
