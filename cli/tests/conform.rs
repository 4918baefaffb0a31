use std::{
    collections::BTreeMap,
    env, fs,
    io::{BufRead, BufReader, Write},
    net::{TcpListener, TcpStream},
    process::{Command, Output, Stdio},
    sync::Mutex,
    thread,
    time::{Duration, Instant},
};

use serde_json::{Value, json};

use crate::running::Running;

/// All runs on a host use the same multicast groups.
static GROUPS: Mutex<()> = Mutex::new(());

const VARIABLE: &str = "ROCE_AGENT_TOKEN";
const TOKEN: &str = "00112233445566778899aabbccddeeff";

fn command(arguments: &[&str]) -> Command {
    crate::watchdog::start(String::new);
    let mut command = Command::new(env!("CARGO_BIN_EXE_roce"));
    command.arg("conform").args(arguments).env(VARIABLE, TOKEN).stdin(Stdio::null());
    command
}

fn conform(arguments: &[&str]) -> Output {
    command(arguments).output().unwrap()
}

fn said(arguments: &[&str]) -> String {
    let output = conform(arguments);
    assert!(output.status.success(), "{arguments:?}: {output:?}");
    String::from_utf8(output.stdout).unwrap()
}

fn agent(address: &str) -> Running {
    let (agent, line) = Running::start(&mut command(&["agent", &format!("udp:{address}")]));
    assert_eq!(line, format!("device {address}, agent {address}:4792\n"));
    agent
}

fn listener(address: &str) -> Running {
    crate::watchdog::start(String::new);
    let mut rping = Command::new(env!("CARGO_BIN_EXE_roce"));
    rping.args(["rping", "-s", "-P", "-a", address]).stdin(Stdio::null()).stderr(Stdio::null());
    let listener = Running(rping.spawn().unwrap());
    while !conform(&[address, "--cm", "7174", "--only", "cm/end"]).status.success() {}
    listener
}

fn verdicts(json: &str) -> Vec<(String, String)> {
    let document: Value = serde_json::from_str(json).unwrap();
    let text = |value: &Value| value.as_str().unwrap().to_owned();
    let cases = document["cases"].as_array().unwrap().iter();
    cases.map(|case| (text(&case["name"]), text(&case["verdict"]))).collect()
}

/// Sockets have one port and send no pause frames.
fn takes_a_raw_device(case: &str) -> bool {
    case.contains("source-port") || case.starts_with("pause/")
}

/// A busy host distorts a rate of received packets; virtual time is exact.
fn is_measured(case: &str) -> bool {
    case == "congestion/slows-down"
}

#[test]
fn our_device_conforms_without_an_agent() {
    let _listener = listener("127.79.20.21");
    let output = conform(&["127.79.20.21", "--cm", "7174", "--json"]);
    let text = String::from_utf8(output.stdout).unwrap();
    let all = verdicts(&text);
    let wrong: Vec<_> = all.iter().filter(|(_, verdict)| verdict != "conforms").collect();
    assert!(wrong.is_empty() && all.len() >= 60, "{wrong:?}\n{text}");
    assert_eq!(output.status.code(), Some(0));
    assert!(text.contains("CM REQ for port 7174"), "{text}");
}

#[test]
fn a_program_that_does_not_listen_is_said() {
    let output = conform(&["127.79.20.22", "--cm", "7174"]);
    let errors = String::from_utf8(output.stderr).unwrap();
    assert_eq!(output.status.code(), Some(1), "{errors}");
    let expected = "roce: no program accepts connections at port 7174 of 127.79.20.22: the device does \
                    not connect: nothing comes in 1s; start one there, such as `rping -s -P -p 7174`\n";
    assert_eq!(errors, expected);
    let output = conform(&["127.79.20.22", "--cm", "7174", "--cm-data", "0"]);
    let errors = String::from_utf8(output.stderr).unwrap();
    assert_eq!(output.status.code(), Some(2));
    assert!(errors.contains("write an even number of hexadecimal digits"), "{errors}");
}

