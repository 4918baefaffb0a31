//! Findings as SARIF, for source viewers.
//!
//! Read first: SARIF 2.1.0, 3.13 (the file), 3.14 (runs), 3.20 (invocations), 3.27 (results).

use std::{env, io, path::Path};

use roce_provider::Checks;
use serde_json::{Value, json};

use super::{
    finding::{Finding, Kind},
    stack::Frame,
};

pub(super) struct Found {
    pub(super) finding: Finding,
    pub(super) stacks: Vec<(&'static str, Vec<Frame>)>,
    /// Index of the program's caller.
    pub(super) own: usize,
    pub(super) times: u32,
    pub(super) is_suppressed: bool,
}

/// `unused`: lines of the suppressions' file.
pub(super) fn document(found: &[Found], checks: &Checks, unused: (&Path, &[usize])) -> String {
    let rules: Vec<_> = Kind::ALL
        .iter()
        .map(|kind| {
            json!({
                "id": kind.name(),
                "shortDescription": { "text": kind.rule() },
                "help": { "text": kind.advice() },
                "defaultConfiguration": { "level": level(*kind) },
            })
        })
        .collect();
    let mut properties = json!({ "reorder": checks.reorder, "delay": checks.delay });
    if checks.are_late() {
        properties["seed"] = checks.seed().into();
    }
    let mut document = json!({
        "$schema": "https://json.schemastore.org/sarif-2.1.0.json",
        "version": "2.1.0",
        "runs": [{
            "tool": { "driver": {
                "name": "roce check",
                "version": env!("CARGO_PKG_VERSION"),
                "informationUri": env!("CARGO_PKG_REPOSITORY"),
                "rules": rules,
            }},
            "columnKind": "utf16CodeUnits",
            "properties": properties,
            "results": found.iter().map(result).collect::<Vec<_>>(),
        }],
    });
    if !unused.1.is_empty() {
        document["runs"][0]["invocations"] = json!([invocation(unused)]);
    }
    format!("{document}\n")
}

fn invocation((file, lines): (&Path, &[usize])) -> Value {
    let notifications: Vec<_> = lines
        .iter()
        .map(|line| {
            json!({
                "level": "note",
                "message": { "text": "no finding matched this line: remove it if no run needs it" },
                "locations": [{ "physicalLocation": physical(file, *line) }],
            })
        })
        .collect();
    json!({ "executionSuccessful": true, "toolConfigurationNotifications": notifications })
}

/// `before` may be empty.
pub(super) fn joined(before: &str, document: &str) -> io::Result<String> {
    if before.trim().is_empty() {
        return Ok(document.to_owned());
    }
    let (mut whole, new): (Value, Value) =
        (serde_json::from_str(before)?, serde_json::from_str(document)?);
    let Some(runs) = whole.get_mut("runs").and_then(Value::as_array_mut) else {
        return Err(io::Error::other("the file is not a SARIF document"));
    };
    runs.extend(new["runs"].as_array().into_iter().flatten().cloned());
    Ok(format!("{whole}\n"))
}

const fn level(kind: Kind) -> &'static str {
    if kind.is_advice() { "note" } else { "warning" }
}

fn result(found: &Found) -> Value {
    let Found { finding, stacks, own, times, is_suppressed } = found;
    let frames = stacks.first().map_or(&[][..], |(_, frames)| frames);
    let locations: Vec<_> = frames.get(*own).map(location).into_iter().collect();
    let stacks: Vec<_> = stacks
        .iter()
        .filter(|(_, frames)| !frames.is_empty())
        .map(|(name, frames)| {
            let frames: Vec<_> =
                frames.iter().map(|frame| json!({ "location": location(frame) })).collect();
            json!({ "message": { "text": name }, "frames": frames })
        })
        .collect();
    let mut result = json!({
        "ruleId": finding.kind.name(),
        "ruleIndex": Kind::ALL.iter().position(|kind| *kind == finding.kind),
        "level": level(finding.kind),
        "message": { "text": format!("{}: {}", finding.what, finding.kind.rule()) },
        "locations": locations,
        "occurrenceCount": times,
    });
    if !stacks.is_empty() {
        result["stacks"] = stacks.into();
    }
    if *is_suppressed {
        result["suppressions"] = json!([{ "kind": "external" }]);
    }
    result
}

