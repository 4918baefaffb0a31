//! The testable part of CONTRIBUTING's rules for pages and comments.
//!
//! Lower a bound when a count falls; never raise a bound.

use std::{
    fs,
    path::{Path, PathBuf},
};

use crate::docs::collect;

/// CONTRIBUTING lists them too.
const WORDS: [&str; 10] = [
    "the own", "anew", "in vain", "is told", "are told", "heed", "heeds", "heeded", "whoever",
    "lest",
];
const SENTENCE: usize = 30;
const HEADING: usize = 8;

const LONG_IN_PAGES: usize = 0;
const LONG_IN_COMMENTS: usize = 5;

/// Paragraphs, items and cells, without code. Links are their texts.
fn prose(page: &str) -> Vec<String> {
    let mut parts = vec![String::new()];
    let mut is_code = false;
    for line in page.lines() {
        let text = line.trim_start();
        if text.starts_with("```") || text.starts_with("~~~") {
            is_code = !is_code;
            parts.push(String::new());
        } else if is_code || text.starts_with("<!--") || text.starts_with('#') {
            parts.push(String::new());
        } else if text.starts_with('|') {
            // a bar in code is not the edge of a cell
            parts.extend(text.replace("\\|", "/").split('|').map(str::to_owned));
            parts.push(String::new());
        } else {
            let item = text.trim_start_matches(|c: char| c.is_ascii_digit());
            let is_item =
                text.starts_with("- ") || item.len() < text.len() && item.starts_with(". ");
            if text.is_empty() || is_item {
                parts.push(String::new());
            }
            let part = parts.last_mut().expect("there is one");
            *part += text.strip_prefix("- ").unwrap_or(text);
            part.push(' ');
        }
    }
    parts.iter().map(|part| without_code(part)).collect()
}

/// One word per backquoted name, no link targets.
fn without_code(text: &str) -> String {
    let mut plain = String::new();
    for (at, part) in text.split('`').enumerate() {
        plain += if at % 2 == 0 { part } else { "name" };
    }
    let mut parts = plain.split("](");
    let mut result = parts.next().unwrap_or_default().to_owned();
    for part in parts {
        result += part.split_once(')').map_or("", |(_, rest)| rest);
    }
    result
}

/// With their number of words; a row of names counts as a word.
fn sentences(text: &str) -> Vec<(&str, usize)> {
    let mut found = Vec::new();
    let mut start = 0;
    for (at, c) in text.char_indices() {
        let rest = &text[at + c.len_utf8()..];
        let ends = ".!?".contains(c) && rest.trim_start_matches(['*', '"', ')']).starts_with(' ');
        if ends || rest.is_empty() {
            let sentence = text[start..at + c.len_utf8()].trim();
            let words = sentence.split_whitespace();
            let words = words.map(|it| it.trim_matches(|c: char| !c.is_alphanumeric()));
            let mut words: Vec<_> = words.filter(|it| !it.is_empty()).collect();
            words.dedup_by(|one, other| one == other && *one == "name");
            found.push((sentence, words.len()));
            start = at + c.len_utf8();
        }
    }
    found.retain(|(_, words)| *words > 0);
    found
}

fn disliked(text: &str) -> Vec<&'static str> {
    let words: Vec<_> = text
        .split(|c: char| !c.is_alphanumeric() && c != '\'')
        .filter(|word| !word.is_empty())
        .map(str::to_lowercase)
        .collect();
    let text = format!(" {} ", words.join(" "));
    let times = |word: &&'static str| text.matches(&format!(" {word} ")).count();
    WORDS.iter().flat_map(|word| std::iter::repeat_n(*word, times(word))).collect()
}

/// Each a paragraph, without code.
fn comments(source: &str) -> Vec<String> {
    let mut page = String::new();
    for line in source.lines() {
        match line.trim_start().strip_prefix("//") {
            Some(text) => page += text.trim_start_matches(['/', '!']).trim_start(),
            // another comment follows
            None if !page.ends_with("\n\n") => page.push('\n'),
            None => continue,
        }
        page.push('\n');
    }
    prose(&page)
}

fn pages(root: &Path) -> Vec<PathBuf> {
    let mut found = Vec::new();
    let mut folders = vec![root.to_owned()];
    while let Some(folder) = folders.pop() {
        for entry in fs::read_dir(folder).unwrap() {
            let path = entry.unwrap().path();
            let name = path.file_name().unwrap().to_string_lossy().into_owned();
            if path.is_dir() {
                if !name.starts_with('.') && name != "target" && name != "node_modules" {
                    folders.push(path);
                }
            } else if name.ends_with(".md") {
                found.push(path);
            }
        }
    }
    found.sort();
    found
}

fn root() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR"))
}

