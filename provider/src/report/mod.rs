//! Reports to a user on stderr: one value, with a form for people and one for programs.

mod stderr;

use std::{
    fmt::{Display, Write},
    sync::OnceLock,
};

use serde_json::Value;

pub(crate) use stderr::at_exit;
pub use stderr::write;

/// Something to be told.
#[derive(Debug)]
pub struct Report {
    /// Who says it, and what it is about.
    pub about: String,
    /// What has happened.
    pub what: String,
    /// True if nothing has failed.
    pub is_advice: bool,
    /// What is said of it, each under a name.
    pub said: Vec<(&'static str, String)>,
    /// What belongs to it, line by line, under names.
    pub lists: Vec<(&'static str, Vec<String>)>,
    /// A last line.
    pub end: Option<String>,
    /// The same for programs.
    pub object: Value,
}

impl Report {
    /// In the form that is asked for: a line of JSON, or a few lines of text, in colours where
    /// stderr has them.
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
        let mut text = format!("{}: {}\n", self.about, paint(color, &self.what));
        for (name, said) in &self.said {
            let _ = writeln!(text, "  {} {said}", paint("1", &format!("{:5}", format!("{name}:"))));
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

/// Tells where the program has made the call that this thread is in.
static CALLER: OnceLock<fn() -> Option<String>> = OnceLock::new();

/// Has failing calls told with their place in the program: a function, its source and line.
pub fn with_callers(caller: fn() -> Option<String>) {
    let _ = CALLER.set(caller); // it is always the same
}

/// The place, where that is known.
pub(crate) fn caller() -> Option<String> {
    CALLER.get().and_then(|caller| caller())
}

/// A line for programs.
#[must_use]
pub fn line_of(object: &Value) -> String {
    format!("{object}\n")
}

/// Writes a line that says all there is to say.
pub fn line(text: impl Display) {
    write(&format!("roce: {text}\n"));
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_forms_say_the_same_and_colors_are_for_people() {
        let report = Report {
            about: "roce: roce_lo".to_owned(),
            what: "ibv_post_send: ENOMEM".to_owned(),
            is_advice: false,
            said: vec![("why", "it is full".to_owned()), ("look", "poll".to_owned())],
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
