//! Reports on stderr, as text or JSON.

mod stderr;

use std::{
    fmt::{Display, Write},
    sync::OnceLock,
};

pub use roce_transport::explain::Caller;
use serde_json::Value;

pub(crate) use stderr::at_exit;
pub use stderr::write;

/// A report.
#[derive(Debug)]
pub struct Report {
    /// Reporter and subject.
    pub subject: String,
    /// Event.
    pub event: String,
    /// Advice, not a failure.
    pub is_advice: bool,
    /// Named facts.
    pub facts: Vec<(&'static str, String)>,
    /// Named lists of lines.
    pub lists: Vec<(&'static str, Vec<String>)>,
    /// Last line.
    pub end: Option<String>,
    /// JSON form.
    pub object: Value,
}

impl Report {
    /// Line of JSON, or text, coloured on a terminal.
    #[must_use]
    pub fn in_form(&self, is_json: bool) -> String {
        if is_json { line_of(&self.object) } else { self.text(stderr::has_colors()) }
    }

    fn text(&self, has_colors: bool) -> String {
        let paint = |code: &str, text: &str| match has_colors {
            true => format!("\x1b[{code}m{text}\x1b[0m"),
            false => text.to_owned(),
        };
        let color = if self.is_advice { "1;36" } else { "1;31" };
        let mut text = format!("{}: {}\n", self.subject, paint(color, &self.event));
        for (name, fact) in &self.facts {
            let _ = writeln!(text, "  {} {fact}", paint("1", &format!("{:5}", format!("{name}:"))));
        }
        for (name, lines) in self.lists.iter().filter(|(_, lines)| !lines.is_empty()) {
            let _ = writeln!(text, "  {}", paint("1", &format!("{name}:")));
            for line in lines {
                let _ = writeln!(text, "    {}", paint("2", line));
            }
        }
        if let Some(end) = &self.end {
            let _ = writeln!(text, "  ({end})");
        }
        text
    }
}

/// Locates calls in the program.
#[derive(Debug)]
pub struct Callers {
    /// This thread's current call. Takes no other lock.
    pub here: fn() -> Option<Caller>,
    /// Function, source and line.
    pub name: fn(Caller) -> Option<String>,
}

static CALLERS: OnceLock<Callers> = OnceLock::new();

/// Adds function, source and line to reported calls and requests.
pub fn with_callers(callers: Callers) {
    let _ = CALLERS.set(callers); // always the same
}

pub(crate) fn caller() -> Option<Caller> {
    CALLERS.get().and_then(|callers| (callers.here)())
}

pub(crate) fn name(caller: Caller) -> Option<String> {
    CALLERS.get().and_then(|callers| (callers.name)(caller))
}

/// JSON line.
#[must_use]
pub fn line_of(object: &Value) -> String {
    format!("{object}\n")
}

/// Writes a line.
pub fn line(text: impl Display) {
    write(&format!("roce: {text}\n"));
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_forms_say_the_same_and_colors_are_for_people() {
        let report = Report {
            subject: "roce: roce_lo".to_owned(),
            event: "ibv_post_send: ENOMEM".to_owned(),
            is_advice: false,
            facts: vec![("why", "it is full".to_owned()), ("look", "poll".to_owned())],
            lists: vec![("before", vec!["create_qp".to_owned()]), ("after", Vec::new())],
            end: Some("3 more".to_owned()),
            object: serde_json::json!({ "why": "it is full" }),
        };
        let lines = "roce: roce_lo: ibv_post_send: ENOMEM\n  why:  it is full\n  look: poll\n  \
                     before:\n    create_qp\n  (3 more)\n";
        assert_eq!(report.text(false), lines);
        assert!(report.text(true).contains("\x1b[1;31mibv_post_send: ENOMEM\x1b[0m\n"));
        assert_eq!(report.in_form(true), "{\"why\":\"it is full\"}\n");
    }
}
