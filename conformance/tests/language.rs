use roce_conformance::{
    Chapter, Runner, Simulated, Verdict,
    case::{Field, Step},
};

const HEAD: &str = "chapter Own\n\ncase one\n  rule A rule.\n  cost A cost.\n";

fn chapter(steps: &str) -> Result<Chapter, String> {
    let lines: Vec<_> = steps.lines().map(|line| format!("  {line}")).collect();
    Chapter::parse("own", &format!("{HEAD}{}\n", lines.join("\n")))
        .map_err(|error| error.to_string())
}

#[track_caller]
fn refused(steps: &str, part: &str) {
    let error = chapter(steps).unwrap_err();
    assert!(error.contains(part), "{steps:?}: {error}");
}

#[test]
fn a_case_is_read() {
    let text = "harmful\nconnect rc mtu 256\nsend write-only psn -1 to target+8 data 4\nexpect ack";
    let chapter = chapter(text).unwrap();
    assert_eq!((chapter.name.as_str(), chapter.title.as_str()), ("own", "Own"));
    let [case] = &chapter.cases[..] else { panic!("{chapter:?}") };
    assert_eq!((case.name.as_str(), case.severity), ("own/one", Verdict::Harmful));
    assert_eq!((case.rule.as_str(), case.cost.as_str()), ("A rule.", "A cost."));
    let [(7, Step::Connect(connection)), (8, Step::Send(packet)), (9, Step::Expect { .. })] =
        &case.steps[..]
    else {
        panic!("{case:?}")
    };
    assert_eq!((connection.mtu, connection.rq_psn), (256, 0x200));
    assert_eq!(packet.fields[0], Field::Psn(-1));
    assert_eq!(packet.fields[1], Field::Target { region: "target".into(), offset: 8 });
}

#[test]
fn a_case_for_each_value() {
    let text = "chapter Own\ncase a-{n}\n  for n to in 1:x 2:y\n  rule R\n  cost C {to}\n  connect rc\n  \
                expect ack psn {n}\ncase b-{n}\n  for n in 3..5\n  rule R\n  cost C\n  connect uc\n  \
                completes send {n} success\n";
    let chapter = Chapter::parse("own", text).unwrap();
    let names: Vec<_> = chapter.cases.iter().map(|case| case.name.as_str()).collect();
    assert_eq!(names, ["own/a-1", "own/a-2", "own/b-3", "own/b-4", "own/b-5"]);
    assert_eq!(chapter.cases[1].cost, "C y");
}

#[test]
fn a_range_stands_for_as_many_steps() {
    let chapter = chapter("connect rc pairs 3\neach post write 2..4 bytes 8\nexpect ack").unwrap();
    let ids: Vec<_> = chapter.cases[0]
        .steps
        .iter()
        .filter_map(|(line, step)| match step {
            Step::At { pair: None, step } => match &**step {
                Step::Post(request) => Some((*line, request.id)),
                _ => None,
            },
            _ => None,
        })
        .collect();
    assert_eq!(ids, [(7, 2), (7, 3), (7, 4)]);
    assert_eq!(chapter.cases[0].pairs(), 3);
}

