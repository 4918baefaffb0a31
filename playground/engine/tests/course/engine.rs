//! The engine's answer to a question.
//!
//! | name | meaning |
//! |---|---|
//! | `play` | a play, as a link's fragment |
//! | `capture` | a file in `docs/course/captures`, instead of a play |
//! | `end`, `kind` | only lines of this end (a to d), of this kind (sent, arrived, lost, note; finding) |
//! | `word` | the word after this text in the first line that has it; after nothing: a line's first |
//! | `last` | the same in the last such line |
//! | `count` | number of lines with this text |
//! | `time` | microseconds of the first line with this text |
//! | `state` | both ends' state at the play's place: a JSON pointer |
//! | `packet`, `field` | first word of a field's (`BTH.PSN`) meaning in a packet, or its value |

use std::{collections::BTreeMap, fs};

use roce_playground::{explain, packet, play, state};
use serde_json::Value;

use super::{fragment::Link, lesson};

struct Line {
    end: String,
    kind: String,
    text: String,
    nanos: u64,
}

pub(crate) fn answer(question: &BTreeMap<String, String>) -> String {
    let of = |name: &str| question.get(name).map(String::as_str);
    let link = of("play").map(Link::of);
    let spec = link.as_ref().map(|link| link.spec.to_string()).unwrap_or_default();
    if let Some(pointer) = of("state") {
        let at = link.and_then(|link| link.at).unwrap_or(usize::MAX);
        let state: Value = serde_json::from_str(&state(&spec, at).unwrap()).unwrap();
        return plain(state.pointer(pointer).unwrap_or_else(|| panic!("{pointer} in {state}")));
    }
    if let (Some(number), Some(field)) = (of("packet"), of("field")) {
        let it: Value =
            serde_json::from_str(&packet(&spec, number.parse().unwrap()).unwrap()).unwrap();
        return value_of(&it, field);
    }
    let lines = match of("capture") {
        Some(file) => captured(&fs::read(lesson::folder().join("captures").join(file)).unwrap()),
        None => played(&spec),
    };
    let matching = |name: &str, value: &str| of(name).is_none_or(|it| it == value);
    let lines: Vec<_> =
        lines.iter().filter(|it| matching("end", &it.end) && matching("kind", &it.kind)).collect();
    let with = |text: &str| {
        let line = lines.iter().find(|line| line.text.contains(text));
        *line.unwrap_or_else(|| panic!("no line has {text:?}"))
    };
    if let Some(text) = of("count") {
        return lines.iter().filter(|line| line.text.contains(text)).count().to_string();
    }
    if let Some(text) = of("time") {
        return format!("{} µs", with(text).nanos as f64 / 1e3);
    }
    let (text, line) = match (of("word"), of("last")) {
        (Some(text), None) => (text, with(text)),
        (None, Some(text)) => {
            (text, *lines.iter().rfind(|line| line.text.contains(text)).expect("a line"))
        }
        _ => panic!("what is asked for? {question:?}"),
    };
    let (_, rest) = line.text.split_once(text).unwrap();
    let word = rest.split_whitespace().next().unwrap_or_else(|| panic!("{}", line.text));
    word.trim_end_matches([',', '.', ':', ';']).to_owned()
}

fn played(spec: &str) -> Vec<Line> {
    let play: Value = serde_json::from_str(&play(spec).unwrap()).unwrap();
    rows(&play["rows"])
}

fn captured(file: &[u8]) -> Vec<Line> {
    let it: Value = serde_json::from_str(&explain(file).unwrap()).unwrap();
    let mut lines: Vec<_> =
        it["connections"].as_array().unwrap().iter().flat_map(|flow| rows(&flow["rows"])).collect();
    lines.extend(it["findings"].as_array().unwrap().iter().map(|finding| Line {
        end: String::new(),
        kind: "finding".into(),
        text: plain(&finding["text"]),
        nanos: 0,
    }));
    lines
}

fn rows(rows: &Value) -> Vec<Line> {
    let rows = rows.as_array().unwrap().iter();
    let line = |row: &Value| Line {
        end: row["end"].as_str().unwrap_or_default().into(),
        kind: row["kind"].as_str().unwrap_or("sent").into(),
        text: format!("{} — {}", plain(&row["text"]), plain(&row["why"])),
        nanos: row["at"].as_u64().unwrap_or_default(),
    };
    rows.map(line).collect()
}

/// First word of a field's meaning, or its value.
fn value_of(packet: &Value, path: &str) -> String {
    let (layer, name) = path.split_once('.').unwrap();
    let named = |list: &Value, name: &str| {
        let list = list.as_array().unwrap().iter();
        let found = list.clone().find(|it| it["name"] == name).cloned();
        found.unwrap_or_else(|| panic!("{path} in {packet}"))
    };
    let field = named(&named(&packet["layers"], layer)["fields"], name);
    let meaning = plain(&field["meaning"]);
    meaning.split_whitespace().next().map_or_else(|| plain(&field["value"]), str::to_owned)
}

fn plain(value: &Value) -> String {
    value.as_str().map_or_else(|| value.to_string(), str::to_owned)
}
