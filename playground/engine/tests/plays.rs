use std::{collections::BTreeSet, fs, path::Path};

use roce_playground::{capture, example, explain, packet, play, read_script, scenarios, state};
use serde_json::{Value, json};

fn names() -> Vec<String> {
    let all: Value = serde_json::from_str(&scenarios()).unwrap();
    let names = all.as_array().unwrap().iter();
    names.map(|it| it["name"].as_str().unwrap().to_owned()).collect()
}

fn played(spec: &Value) -> Value {
    serde_json::from_str(&play(&spec.to_string()).unwrap()).unwrap()
}

fn state_after(spec: &Value, lines: usize) -> Value {
    serde_json::from_str(&state(&spec.to_string(), lines).unwrap()).unwrap()
}

fn rows(play: &Value) -> &[Value] {
    play["rows"].as_array().unwrap()
}

/// Without line breaks and arrows.
fn words(text: &str) -> String {
    let is_drawn = |c: char| "│├┤┼●─▶◀✗".contains(c) || c.is_whitespace();
    text.split(is_drawn).filter(|word| !word.is_empty()).collect::<Vec<_>>().join(" ")
}

#[test]
fn it_shows_what_the_tool_shows() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../cli/tests/scenarios");
    for name in names() {
        if name == "free" || name == "script" {
            continue;
        }
        let printed = words(&fs::read_to_string(folder.join(format!("{name}.txt"))).unwrap());
        let play = played(&json!({ "scenario": name }));
        assert_eq!(play["ended"], Value::Null, "{name}");
        let mut rest = &printed[..];
        for row in rows(&play) {
            for text in [&row["text"], &row["why"]] {
                // Ladders of 80 columns truncate long names of packets.
                let text: String = words(text.as_str().unwrap()).chars().take(40).collect();
                let at = rest.find(&text).unwrap_or_else(|| panic!("{name}: {text}\n{rest}"));
                rest = &rest[at + text.len()..];
            }
        }
    }
}

#[test]
fn a_step_back_gives_the_same_bytes() {
    let network = json!({ "delay": 7, "jitter": 3, "loss": 10, "duplicate": 5, "reorder": 5 });
    for name in names() {
        for spec in [
            json!({ "scenario": name }),
            json!({ "scenario": name, "seed": 7, "network": network }),
        ] {
            let steps = played(&spec)["steps"].as_u64().unwrap() as usize;
            let places = [0, 1, steps / 3, steps / 2, steps.saturating_sub(1), steps];
            let forward = places.map(|at| state_after(&spec, at));
            let back = places.map(|at| capture(&spec.to_string(), at).unwrap());
            for (index, at) in places.into_iter().enumerate().rev() {
                assert_eq!(state_after(&spec, at), forward[index], "{name} at {at}");
                assert_eq!(capture(&spec.to_string(), at).unwrap(), back[index], "{name} at {at}");
            }
        }
    }
}

fn texts(play: &Value) -> Vec<String> {
    let lines = rows(play).iter().filter(|row| !row["at"].is_null());
    lines.map(|row| format!("{} {}", row["text"], row["why"])).collect()
}

#[test]
fn a_lost_packet_is_repaired_by_a_nak() {
    let spec = json!({ "scenario": "write", "fates": { "0": "lose" } });
    let play = played(&spec);
    let texts = texts(&play);
    assert!(rows(&play).iter().any(|row| row["kind"] == "lost" && row["packet"] == 0));
    assert!(texts.iter().any(|text| text.contains("NAK PSN sequence error")), "{texts:#?}");
    let unharmed = played(&json!({ "scenario": "write" }));
    let memory = |spec: &Value, play: &Value| {
        let steps = play["steps"].as_u64().unwrap() as usize;
        state_after(spec, steps)["nodes"][1]["memory"].clone()
    };
    assert_eq!(memory(&spec, &play), memory(&json!({ "scenario": "write" }), &unharmed));
}

#[test]
fn a_packet_that_is_held_doubled_damaged_or_let_pass() {
    let fate = |scenario: &str, fate: Value| {
        texts(&played(&json!({ "scenario": scenario, "fates": { "0": fate } }))).join("\n")
    };
    assert!(fate("send", json!({ "hold": 50 })).contains("an earlier packet is missing"));
    assert!(fate("read", json!("double")).contains("a duplicate, response resent"));
    assert!(fate("send", json!({ "damage": 20 })).contains("invariant CRC is wrong"));
    let spec = json!({ "scenario": "loss", "fates": { "2": "pass" } });
    assert!(!texts(&played(&spec)).join("\n").contains("NAK"));
}

