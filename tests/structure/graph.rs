use std::{
    collections::{BTreeMap, BTreeSet},
    fmt::Write as _,
};

use super::modules::Edges;

/// Layers of a crate, lowest first: module paths below `src`, with their children; the longest
/// match counts. `*` is every unnamed module. The root file is above all.
pub(crate) type Layers = &'static [&'static [&'static str]];

/// Files that import each other, directly or not; at least two each.
pub(crate) fn loops(edges: &Edges) -> Vec<BTreeSet<String>> {
    let mut found: Vec<BTreeSet<String>> = Vec::new();
    for file in edges.keys() {
        if found.iter().any(|files| files.contains(file)) {
            continue;
        }
        let round: BTreeSet<String> = reachable(edges, file)
            .into_iter()
            .filter(|other| reachable(edges, other).contains(file.as_str()))
            .map(String::from)
            .collect();
        if !round.is_empty() {
            found.push(round);
        }
    }
    found
}

/// As (file, imported file).
pub(crate) fn upward(edges: &Edges, layers: Layers) -> Vec<(String, String)> {
    let mut found = Vec::new();
    for (file, imports) in edges {
        for imported in imports.keys() {
            if layer(layers, file) < layer(layers, imported) {
                found.push((file.clone(), imported.clone()));
            }
        }
    }
    found
}

/// `None` if unnamed, the list's length for the root.
pub(crate) fn layer(layers: Layers, file: &str) -> Option<usize> {
    let module = file.trim_end_matches(".rs").trim_end_matches("/mod");
    if module == "lib" || module == "main" {
        return Some(layers.len());
    }
    let mut best: Option<(usize, usize)> = None;
    for (place, names) in layers.iter().enumerate() {
        for name in *names {
            let rest = if *name == "*" { Some("") } else { module.strip_prefix(name) };
            let length = if *name == "*" { 0 } else { name.len() };
            if rest.is_some_and(|rest| rest.is_empty() || rest.starts_with('/'))
                && best.is_none_or(|(longest, _)| length > longest)
            {
                best = Some((length, place));
            }
        }
    }
    best.map(|(_, place)| place)
}

pub(crate) fn describe(edges: &Edges, files: &BTreeSet<String>) -> String {
    let mut text = String::new();
    for (file, imports) in edges.iter().filter(|(file, _)| files.contains(*file)) {
        for (imported, names) in imports.iter().filter(|(file, _)| files.contains(*file)) {
            let names: Vec<&str> = names.iter().map(String::as_str).collect();
            writeln!(text, "    {file} -> {imported}: {}", names.join(", ")).unwrap();
        }
    }
    text
}

fn reachable<'a>(edges: &'a Edges, from: &str) -> BTreeSet<&'a str> {
    let mut reached = BTreeSet::new();
    let mut open: Vec<&BTreeMap<_, _>> = edges.get(from).into_iter().collect();
    while let Some(imports) = open.pop() {
        for file in imports.keys() {
            if reached.insert(file.as_str()) {
                open.extend(edges.get(file));
            }
        }
    }
    reached
}
