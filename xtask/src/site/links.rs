use std::{
    collections::BTreeMap,
    fs,
    path::{Component, Path, PathBuf},
};

use super::files::files;
use crate::{Failure, contents::HOMEPAGE};

const PLAYGROUND: &str = "http://127.0.0.1:8791/";

/// Playground links lead to the site's own, links out of docs/ to the repository.
pub(crate) fn for_site(page: &Path, text: &str, playground: bool) -> String {
    let depth = page.components().count() - 1;
    let own = format!("{}playground/index.html", "../".repeat(depth));
    let mut result = String::new();
    let mut parts = text.split("](");
    result += parts.next().unwrap_or_default();
    for part in parts {
        result += "](";
        let Some((target, rest)) = part.split_once(')') else {
            result += part;
            continue;
        };
        if let Some(place) = target.strip_prefix(PLAYGROUND).filter(|_| playground) {
            result += &own;
            result += place;
        } else if let Some(path) = outside(page, target) {
            result += &format!("{HOMEPAGE}/blob/main/{path}");
        } else {
            // mdBook makes README.md the folder's index but keeps links to it.
            result += &target.replace("README.md", "index.md");
        }
        result += ")";
        result += rest;
    }
    result
}

/// Repository path of a relative link out of docs/.
fn outside(page: &Path, target: &str) -> Option<String> {
    if target.contains(':') || !target.starts_with("..") {
        return None;
    }
    let path = Path::new("docs").join(page.parent()?).join(target);
    let path = joined(&path)?;
    if path.starts_with("docs") { None } else { path.to_str().map(str::to_owned) }
}

/// Removes `..`; `None`: outside of the root.
fn joined(path: &Path) -> Option<PathBuf> {
    let mut result = PathBuf::new();
    for component in path.components() {
        match component {
            Component::ParentDir if result.pop() => {}
            Component::ParentDir => return None,
            Component::Normal(name) => result.push(name),
            _ => {}
        }
    }
    Some(result)
}

/// Each relative link leads to a file, and to an existing anchor in it.
pub(crate) fn check(html: &Path) -> Result<(), Failure> {
    let mut pages = BTreeMap::new();
    for file in files(html)? {
        let name = file.strip_prefix(html)?.to_owned();
        let is_page = name.extension().is_some_and(|it| it == "html");
        // the playground's own page, and the printable copy
        let is_other = name.starts_with("playground")
            || ["print.html", "404.html", "toc.html"].iter().any(|it| name == Path::new(it));
        if is_page && !is_other {
            pages.insert(name, fs::read_to_string(&file)?);
        }
    }
    let mut broken = Vec::new();
    for (path, text) in &pages {
        for target in targets(text) {
            let (file, place) = target.split_once('#').unwrap_or((target, ""));
            let folder = path.parent().unwrap_or(path);
            let to = if file.is_empty() { Some(path.clone()) } else { joined(&folder.join(file)) };
            let is_there = to.is_some_and(|to| match pages.get(&to) {
                Some(page) => {
                    place.is_empty() || page.contains(&format!("id=\"{}\"", place.to_lowercase()))
                }
                None => html.join(to).is_file(),
            });
            if !is_there {
                broken.push(format!("{}: {target}", path.display()));
            }
        }
    }
    broken.sort();
    broken.dedup();
    if broken.is_empty() {
        return Ok(());
    }
    Err(format!("links that lead nowhere: {}", broken.join(", ")).into())
}

fn targets(text: &str) -> impl Iterator<Item = &str> {
    let attributes = ["href=\"", "src=\""].into_iter().flat_map(move |it| text.split(it).skip(1));
    let targets = attributes.filter_map(|rest| rest.split('"').next());
    targets.filter(|target| !target.is_empty() && !target.contains(':'))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn links_of_a_site() {
        let text = "[a](http://127.0.0.1:8791/#s=read&at=3) [b](../../README.md#more), [c\n](../guide/demo.md) \
                    [d](README.md#here) [e](https://example.org/) f](g";
        let lesson = Path::new("course/03-responses.md");
        assert_eq!(
            for_site(lesson, text, true),
            format!(
                "[a](../playground/index.html#s=read&at=3) [b]({HOMEPAGE}/blob/main/README.md#more), [c\n](../guide/demo.md) \
                 [d](index.md#here) [e](https://example.org/) f](g"
            )
        );
        let kept = for_site(lesson, text, false);
        assert!(kept.starts_with("[a](http://127.0.0.1:8791/#s=read&at=3) [b](https://"));
    }

    #[test]
    fn links_that_lead_nowhere_are_named() {
        let folder = std::env::temp_dir().join(format!("roce-links-{}", std::process::id()));
        fs::create_dir_all(folder.join("course")).unwrap();
        fs::write(folder.join("index.html"), "<a href=\"course/a.html#x\">").unwrap();
        let page = |text: &str| fs::write(folder.join("course/a.html"), text).unwrap();
        page(
            "<h1 id=\"x\"></h1><a href=\"../index.html\"><a href=\"#x\"><a href=\"https://example.org\">",
        );
        let right = check(&folder);
        page("<h1 id=\"y\"></h1><img src=\"p.png\">");
        let wrong = check(&folder);
        fs::remove_dir_all(&folder).unwrap();
        right.unwrap();
        let wrong = wrong.unwrap_err().to_string();
        assert!(
            wrong.contains("course/a.html: p.png") && wrong.contains("index.html: course/a.html#x"),
            "{wrong}"
        );
    }
}