#[test]
fn mistakes_name_the_line_and_what_is_right() {
    refused("connect rc\nburst 4 loses 4", "loses has the place of one of the 4 packets");
    refused(
        "connect rc\nexpect ack psn x",
        "own.case:7: psn x is not a number; write for example 3",
    );
    refused("connect rd\nexpect ack", "own.case:6: unknown service rd; expected rc, uc, ud or cm");
    refused("connect rc\njump", "unknown statement jump");
    refused("connect rc\nsend write-twice", "unknown packet write-twice");
    refused("connect rc\nsend ack colour 3", "unknown packet field colour");
    refused("connect rc\nexpect ack wrong-icrc", "expect lacks this field");
    refused("connect rc\nexpect nothing for 5", "5 is not a time");
    refused("connect rc\nwait rnr-timer-32", "rnr-timer-32 is not a time");
    refused("connect rc colour 3\nexpect ack", "connect does not take colour");
    refused("connect rc rights all\nexpect ack", "unknown access right all");
    refused("send ack\nexpect ack", "invalid first step; expected connect");
    refused("connect rc\nsend ack\nexpect nothing for 5ms", "the case expects nothing");
    refused("send req to target\nexpect rep", "the CM message req lacks this field");
    refused("send req\nexpect rep port 9", "expect lacks this field");
    refused("connect rc\nsend ack reason 8", "ack lacks this field; only CM messages");
    refused(
        "send req\nexpect rep\npost send 1",
        "own.case:8: invalid step after `connect` by messages",
    );
    refused("connect rc pairs 17\nexpect ack", "pairs is the number of queue pairs, from 1 to 16");
    refused("connect rc\non 0 state RTS", "queue pairs are counted from 1");
    refused("connect rc pairs 2\neach connect rc", "connect is not for one queue pair");
    refused("connect rc\nanswer 4 loses 4", "loses and swaps have places of the 4 responses");
    refused("connect rc\nanswer 4 swaps 3", "the last response has no successor");
    refused(
        "connect rc\npost write 1 bytes 10 pieces 3",
        "10 bytes are not 3 pieces of one length",
    );
    refused("connect rc\nexpect ack group 1", "expect lacks this field");
    for (text, part) in [
        ("case one", "own.case:1: no chapter; start the file with: chapter TITLE"),
        ("chapter A\nconnect rc", "own.case:2: expected: case NAME"),
        (
            "chapter A\ncase one\n  cost C\n  connect rc\n  expect ack",
            "the case has no line `rule`",
        ),
        ("chapter A\ncase one\n  for n in 1 2\n  rule R\n", "the name lacks the variable"),
        ("chapter A\ncase {n}\n  for n m in 1 2\n  rule R\n", "own.case:3: write: for NAME in"),
    ] {
        let error = Chapter::parse("own", text).unwrap_err().to_string();
        assert!(error.contains(part), "{text:?}: {error}");
    }
}

fn verdict(steps: &str) -> (Verdict, Option<(usize, String)>) {
    let mut subject = Simulated::default();
    let outcome = Runner::new(&mut subject).run(&chapter(steps).unwrap().cases[0]);
    (outcome.verdict, outcome.finding)
}

#[test]
fn what_a_device_does_otherwise() {
    let write = "connect rc\nsend write-only psn 0 ack-req to target data 16\n";
    for (steps, part) in [
        ("expect ack psn 1", "its PSN is 0, expected 1"),
        ("expect ack msn 2", "the MSN is 0x1, expected 0x2"),
        ("expect nak-access psn 0", "it says ACK, expected NAK remote access error"),
        ("expect rnr", "it says ACK"),
        ("expect read-response-only psn 0", "it is RC Acknowledge"),
        ("expect nothing for 1ms\nexpect ack", "the device sends RC Acknowledge of PSN 0x200, ACK"),
        ("expect ack\nexpect ack within 3ms", "nothing comes in 3ms"),
        ("expect ack\nmemory target bytes 17", "byte 16 of target is not the one of the pattern"),
        ("expect ack\nword target is 1", "expected 0x1"),
        ("expect ack\nstate ERR", "the queue pair is in RTS, expected ERR"),
        ("expect ack after 1ms", "it comes after 0ns, before 1ms are over"),
        (
            "expect ack\ncompletes receive 1 success within 2ms",
            "request 1 does not complete in 2ms",
        ),
    ] {
        let (verdict, finding) = verdict(&format!("{write}{steps}"));
        let (_, text) = finding.unwrap();
        assert_eq!(verdict, Verdict::Deviates, "{steps}");
        assert!(text.contains(part), "{steps}: {text}");
    }
    let (harmful, _) = verdict(&format!("harmful\n{write}expect ack psn 1"));
    assert_eq!(harmful, Verdict::Harmful);
    let (optional, _) = verdict(&format!("optional\n{write}expect ack psn 1"));
    assert_eq!(optional, Verdict::NotSupported);
}

#[test]
fn a_case_that_cannot_be_played_is_inconclusive() {
    for (steps, part) in [
        ("connect rc\nsend write-only psn 0 to nowhere\nexpect ack", "unknown region nowhere"),
        ("connect uc\nsend read-request psn 0\nexpect ack", "has no such packet"),
        ("connect rc\nagain\nexpect ack", "nothing was sent before"),
        ("connect rc\nreceive 1 bytes 99999\nexpect ack", "room for 32768"),
    ] {
        let (verdict, finding) = verdict(steps);
        assert_eq!(verdict, Verdict::Inconclusive, "{steps}");
        assert!(finding.unwrap().1.contains(part), "{steps}");
    }
    let (verdict, _) = verdict("connect rc mtu 8192\nexpect ack");
    assert_eq!(verdict, Verdict::NotSupported);
}