#[test]
fn our_device_conforms_over_udp() {
    let _alone = GROUPS.lock().unwrap();
    let _agent = agent("127.79.20.1");
    let scratch = tempfile::tempdir().unwrap();
    let file = |name: &str| scratch.path().join(name).to_str().unwrap().to_owned();
    let (captures, html, junit) = (file("captures"), file("r.html"), file("r.xml"));
    let output = conform(&[
        "127.79.20.1",
        "--json",
        "--captures",
        &captures,
        "--html",
        &html,
        "--junit",
        &junit,
    ]);
    let text = String::from_utf8(output.stdout).unwrap();
    let all = verdicts(&text);
    let is_right = |(name, verdict): &(String, String)| {
        is_measured(name)
            || verdict == if takes_a_raw_device(name) { "not supported" } else { "conforms" }
    };
    let wrong: Vec<_> = all.iter().filter(|&case| !is_right(case)).collect();
    assert!(wrong.is_empty() && all.len() >= 300, "{wrong:?}\n{text}");
    assert_eq!(output.status.code(), Some(0));

    let gap = fs::read(format!("{captures}/order-gap.pcapng")).unwrap();
    assert!(gap.len() > 200);
    assert_eq!(fs::read_dir(&captures).unwrap().count(), all.len());
    let page = fs::read_to_string(&html).unwrap();
    assert!(page.contains("order/gap") && page.contains("NAK PSN sequence error psn 513"));
    assert!(!page.contains("src=") && !page.contains("http"), "the page loads something");
    // pauses after an RNR NAK
    assert_eq!(page.matches("Measured pauses over their minimum").count(), 1);
    assert_eq!(page.matches("<circle cx=").count(), 32, "a pause was too short");
    let xml = fs::read_to_string(&junit).unwrap();
    assert_eq!(xml.matches("<testcase ").count(), all.len());
    assert!(!xml.contains("<failure"));
}

#[test]
fn two_verdicts_of_one_case() {
    let scratch = tempfile::tempdir().unwrap();
    let path = |name: &str| scratch.path().join(name).to_str().unwrap().to_owned();
    let (own, a, b) = (path("own.case"), path("a.json"), path("b.json"));
    let case = |response: &str| {
        format!(
            "chapter Own\ncase one\n  rule R\n  cost C\n  harmful\n  connect rc\n  \
             send write-only psn 0 ack-req to target data 16\n  expect ack psn {response}\n"
        )
    };
    fs::write(&own, case("0")).unwrap();
    fs::write(&a, said(&["--virtual", "--cases", &own, "--json", "--repeat", "3"])).unwrap();
    fs::write(&own, case("1")).unwrap();
    let output = conform(&["--virtual", "--cases", &own, "--json"]);
    assert_eq!(output.status.code(), Some(4));
    fs::write(&b, output.stdout).unwrap();
    let output = conform(&["diff", &a, &b]);
    let text = String::from_utf8(output.stdout).unwrap();
    assert_eq!(output.status.code(), Some(3));
    assert!(text.contains("own/one") && text.contains("1 cases differ"), "{text}");
    assert!(said(&["diff", &a, &a]).contains("0 cases differ"));
    // the error, with the packets
    let output = conform(&["--virtual", "--cases", &own]);
    let text = String::from_utf8(output.stdout).unwrap();
    for part in ["own/one: harmful", "line 8: its PSN is 0, expected 1", "device under test"] {
        assert!(text.contains(part), "{part}: {text}");
    }
    assert!(text.lines().all(|line| line.chars().count() <= 80), "{text}");
}

/// Each repetition counts.
#[test]
fn measured_pauses_are_drawn() {
    let scratch = tempfile::tempdir().unwrap();
    let path = |name: &str| scratch.path().join(name).to_str().unwrap().to_owned();
    let (own, html) = (path("own.case"), path("own.html"));
    let case = |name: &str, least: &str| {
        format!(
            "case {name}\n  rule R\n  cost C\n  connect rc\n  post send 1 bytes 16\n  \
             expect send-only psn 0\n  send rnr psn 0 timer 12 msn 0\n  \
             expect send-only psn 0 after {least}\n"
        )
    };
    let text = format!("chapter Own\n{}{}", case("right", "rnr-timer-12"), case("more", "1s"));
    fs::write(&own, text).unwrap();
    let arguments = ["--virtual", "--cases", &own, "--repeat", "2", "--json", "--html", &html];
    let output = conform(&arguments);
    assert_eq!(output.status.code(), Some(3), "{output:?}");
    let document: Value = serde_json::from_slice(&output.stdout).unwrap();
    for (index, least) in [(0, 640.0), (1, 1e6)] {
        let pause = json!({"least_us": least, "measured_us": 640.0});
        assert_eq!(document["cases"][index]["pauses"], json!([pause, pause]));
    }
    let page = fs::read_to_string(&html).unwrap();
    // decades from 100 µs to 1 s on 320 units
    let right =
        "<circle cx=\"134.5\" cy=\"267.5\" r=\"4\"><title>own/right: 640µs, at least 640µs<";
    let early = "<circle class=\"early\" cx=\"390.0\" cy=\"267.5\" r=\"4\"><title>own/more: 640µs, at least 1s<";
    for circle in [right, early] {
        assert_eq!(page.matches(circle).count(), 2, "{circle}\n{page}");
    }
    let caption = "4 pauses: 0.00 to 1.00 times the minimum";
    assert!(page.contains(caption), "{page}");
    // two equal minimums make no curve
    fs::write(&own, format!("chapter Own\n{}", case("right", "rnr-timer-12"))).unwrap();
    said(&["--virtual", "--cases", &own, "--repeat", "2", "--html", &html]);
    assert!(!fs::read_to_string(&html).unwrap().contains("<svg"));
}