#[test]
fn requests_of_a_player() {
    let ops = ["send", "write", "read", "fetch-add", "compare-swap", "wrong-key", "receive"];
    for scenario in names() {
        for op in ops {
            for end in ["a", "b"] {
                let post = json!({ "after": 1, "end": end, "op": op, "length": 64 });
                let play = played(&json!({ "scenario": scenario, "posts": [post] }));
                let seen = texts(&play).iter().any(|text| text.contains(" 1000:"));
                assert!(seen, "{scenario} {op} {end}");
            }
        }
    }
    let post = json!({ "after": 0, "end": "a", "op": "write", "length": 64 });
    let spec = json!({ "scenario": "free", "posts": [post] });
    let steps = played(&spec)["steps"].as_u64().unwrap() as usize;
    let memory = |lines| state_after(&spec, lines)["nodes"][1]["memory"][0]["hex"].to_string();
    assert!(memory(1).starts_with("\"4142") && memory(steps).starts_with("\"6162"));
}

#[test]
fn four_ends() {
    let spec = json!({ "scenario": "incast" });
    let play = played(&spec);
    assert_eq!(play["ends"], 4);
    let ways = play["packets"].as_array().unwrap().iter();
    let ways: BTreeSet<_> =
        ways.map(|it| format!("{}-{}", it["from"], it["to"]).replace('"', "")).collect();
    assert_eq!(ways, ["a-d", "b-d", "c-d", "d-a", "d-b", "d-c"].map(String::from).into());
    let notified = |end: &str| {
        let is_notified =
            |row: &&Value| row["end"] == end && row["why"] == "congestion notification";
        rows(&play).iter().filter(is_notified).count()
    };
    assert!(["a", "b", "c"].into_iter().all(|end| notified(end) > 0) && notified("d") == 0);
    let nodes = &state_after(&spec, usize::MAX)["nodes"];
    let ends: Vec<_> = nodes.as_array().unwrap().iter().map(|node| &node["end"]).collect();
    assert_eq!(ends, ["a", "b", "c", "d"]);
    // D's initial memory
    let written = nodes[3]["memory"][0]["hex"].as_str().unwrap();
    assert!(written.len() == 2 * 8192 && !written.contains("2122"));
    // A player's request goes to its queue pair's peer.
    let posts = [json!({ "after": 0, "end": "c", "qp": 0, "op": "read", "length": 64 })];
    let script = "connect rc A C\nconnect rc B C";
    let play = played(&json!({ "scenario": "script", "script": script, "posts": posts }));
    let packets = play["packets"].as_array().unwrap();
    assert_eq!((&packets[0]["from"], &packets[0]["to"]), (&json!("c"), &json!("a")));
    assert!(texts(&play).join("\n").contains("request 1000 completed: RdmaRead of 64 B"));
    let group = played(&json!({ "scenario": "multicast" }));
    assert_eq!(group["packets"][0]["to"], Value::Null);
}

/// The sliders' port replaces the scenario's; the scenario's own losses stay.
#[test]
fn a_port_of_the_players_own() {
    let port = |network: Value| {
        let spec = json!({ "scenario": "congestion", "network": network });
        let port = state_after(&spec, usize::MAX)["port"].clone();
        (port["marked"].as_u64().unwrap(), port["dropped"].as_u64().unwrap())
    };
    let (marked, dropped) = port(json!({ "delay": 5 }));
    assert!(marked > 10 && dropped == 0);
    let (marked, dropped) = port(json!({ "rate": 1000, "queue": 16 }));
    assert!(marked == 0 && dropped > 10);
    let network = json!({ "delay": 50, "rate": 1000 });
    let play = played(&json!({ "scenario": "read", "network": network }));
    assert_eq!(rows(&play).iter().filter(|row| row["kind"] == "lost").count(), 1);
}