fn texts_of_pages() -> Vec<(String, String)> {
    let named = |path: PathBuf| {
        let name = path.strip_prefix(root()).unwrap().display().to_string();
        (name, fs::read_to_string(path).unwrap())
    };
    pages(root()).into_iter().map(named).collect()
}

fn texts_of_comments() -> Vec<(String, Vec<String>)> {
    let mut files = Vec::new();
    collect(root(), &mut files);
    // this file names the words
    files.retain(|path| !path.ends_with("structure/words.rs"));
    let named = |path: PathBuf| {
        let name = path.strip_prefix(root()).unwrap().display().to_string();
        (name, comments(&fs::read_to_string(path).unwrap()))
    };
    files.into_iter().map(named).collect()
}

fn long(texts: &[(String, Vec<String>)]) -> (usize, Vec<String>) {
    let (mut all, mut long) = (0, Vec::new());
    for (name, parts) in texts {
        for (sentence, words) in parts.iter().flat_map(|part| sentences(part)) {
            all += 1;
            if words > SENTENCE {
                let beginning: String = sentence.chars().take(80).collect();
                long.push(format!("{words} words, {name}: {beginning}"));
            }
        }
    }
    (all, long)
}

#[track_caller]
fn assert_few_are_long(texts: &[(String, Vec<String>)], bound: usize) {
    let (all, long) = long(texts);
    let found = long.len();
    assert!(found <= bound, "{found} of {all}, bound {bound}: {long:#?}");
}

#[test]
fn pages_have_no_words_that_a_reader_stops_at() {
    let mut found = Vec::new();
    for (name, text) in texts_of_pages() {
        // CONTRIBUTING quotes them
        let text: String = prose(&text).concat();
        let quoted =
            if name == "CONTRIBUTING.md" { text.split('"').step_by(2).collect() } else { text };
        found.extend(disliked(&quoted).iter().map(|word| format!("{name}: {word}")));
    }
    assert!(found.is_empty(), "{}: {found:#?}", found.len());
}

#[test]
fn comments_have_no_words_that_a_reader_stops_at() {
    let mut found = Vec::new();
    for (name, parts) in texts_of_comments() {
        let words = parts.iter().flat_map(|part| disliked(part));
        found.extend(words.map(|word| format!("{name}: {word}")));
    }
    assert!(found.is_empty(), "{}: {found:#?}", found.len());
}

#[test]
fn comments_open_with_their_noun_or_verb() {
    const OPENERS: [&str; 5] = ["What ", "Who ", "Whoever ", "That ", "So "];
    let mut found = Vec::new();
    for (name, parts) in texts_of_comments() {
        let parts = parts.iter().map(|part| part.trim());
        let opened = parts.filter(|part| OPENERS.iter().any(|opener| part.starts_with(opener)));
        found.extend(opened.map(|part| format!("{name}: {part}")));
    }
    assert!(found.is_empty(), "{}: {found:#?}", found.len());
}

#[test]
fn sentences_of_pages_are_short() {
    let texts: Vec<_> =
        texts_of_pages().into_iter().map(|(name, text)| (name, prose(&text))).collect();
    assert_few_are_long(&texts, LONG_IN_PAGES);
}

#[test]
fn sentences_of_comments_are_short() {
    assert_few_are_long(&texts_of_comments(), LONG_IN_COMMENTS);
}

#[test]
fn headings_are_short() {
    let mut found = Vec::new();
    for (name, text) in texts_of_pages() {
        let mut is_code = false;
        for line in text.lines() {
            is_code ^= line.trim_start().starts_with("```");
            // a question of the course is a heading
            if !is_code && line.starts_with('#') && !line.ends_with('?') {
                let words = line.trim_start_matches('#').split_whitespace().count();
                found.extend((words > HEADING).then(|| format!("{name}: {line}")));
            }
        }
    }
    assert!(found.is_empty(), "{found:#?}");
}

#[test]
fn what_is_against_the_rules_is_found() {
    let page = "# Head\n\nOne `a b. c` word, [two](x.md). Three\nfour!\n\n- five\n- six (seven.) Eight\n\n```sh\nnine. ten.\n```\n| a | b c. |\n|---|---|\n";
    let parts = prose(page);
    let counts: Vec<_> =
        parts.iter().flat_map(|part| sentences(part)).map(|(_, words)| words).collect();
    assert_eq!(counts, [4, 2, 1, 2, 1, 1, 2]);
    assert_eq!(
        disliked("Whoever is\ntold, anew; renewed healed lest."),
        ["anew", "is told", "whoever", "lest"]
    );
    let source = "/// One\n/// two.\nfn f() {} // not this\n    // three\n";
    let parts = comments(source);
    let texts: Vec<_> = parts.iter().map(|it| it.trim()).filter(|it| !it.is_empty()).collect();
    assert_eq!(texts, ["One two.", "three"]);
}
