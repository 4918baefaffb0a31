//! Links into the playground, parsed like the page (`play.ts`).

use serde_json::{Map, Value, json};

pub(crate) const PLAYGROUND: &str = "http://127.0.0.1:8791/#";

pub(crate) struct Link {
    pub(crate) spec: Value,
    pub(crate) at: Option<usize>,
}

impl Link {
    /// Panics where the page ignores an error.
    pub(crate) fn of(fragment: &str) -> Self {
        let mut link = Self { spec: json!({}), at: None };
        for word in fragment.split('&') {
            let (name, value) = word.split_once('=').unwrap_or_else(|| panic!("{fragment}"));
            let items = || value.split(',').map(|item| item.split(':').collect::<Vec<_>>());
            match name {
                "s" => link.spec["scenario"] = json!(value),
                "seed" => link.spec["seed"] = json!(number(value)),
                "at" => link.at = Some(number(value) as usize),
                "net" => {
                    let network = items().map(|it| (it[0].to_owned(), json!(decimal(it[1]))));
                    link.spec["network"] = Value::Object(network.collect());
                }
                "f" => {
                    let fates = items().map(|it| (it[0].to_owned(), fate(&it[1..])));
                    link.spec["fates"] = Value::Object(fates.collect::<Map<_, _>>());
                }
                "p" => link.spec["posts"] = items().map(|it| post(&it)).collect(),
                _ => panic!("{fragment}: no page knows {name}"),
            }
        }
        link
    }
}

fn fate(words: &[&str]) -> Value {
    match words {
        ["hold", micros] => json!({ "hold": decimal(micros) }),
        ["damage", byte] => json!({ "damage": number(byte) }),
        [word] => json!(word),
        _ => panic!("{words:?}"),
    }
}

fn post(words: &[&str]) -> Value {
    let [after, end, qp, op, length] = words else { panic!("{words:?}") };
    json!({ "after": number(after), "end": end, "qp": number(qp), "op": op, "length": number(length) })
}

fn number(text: &str) -> u64 {
    text.parse().unwrap_or_else(|_| panic!("{text}"))
}

fn decimal(text: &str) -> f64 {
    text.parse().unwrap_or_else(|_| panic!("{text}"))
}
