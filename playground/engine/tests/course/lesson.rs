use std::{collections::BTreeMap, fs, path::PathBuf};

use super::fragment::PLAYGROUND;

pub(crate) struct Page {
    pub(crate) name: String,
    pub(crate) text: String,
}

pub(crate) struct Question {
    pub(crate) title: String,
    /// Lines `name = "value"` in the comment before the answer.
    pub(crate) engine: BTreeMap<String, String>,
    /// First words, in bold.
    pub(crate) answer: String,
}

pub(crate) fn folder() -> PathBuf {
    [env!("CARGO_MANIFEST_DIR"), "../../docs/course"].iter().collect()
}

pub(crate) fn pages() -> Vec<Page> {
    let files = fs::read_dir(folder()).unwrap().map(|file| file.unwrap().path());
    let mut pages: Vec<_> = files
        .filter(|path| path.extension().is_some_and(|it| it == "md"))
        .map(|path| Page {
            name: path.file_name().unwrap().to_str().unwrap().to_owned(),
            text: fs::read_to_string(&path).unwrap(),
        })
        .collect();
    pages.sort_by(|one, other| one.name.cmp(&other.name));
    pages
}

impl Page {
    pub(crate) fn is_lesson(&self) -> bool {
        self.name.starts_with(|c: char| c.is_ascii_digit())
    }

    /// Fragments of links into the playground.
    pub(crate) fn links(&self) -> Vec<&str> {
        let ends = |c: char| c.is_whitespace() || ")>`\"".contains(c);
        let links = self.text.split(PLAYGROUND).skip(1);
        links.map(|rest| rest.split(ends).next().unwrap()).collect()
    }

    pub(crate) fn questions(&self) -> Vec<Question> {
        let Some((_, questions)) = self.text.split_once("\n## Questions\n") else {
            return Vec::new();
        };
        questions.split("\n### ").skip(1).map(|text| self.question(text)).collect()
    }

    fn question(&self, text: &str) -> Question {
        let title = text.lines().next().unwrap().to_owned();
        let part = |from: &str, to: &str| {
            let inner = text.split_once(from).and_then(|(_, rest)| rest.split_once(to));
            inner.unwrap_or_else(|| panic!("{}: {title}: no {from}", self.name)).0.trim()
        };
        let engine = part("<!-- engine", "-->").lines().map(|line| {
            let (name, value) = line.split_once(" = ").unwrap_or_else(|| panic!("{line}"));
            (name.to_owned(), value.trim_matches('"').to_owned())
        });
        let details = part("<summary>Answer</summary>", "</details>");
        let answer = details.strip_prefix("**").and_then(|rest| rest.split_once("**"));
        let (answer, _) = answer.unwrap_or_else(|| panic!("{}: {title}", self.name));
        let answer = answer.trim_end_matches('.').to_owned();
        Question { engine: engine.collect(), answer, title }
    }
}