#[test]
fn scripts_are_played_and_read() {
    let script = "connect rc mtu 256\nlose packet 1\nA post write 1 bytes 600";
    let spec = json!({ "scenario": "script", "script": script });
    let lost = played(&spec);
    assert!(texts(&lost).join("\n").contains("NAK for the gap at 101"));
    // the page overrides the script
    let spec = json!({ "scenario": "script", "script": script, "fates": { "1": "pass" } });
    assert!(!texts(&played(&spec)).join("\n").contains("NAK"));
    // the script's network overrides the sliders'
    let script = format!("network delay 9us, drop write nth 1\n{script}");
    let spec = json!({ "scenario": "script", "script": script, "network": { "loss": 100 } });
    let play = played(&spec);
    assert_eq!(play["packets"][0]["lost"], true);
    assert_eq!(play["packets"][2]["delay"], 9_000);
    let of = |text: &str| -> Value { serde_json::from_str(&read_script(text)).unwrap() };
    assert_eq!(of(&script), json!({ "mistake": null, "network": "delay 9us, drop write nth 1" }));
    assert_eq!(of(&example()), json!({ "mistake": null, "network": null }));
    let wrong = "connect rc\nA post wriet 1";
    let error = of(wrong)["mistake"].clone();
    assert_eq!(error["line"], 2);
    let spec = json!({ "scenario": "script", "script": wrong }).to_string();
    assert_eq!(error["text"], roce_playground::play(&spec).unwrap_err());
}

#[test]
fn what_goes_on_for_ever_is_ended() {
    let posts = [json!({ "after": 0, "end": "a", "op": "send", "length": 8 })];
    let play = played(&json!({ "scenario": "free", "posts": posts }));
    assert!(play["ended"].as_str().unwrap().contains("may go on for ever"), "{}", play["ended"]);
}

#[test]
fn a_packet_is_taken_apart_completely() {
    for name in names() {
        let spec = json!({ "scenario": name }).to_string();
        let count = played(&json!({ "scenario": name }))["packets"].as_array().unwrap().len();
        for number in 0..count.min(40) as u32 {
            let it: Value = serde_json::from_str(&packet(&spec, number).unwrap()).unwrap();
            let length = it["hex"].as_str().unwrap().len() / 2;
            let mut at = 0;
            for layer in it["layers"].as_array().unwrap() {
                assert_eq!(layer["start"], at);
                at += layer["length"].as_u64().unwrap() as usize;
                let fields = layer["fields"].as_array().unwrap();
                let bits: u64 = fields.iter().map(|field| field["bits"].as_u64().unwrap()).sum();
                assert!(fields.is_empty() || bits == 8 * layer["length"].as_u64().unwrap());
            }
            assert_eq!((at, it["coverage"].as_str().unwrap().len()), (length, length));
            assert_eq!(it["icrc"]["right"], true);
        }
        assert!(packet(&spec, 1_000_000).is_err());
    }
    let damaged = json!({ "scenario": "send", "fates": { "0": { "damage": 20 } } }).to_string();
    let it: Value = serde_json::from_str(&packet(&damaged, 0).unwrap()).unwrap();
    assert_eq!((&it["icrc"]["right"], &it["damaged"]), (&json!(false), &json!(48)));
}

#[test]
fn an_export_is_explained() {
    let spec = json!({ "scenario": "loss" }).to_string();
    let file = capture(&spec, usize::MAX).unwrap();
    let it: Value = serde_json::from_str(&explain(&file).unwrap()).unwrap();
    assert_eq!(it["connections"].as_array().unwrap().len(), 1);
    assert!(it["packets"].as_u64().unwrap() > 5 && it["complete"] == true);
    assert!(explain(b"no capture").is_err());
}

#[test]
fn mistakes_are_said() {
    for spec in [
        "",
        "{}",
        r#"{"scenario":"nonsense"}"#,
        r#"{"scenario":"send","colour":"red"}"#,
        r#"{"scenario":"send","network":{"loss":101}}"#,
        r#"{"scenario":"send","network":{"delay":-1}}"#,
        r#"{"scenario":"send","fates":{"0":"vanish"}}"#,
    ] {
        let error = play(spec).unwrap_err();
        assert!(!error.is_empty() && error.lines().count() == 1, "{spec}: {error}");
        assert!(state(spec, 3).is_err() && capture(spec, 3).is_err() && packet(spec, 0).is_err());
    }
}