/// Forwards commands to an agent until a case ends.
fn cut(listener: &TcpListener, agent: &str) {
    let mut instrument = BufReader::new(listener.accept().unwrap().0);
    let mut agent = BufReader::new(TcpStream::connect(agent).unwrap());
    let mut cleared = 0;
    loop {
        let (mut command, mut response) = (String::new(), String::new());
        instrument.read_line(&mut command).unwrap();
        cleared += usize::from(command.contains("clear"));
        if cleared == 2 {
            return;
        }
        agent.get_mut().write_all(command.as_bytes()).unwrap();
        agent.read_line(&mut response).unwrap();
        instrument.get_mut().write_all(response.as_bytes()).unwrap();
    }
}

/// The failure is of the case that stops the device, not of the next.
#[test]
fn a_case_that_stops_the_device_is_named() {
    let _agent = agent("127.79.20.2");
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let place = listener.local_addr().unwrap().to_string();
    let cutting = thread::spawn(move || cut(&listener, "127.79.20.2:4792"));
    let scratch = tempfile::tempdir().unwrap();
    let own = scratch.path().join("own.case").to_str().unwrap().to_owned();
    let case = |name: &str| {
        format!(
            "case {name}\n  rule R\n  cost C\n  connect rc\n  \
             send write-only psn 0 ack-req to target data 16\n  expect ack psn 1\n"
        )
    };
    fs::write(&own, format!("chapter Own\n{}{}", case("one"), case("two"))).unwrap();
    let output = conform(&["127.79.20.2", "--agent", &place, "--cases", &own, "--json"]);
    cutting.join().unwrap();
    assert_eq!(output.status.code(), Some(3));
    let document: Value = serde_json::from_slice(&output.stdout).unwrap();
    let found = |index: usize| {
        let case = &document["cases"][index];
        (case["verdict"].as_str().unwrap(), case["finding"].as_str().unwrap())
    };
    let gone = "the agent closed the connection: it closed the connection";
    let (verdict, finding) = found(0);
    assert_eq!(verdict, "deviates");
    assert!(
        finding.ends_with(&format!(
            "expected 1, in the RC Acknowledge of PSN 0x200, ACK; then {gone}"
        )),
        "{finding}"
    );
    let (verdict, finding) = found(1);
    assert_eq!(verdict, "inconclusive");
    assert!(finding.ends_with(gone), "{finding}");
}

struct Client(BufReader<TcpStream>);

impl Client {
    fn new(agent: &str, token: &str) -> Self {
        let stream = TcpStream::connect((agent, 4792)).unwrap();
        stream.set_read_timeout(Some(Duration::from_secs(20))).unwrap();
        let mut client = Self(BufReader::new(stream));
        client.send(token);
        client
    }

    fn send(&mut self, line: &str) {
        self.0.get_mut().write_all(format!("{line}\n").as_bytes()).unwrap();
    }

    /// Null: the agent has closed the connection.
    fn response(&mut self) -> Value {
        let mut line = String::new();
        self.0.read_line(&mut line).unwrap();
        if line.is_empty() { Value::Null } else { serde_json::from_str(&line).unwrap() }
    }

    fn ask(&mut self, commands: &Value) -> Value {
        self.send(&commands.to_string());
        self.response()
    }
}

