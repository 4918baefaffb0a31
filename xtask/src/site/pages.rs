use std::{
    fs,
    path::{Path, PathBuf},
};

use crate::Failure;

#[derive(PartialEq, Eq, Debug)]
pub(crate) struct Page {
    /// Below docs/.
    pub(crate) path: PathBuf,
    /// `None`: not a page.
    pub(crate) text: Option<String>,
}

/// Each page must be in the table of contents, or the site lacks it.
pub(crate) fn all(docs: &Path) -> Result<Vec<Page>, Failure> {
    let mut pages = Vec::new();
    collect(docs, docs, &mut pages)?;
    pages.sort_by(|one, other| one.path.cmp(&other.path));
    let contents = fs::read_to_string(docs.join("SUMMARY.md"))?;
    for page in pages.iter().filter(|page| page.text.is_some()) {
        let path = page.path.to_str().ok_or("a name that is no text")?;
        if path != "SUMMARY.md" && !contents.contains(&format!("({path})")) {
            return Err(format!("docs/{path} is not in docs/SUMMARY.md").into());
        }
    }
    Ok(pages)
}

fn collect(docs: &Path, folder: &Path, pages: &mut Vec<Page>) -> Result<(), Failure> {
    for entry in fs::read_dir(folder)? {
        let path = entry?.path();
        if path.is_dir() {
            collect(docs, &path, pages)?;
            continue;
        }
        let is_page = path.extension().is_some_and(|it| it == "md");
        let text = if is_page { Some(fs::read_to_string(&path)?) } else { None };
        pages.push(Page { path: path.strip_prefix(docs)?.to_owned(), text });
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::all;
    use std::path::Path;

    #[test]
    fn every_page_of_this_repository_is_in_the_contents() {
        let docs = Path::new(env!("CARGO_MANIFEST_DIR")).join("../docs");
        let pages = all(&docs).unwrap();
        assert!(pages.iter().filter(|page| page.text.is_some()).count() > 30);
    }
}
