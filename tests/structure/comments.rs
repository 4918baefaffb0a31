//! Comments keep the 100 columns of `rustfmt.toml`, which rustfmt does not check.

use std::{fs, path::Path};

use crate::docs::collect;

const COLUMNS: usize = 100;

/// Numbered; tables and code are exempt.
fn wide(text: &str) -> impl Iterator<Item = (usize, &str)> {
    let mut is_code = false;
    text.lines().enumerate().filter(move |(_, line)| {
        let Some(comment) = line.trim_start().strip_prefix("//") else { return false };
        let comment = comment.trim_start_matches(['/', '!']).trim_start();
        is_code ^= comment.starts_with("```");
        !is_code && !comment.starts_with('|') && line.chars().count() > COLUMNS
    })
}

#[test]
fn comments_are_not_too_wide() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let mut found = Vec::new();
    collect(root, &mut found);
    assert!(found.len() > 500, "{} files", found.len());
    let wide: Vec<_> = found
        .iter()
        .flat_map(|path| {
            let text = fs::read_to_string(path).unwrap();
            let path = path.strip_prefix(root).unwrap().display().to_string();
            let lines: Vec<_> = wide(&text).map(|(at, _)| format!("{path}:{}", at + 1)).collect();
            lines
        })
        .collect();
    assert!(wide.is_empty(), "wider than {COLUMNS} columns: {wide:#?}");
}

#[test]
fn what_is_too_wide_is_found() {
    let [long, short] = [COLUMNS - 2, COLUMNS - 3].map(|length| "x".repeat(length));
    for (text, count) in [
        (format!("// {short}"), 0),
        (format!("// {long}"), 1),
        (format!("    /// {long}\n//! {long}"), 2),
        (format!("let {long} = 0; // x"), 0),
        (format!("/// | {long} |"), 0),
        (format!("/// ```\n/// {long}\n/// ```\n/// {long}"), 1),
    ] {
        assert_eq!(wide(&text).count(), count, "{text}");
    }
}