#[test]
fn an_agent_serves_who_knows_its_token() {
    let address = "127.79.20.5";
    let mut start = command(&["agent", &format!("udp:{address}")]);
    let (_agent, line) = Running::start(start.env_remove(VARIABLE));
    let token = line.trim_end().rsplit_once(", token ").unwrap().1;
    assert!(token.len() == 32 && token != TOKEN, "{line}");
    let text = "this is not the token that the agent has printed";
    for wrong in [TOKEN, "", r#"[{"do": "hello"}]"#] {
        let mut client = Client::new(address, wrong);
        assert_eq!(client.response(), json!([{"error": "EACCES", "text": text}]), "{wrong}");
        assert_eq!(client.response(), Value::Null);
    }
    let mut client = Client::new(address, token);
    assert_eq!(client.response(), json!([]));
    assert_eq!(client.ask(&json!([{"do": "hello"}]))[0]["kind"], "ours");
    drop(client);

    let only = ["--only", "wire/alive"];
    said(&[&[address, "--token", token], &only[..]].concat());
    let give = format!("pass the token that it printed by --token or {VARIABLE}");
    for (value, why) in [(Some(TOKEN), text), (None, &give)] {
        let mut command = command(&[address]);
        match value {
            Some(value) => command.env(VARIABLE, value),
            None => command.env_remove(VARIABLE),
        };
        let output = command.output().unwrap();
        let error = String::from_utf8(output.stderr).unwrap();
        assert_eq!(error, format!("roce: the agent at {address}:4792: {why}\n"));
        assert_eq!(output.status.code(), Some(1));
    }
}

/// The agent reports the bound and continues.
#[test]
fn an_agent_does_nothing_without_bound() {
    let address = "127.79.20.6";
    let _agent = agent(address);
    let mut client = Client::new(address, TOKEN);
    client.response();
    let huge = 9_000_000_000_000_000_000_u64;
    let mr = |length| json!({"do": "mr", "name": "mr", "pd": "pd", "length": length, "access": []});
    let poll =
        |count: u64, timeout| json!({"do": "poll", "cq": "cq", "count": count, "timeout": timeout});
    let part = |what: &str, offset: u64, length: u64| json!({"do": what, "mr": "mr", "offset": offset, "length": length, "seed": u64::MAX});
    let cq = |size: u64| json!({"do": "cq", "name": "cq", "size": size});
    let made = client.ask(&json!([{"do": "pd", "name": "pd"}, mr(4096_u64), cq(16)]));
    assert!(made.as_array().unwrap().iter().all(|it| it.get("error").is_none()), "{made}");
    for (command, text) in [
        (mr(huge), "at most 67108864"),
        (cq(huge), "at most 65536"),
        (poll(1, -1.0), "the timeout -1 s is out of range; expected 0 to 30 s"),
        (poll(1, 1e9), "the timeout 1000000000 s is out of range; expected 0 to 30 s"),
        (poll(huge, 0.0), "at most 65536"),
        (part("fill", huge, 1), "at most 67108864"),
        (part("fill", 0, huge), "at most 67108864"),
        (part("differs", u64::MAX, 2), "at most 67108864"),
        (part("fill", 4096, 4096), "outside of the region"),
    ] {
        let response = client.ask(&json!([command]));
        let said = response[0]["text"].as_str().unwrap();
        assert!(response[0]["error"] == "EPROTO" && said.contains(text), "{command}: {response}");
    }
    assert_eq!(
        client.ask(&json!([part("fill", 0, 4096), part("differs", 0, 4096)])),
        json!([{}, {"differs": null}])
    );
    let many = vec![json!({"do": "hello"}); 1025];
    assert_eq!(
        client.ask(&many.into())[0]["text"],
        "too many commands in a line: 1025; at most 1024"
    );
    // beyond the total bound
    let big = |n: usize| json!({"do": "mr", "name": format!("{n}"), "pd": "pd", "length": 64 << 20, "access": []});
    let responses = client.ask(&json!([big(0), big(1), big(2), big(3)]));
    assert!(
        responses[2].get("error").is_none() && responses[3]["error"] == "ENOMEM",
        "{responses}"
    );
}

