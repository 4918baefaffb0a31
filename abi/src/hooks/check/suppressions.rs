//! A file of suppressed findings.
//!
//! ```text
//! # what a benchmark does on purpose
//! receive_overlap   pp_post_recv
//! object_alive      *libsomething*
//! timeout_zero
//! ```
//!
//! A line names a finding, or `*`. A pattern, with `*`, may follow: for a stack line or a function.

use std::{
    fs,
    path::Path,
    sync::atomic::{AtomicBool, Ordering},
};

use super::{finding::Kind, stack::Frame};

#[derive(Default, Debug)]
pub(super) struct Suppressions(Vec<Suppression>);

#[derive(Debug)]
struct Suppression {
    line: usize,
    has_covered: AtomicBool,
    kind: Option<Kind>,
    pattern: Option<String>,
}

impl Suppressions {
    pub(super) fn read(path: &Path) -> (Self, Vec<String>) {
        match fs::read_to_string(path) {
            Ok(text) => {
                let (found, wrong) = Self::parse(&text);
                let named = |(line, problem)| format!("{}:{line}: {problem}", path.display());
                (found, wrong.into_iter().map(named).collect())
            }
            Err(error) => (Self::default(), vec![format!("{}: {error}", path.display())]),
        }
    }

    fn parse(text: &str) -> (Self, Vec<(usize, String)>) {
        let (mut found, mut wrong) = (Vec::new(), Vec::new());
        for (number, line) in text.lines().enumerate() {
            let line = line.split('#').next().unwrap_or_default().trim();
            let (name, pattern) = line.split_once(char::is_whitespace).unwrap_or((line, ""));
            let kind = Kind::ALL.iter().copied().find(|kind| kind.name() == name);
            match (name, kind) {
                ("", _) => continue,
                ("*", _) | (_, Some(_)) => {}
                _ => {
                    wrong.push((number + 1, format!("unknown finding {name}")));
                    continue;
                }
            }
            let pattern = Some(pattern.trim()).filter(|pattern| !pattern.is_empty());
            found.push(Suppression {
                line: number + 1,
                has_covered: AtomicBool::new(false),
                kind,
                pattern: pattern.map(str::to_owned),
            });
        }
        (Self(found), wrong)
    }

    pub(super) fn cover(&self, kind: Kind, frames: &[Frame]) -> bool {
        let mut is_covered = false;
        for line in &self.0 {
            let is_like = |pattern: &String| {
                frames.iter().any(|frame| {
                    matches(pattern, &frame.function) || matches(pattern, &frame.to_string())
                })
            };
            if line.kind.is_none_or(|of| of == kind) && line.pattern.as_ref().is_none_or(is_like) {
                line.has_covered.store(true, Ordering::Relaxed);
                is_covered = true;
            }
        }
        is_covered
    }

    pub(super) fn unused(&self) -> Vec<usize> {
        let unused = self.0.iter().filter(|line| !line.has_covered.load(Ordering::Relaxed));
        unused.map(|line| line.line).collect()
    }
}

/// `*` matches anything.
fn matches(pattern: &str, text: &str) -> bool {
    let Some((first, rest)) = pattern.split_once('*') else { return pattern == text };
    let (middle, last) = rest.rsplit_once('*').unwrap_or(("", rest));
    let inside = text.strip_prefix(first).and_then(|text| text.strip_suffix(last));
    inside.is_some_and(|text| {
        middle.split('*').try_fold(text, |text, part| Some(text.split_once(part)?.1)).is_some()
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn stars_stand_for_anything() {
        for (pattern, text) in [
            ("main", "main"),
            ("*", ""),
            ("ma*", "main"),
            ("*in", "main"),
            ("m*i*n", "main"),
            ("**", "x"),
        ] {
            assert!(matches(pattern, text), "{pattern} {text}");
        }
        for (pattern, text) in [("main", "main2"), ("ain", "main"), ("m*x", "main"), ("", "main")] {
            assert!(!matches(pattern, text), "{pattern} {text}");
        }
    }

    #[test]
    fn a_line_names_a_finding_and_perhaps_a_place() {
        let frame = |function: &str, place: &str| Frame {
            function: function.to_owned(),
            place: place.to_owned(),
            source: None,
            object: "program".to_owned(),
        };
        let text =
            "# nothing\n\nreceive_overlap post_*\ntimeout_zero # all\n* *(libx.so)\nnonsense\n";
        let (lines, wrong) = Suppressions::parse(text);
        assert_eq!(wrong, [(6, "unknown finding nonsense".to_owned())]);
        assert_eq!(lines.unused(), [3, 4, 5]);
        let at = [frame("ibv_post_recv", "verbs.h:1"), frame("post_all", "a.c:7")];
        assert!(lines.cover(Kind::ReceiveOverlap, &at));
        assert!(lines.cover(Kind::TimeoutZero, &[]));
        assert!(lines.cover(Kind::LostWakeUp, &[frame("libx.so+0x10", "libx.so")]));
        assert_eq!(lines.unused(), [0; 0]);
        assert!(
            !lines.cover(Kind::LostWakeUp, &at) && !lines.cover(Kind::ReceiveOverlap, &at[..1])
        );
    }

    #[test]
    fn a_file_that_is_not_there_is_said_so() {
        let (lines, wrong) = Suppressions::read(Path::new("/nowhere/at/all"));
        assert!(lines.0.is_empty() && wrong[0].starts_with("/nowhere/at/all: No such file"));
    }
}