fn location(frame: &Frame) -> Value {
    let mut location = json!({ "logicalLocations": [{ "fullyQualifiedName": frame.function, "kind": "function" }] });
    if let Some((file, line)) = &frame.source {
        location["physicalLocation"] = physical(file, *line as usize);
    }
    location
}

fn physical(file: &Path, line: usize) -> Value {
    json!({ "artifactLocation": { "uri": uri(file) }, "region": { "startLine": line } })
}

/// A path below the working directory is relative, as viewers prefer.
fn uri(file: &Path) -> String {
    let here = env::current_dir().ok();
    let inside = here.as_ref().and_then(|here| file.strip_prefix(here).ok());
    let (start, path) = match inside {
        Some(inside) => ("", inside),
        None if file.is_absolute() => ("file://", file),
        None => ("", file),
    };
    let mut uri = start.to_owned();
    for byte in path.to_string_lossy().bytes() {
        match byte {
            b'A'..=b'Z' | b'a'..=b'z' | b'0'..=b'9' | b'-' | b'.' | b'_' | b'~' | b'/' => {
                uri.push(byte.into());
            }
            byte => uri.push_str(&format!("%{byte:02X}")),
        }
    }
    uri
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::hooks::check::stack::Stack;

    #[test]
    fn documents_are_joined() {
        let checks = "sarif".parse().unwrap();
        let one = document(&[], &checks, (Path::new(""), &[][..]));
        assert!(!one.contains("invocations"), "every line is used");
        assert_eq!(joined("", &one).unwrap(), one);
        let two: Value = serde_json::from_str(&joined(&one, &one).unwrap()).unwrap();
        assert_eq!(two["runs"].as_array().unwrap().len(), 2);
        assert!(joined("[]", &one).is_err() && joined("x", &one).is_err());
    }

    #[test]
    fn a_document_has_what_the_schema_asks_for() {
        let frame = |function: &str, source: Option<(&str, u32)>| Frame {
            function: function.to_owned(),
            place: String::new(),
            source: source.map(|(file, line)| (file.into(), line)),
            object: "program".to_owned(),
        };
        let frames = vec![frame("ibv_x", None), frame("main", Some(("/a b/c.c", 7)))];
        let finding = Finding {
            kind: Kind::TimeoutZero,
            what: "qp 0x12: ibv_modify_qp".to_owned(),
            stacks: vec![("called", Stack::none())],
        };
        let found = Found {
            finding,
            stacks: vec![("called", frames), ("made", Vec::new())],
            own: 1,
            times: 3,
            is_suppressed: true,
        };
        let checks = "sarif,reorder,seed=7".parse().unwrap();
        let unused = (Path::new("/findings.txt"), &[3, 5][..]);
        let value: Value = serde_json::from_str(&document(&[found], &checks, unused)).unwrap();
        assert_eq!(value["version"], "2.1.0");
        let run = &value["runs"][0];
        assert_eq!(run["properties"]["seed"], 7);
        let invocation = &run["invocations"][0];
        assert_eq!(invocation["executionSuccessful"], true);
        let notifications = invocation["toolConfigurationNotifications"].as_array().unwrap();
        let place = &notifications[1]["locations"][0]["physicalLocation"];
        assert_eq!((notifications.len(), &place["region"]["startLine"]), (2, &json!(5)));
        assert_eq!(place["artifactLocation"]["uri"], "file:///findings.txt");
        let result = &run["results"][0];
        let rule = &run["tool"]["driver"]["rules"][result["ruleIndex"].as_u64().unwrap() as usize];
        assert_eq!(
            (&rule["id"], &result["ruleId"]),
            (&json!("timeout_zero"), &json!("timeout_zero"))
        );
        let place = &result["locations"][0]["physicalLocation"];
        assert_eq!(place["artifactLocation"]["uri"], "file:///a%20b/c.c");
        assert_eq!(place["region"]["startLine"], 7);
        assert_eq!(result["stacks"].as_array().unwrap().len(), 1, "an empty one is left out");
        assert_eq!(result["suppressions"][0]["kind"], "external");
    }
}