/// Neither a departed client's wait nor a client without a token blocks others.
#[test]
fn nobody_keeps_an_agent_from_others() {
    let address = "127.79.20.7";
    let _agent = agent(address);
    let started = Instant::now();
    let _silent: Vec<_> = (0..3).map(|_| TcpStream::connect((address, 4792)).unwrap()).collect();
    let mut client = Client::new(address, TOKEN);
    client.response();
    let poll = json!({"do": "poll", "cq": "cq", "count": 1, "timeout": 30});
    let cq = json!({"do": "cq", "name": "cq", "size": 16});
    client.send(&json!([cq, poll, poll, poll]).to_string());
    drop(client);
    let mut client = Client::new(address, TOKEN);
    assert_eq!(client.response(), json!([]));
    assert_eq!(client.ask(&json!([{"do": "hello"}]))[0]["kind"], "ours");
    assert!(started.elapsed() < Duration::from_secs(15), "{:?}", started.elapsed());
}

#[test]
fn the_agent_for_others_is_printed() {
    let program = said(&["agent", "--python"]);
    assert!(program.starts_with("#!/usr/bin/env python3\n"));
    let Ok(python) = Command::new("python3").arg("--version").output() else { return };
    assert!(python.status.success());
    let scratch = tempfile::tempdir().unwrap();
    let path = scratch.path().join("agent.py");
    fs::write(&path, program).unwrap();
    // `-S`: no pyverbs
    let output = Command::new("python3").args(["-S", "-E"]).arg(&path).output().unwrap();
    let error = String::from_utf8(output.stderr).unwrap();
    assert_eq!(output.status.code(), Some(1), "{error}");
    assert!(error.contains("install python3-pyverbs") && error.lines().count() == 1, "{error}");
}

/// On this library: all but what `ibv_post_send` lacks.
#[test]
fn the_agent_in_c_drives_a_device() {
    let scratch = tempfile::tempdir().unwrap();
    let file = |name: &str| scratch.path().join(name).to_str().unwrap().to_owned();
    let (source, program) = (file("agent.c"), file("agent"));
    fs::write(&source, said(&["agent", "--c"])).unwrap();
    let mut compiler = Command::new("cc");
    compiler.args(["-std=c11", "-Wall", "-Wextra", "-Wpedantic", "-Werror", "-O1"]);
    compiler.args([&source, "-o", &program, "-libverbs"]);
    let Ok(compiled) = compiler.output() else {
        eprintln!("there is no C compiler: it is left to CI");
        return;
    };
    let text = String::from_utf8_lossy(&compiled.stderr);
    if text.contains("infiniband/verbs.h: No such file") {
        eprintln!("no headers are installed: it is left to CI");
        return;
    }
    assert!(compiled.status.success() && text.is_empty(), "{text}");

    let _alone = GROUPS.lock().unwrap();
    let address = "127.79.20.4";
    let mut run = Command::new(env!("CARGO_BIN_EXE_roce"));
    run.args(["run", "-d", "udp:127.79.20.4", "--", &program]).stdin(Stdio::null());
    // cargo builds it for the tests
    run.env(VARIABLE, TOKEN);
    run.env("ROCE_LIBRARY", env::current_exe().unwrap().with_file_name("libroce_abi.so"));
    let (agent, line) = Running::start(&mut run);
    assert!(line.ends_with(&format!(" ({address}), agent {address}:4792\n")), "{line}");

    let text = String::from_utf8(conform(&[address, "--json"]).stdout).unwrap();
    let mut others = verdicts(&text);
    others.retain(|(name, verdict)| {
        verdict != "conforms" && !takes_a_raw_device(name) && !is_measured(name)
    });
    let posted =
        ["flush/posted", "flush/posted-behind-write", "flush/posted-again", "flush/posted-write"];
    let posted = posted.map(|name| (name.to_owned(), "not supported".to_owned()));
    assert_eq!(others, posted, "{text}");

    let mut stranger = Client::new(address, &"0".repeat(32));
    assert_eq!(stranger.response()[0]["error"], "EACCES");
    assert_eq!(stranger.response(), Value::Null);
    let mut client = Client::new(address, TOKEN);
    assert_eq!(client.response(), json!([]));
    let poll = |timeout| json!({"do": "poll", "cq": "cq", "count": 1, "timeout": timeout});
    let huge = 9_000_000_000_000_000_000_u64;
    let cq = |size| json!({"do": "cq", "name": "cq", "size": size});
    let mr = json!({"do": "mr", "name": "mr", "pd": "pd", "length": huge, "access": []});
    let pd = json!({"do": "pd", "name": "pd"});
    let responses = client.ask(&json!([pd, cq(16), cq(huge), mr, poll(-1.0), poll(1e9)]));
    let texts = responses.as_array().unwrap().iter().map(|response| response["text"].as_str());
    let wanted = [
        None,
        None,
        Some("size 9000000000000000000 is too large; at most 65536"),
        Some("length 9000000000000000000 is too large; at most 67108864"),
        Some("the timeout -1 s is out of range; expected 0 to 30 s"),
        Some("the timeout 1e+09 s is out of range; expected 0 to 30 s"),
    ];
    assert!(texts.eq(wanted), "{responses}");
    client.send(&json!([poll(30.0), poll(30.0)]).to_string());
    drop(client);
    let started = Instant::now();
    assert_eq!(Client::new(address, TOKEN).response(), json!([]));
    assert!(started.elapsed() < Duration::from_secs(15), "{:?}", started.elapsed());
    drop(agent);
}

#[test]
fn bursts_are_noted_and_drawn() {
    let scratch = tempfile::tempdir().unwrap();
    let html = scratch.path().join("r.html");
    let html = html.to_str().unwrap();
    let json = said(&["--virtual", "--only", "congestion/slows-down", "--json", "--html", html]);
    let document: Value = serde_json::from_str(&json).unwrap();
    let bursts = document["cases"][0]["bursts"].as_array().unwrap();
    let ends: Vec<_> = bursts.iter().map(|burst| &burst["packets"][31]).collect();
    assert_eq!(ends[0], &json!({"at_us": 0.0, "bytes": 1024}));
    assert!(ends[1..].iter().all(|end| end["at_us"].as_f64().unwrap() >= 150.0), "{ends:?}");
    let page = fs::read_to_string(html).unwrap();
    assert!(page.contains("<figcaption>Bursts, 1: at once; 2: "), "{page}");
    assert_eq!(page.matches("<path class=\"burst\"").count(), 4);
    assert!(
        bursts.iter().all(|burst| burst["recoveries"] == json!([]) && burst["share"].is_null())
    );

    let json = said(&["--virtual", "--only", "recovery/after-a-nak-7", "--json", "--html", html]);
    let document: Value = serde_json::from_str(&json).unwrap();
    let recovery = &document["cases"][0]["bursts"][0]["recoveries"][0];
    assert_eq!(
        (&recovery["lost"], &recovery["naks"], &recovery["again"]),
        (&7.into(), &1.into(), &8.into())
    );
    let page = fs::read_to_string(html).unwrap();
    assert!(page.contains("packet 7 lost, retransmitted after "), "{page}");
}

#[test]
fn shares_of_queue_pairs_are_noted_and_drawn() {
    let scratch = tempfile::tempdir().unwrap();
    let html = scratch.path().join("r.html");
    let html = html.to_str().unwrap();
    let json = said(&["--virtual", "--only", "fairness/writes-of-4", "--json", "--html", html]);
    let document: Value = serde_json::from_str(&json).unwrap();
    let bursts = document["cases"][0]["bursts"].as_array().unwrap();
    let shares: Vec<_> =
        bursts.iter().map(|burst| burst["share"]["packets"].as_u64().unwrap()).collect();
    assert_eq!(shares.iter().max(), Some(&512), "{shares:?}");
    assert!(shares.iter().all(|&share| share > 256), "{shares:?}");
    let of: u64 = shares.iter().sum();
    assert!(bursts.iter().all(|burst| burst["share"]["of"] == of));
    let page = fs::read_to_string(html).unwrap();
    assert_eq!(page.matches("<path class=\"burst\"").count(), 4);
    assert_eq!(page.matches(&format!(" of the {of} packets until the first was done")).count(), 8);
}

/// Verdicts of a raw device on a wire; empty where namespaces are forbidden.
fn on_the_wire(cases: &[&str]) -> Vec<(String, String)> {
    const SCRIPT: &str = "
        ip link set lo up
        ip link add veth0 type veth peer name veth1
        ip address add 10.79.43.2/24 dev veth1
        for i in veth0 veth1; do ip link set $i up; done
        $0 conform agent raw:veth1 >&2 &
        trap \"kill $!\" EXIT
        conform='conform 10.79.43.2 --agent 127.0.0.1:4792 --from raw:veth0,ip=10.79.43.1/24'
        until $0 $conform --only wire/alive > /dev/null 2>&1; do sleep 0.1; done
        $0 $conform --json";
    crate::watchdog::start(String::new);
    let in_network = |script: &str| {
        let roce = env!("CARGO_BIN_EXE_roce");
        let mut unshare = Command::new("unshare");
        unshare.args(["--map-root-user", "--net", "sh", "-euc", script, roce]);
        unshare.env(VARIABLE, TOKEN).stdin(Stdio::null()).output()
    };
    let possible = in_network("ip link show lo");
    if !possible.as_ref().is_ok_and(|output| output.status.success()) {
        let wanted = env::var_os("ROCE_NAMESPACES").is_some();
        assert!(!wanted, "no namespace can be made: {possible:?}");
        return Vec::new();
    }
    let only: String = cases.iter().map(|name| format!(" --only {name}")).collect();
    let output = in_network(&format!("{SCRIPT}{only}")).unwrap();
    verdicts(std::str::from_utf8(&output.stdout).unwrap())
}

/// A busy host may read a pause too late; the instrument reports its own lateness.
#[test]
fn a_raw_device_is_played_on_the_wire() {
    let all = on_the_wire(&["pause/", "wire/source-port"]);
    let harmful = all.iter().find(|(_, verdict)| verdict == "harmful");
    assert!(harmful.is_none() && (all.is_empty() || all.len() >= 12), "{all:?}");
    let conforms =
        |(name, verdict): &(String, String)| name.starts_with("pause/") || verdict == "conforms";
    assert!(all.iter().all(conforms), "{all:?}");
}

#[test]
#[ignore = "its bounds are those of a quiet machine"]
fn a_raw_device_keeps_pauses_on_the_wire() {
    const ROUNDS: usize = 9;
    let mut conforming = BTreeMap::new();
    for (name, verdict) in (0..ROUNDS).flat_map(|_| on_the_wire(&["pause/"])) {
        *conforming.entry(name).or_insert(0) += usize::from(verdict == "conforms");
    }
    let is_most = |&rounds: &usize| rounds > ROUNDS / 2;
    assert!(conforming.len() >= 8 && conforming.values().all(is_most), "{conforming:?}");
}

#[test]
fn cases_are_listed_and_explained() {
    let list = said(&["--list"]);
    assert!(list.contains("\n  order/one-nak\n") && list.contains("PSNs, gaps, duplicates"));
    let some = said(&["--list", "--only", "order/wrap"]);
    assert!(some.contains("order/wrap-gap") && !some.contains("one-nak"), "{some}");
    let rest = said(&["--list", "--only", "order/wrap", "--skip", "order/wrap-gap"]);
    assert_eq!(rest.lines().count() + 1, some.lines().count(), "{rest}");
    assert!(!rest.contains("wrap-gap"), "{rest}");
    let explained = said(&["--explain", "order/one-nak"]);
    assert!(
        explained.contains("A mistake costs:") && explained.contains("nak-sequence psn 0 msn 0")
    );
    let dry = said(&["--dry-run", "--only", "order/gap-of-2"]);
    assert!(dry.contains("RDMA WRITE Only psn 514 16 B") && !dry.contains("NAK"), "{dry}");
    let dry = said(&["--dry-run", "--only", "pause/other-priorities", "--only", "pause/runs-out"]);
    for frames in [
        "pause of priority 0 for 150ms",
        "pause of priorities 1, 2, 3, 4, 5, 6, 7 for 400ms",
        "pause of all priorities, once",
    ] {
        assert!(dry.contains(frames), "{frames}: {dry}");
    }
}

#[test]
fn mistakes_are_said_in_one_line() {
    for (arguments, part) in [
        (&["127.79.20.9"][..], "start `roce conform agent udp:127.79.20.9` there"),
        (&["--virtual", "--only", "nothing-like-it"], "see `roce conform --list`"),
        (&["--explain", "order/none"], "`roce conform --list` lists them"),
        (&["--virtual", "--cases", "/nonexistent"], "cannot read /nonexistent"),
        (&["diff", "/etc/passwd", "/etc/passwd"], "is not a result; write one with"),
        (&["agent", "none"], "none"),
        (&["127.79.20.9"], "the program that `roce conform agent --python` prints"),
    ] {
        let output = conform(arguments);
        let error = String::from_utf8(output.stderr).unwrap();
        assert_eq!(output.status.code(), Some(1), "{arguments:?}");
        assert!(error.contains(part) && error.lines().count() == 1, "{arguments:?}: {error}");
    }
}
