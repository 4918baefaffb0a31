mod conformance;
mod files;
mod links;

use std::{
    env, fs,
    path::{Path, PathBuf},
    process::Command,
};

use crate::{
    Failure,
    build::cargo,
    playground::{self, call},
};
use files::files;

/// Tested version.
const MDBOOK: &str = "0.5.4";

/// Builds the site of the documentation into target/site/html, with the playground within.
///
/// Needs mdBook, which is built into target/mdbook unless MDBOOK names one; and what
/// `cargo xtask playground` needs.
#[derive(clap::Args)]
pub(crate) struct Args {
    /// Leaves the playground out; its links lead to where `roce playground` serves it
    #[arg(long)]
    without_playground: bool,
}

pub(crate) fn run(args: &Args) -> Result<(), Failure> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("..");
    let out = root.join("target/site");
    let mdbook = mdbook(&root)?;
    let playground = match args.without_playground {
        true => None,
        false => Some(playground::build(&root)?),
    };
    // Old output may contain removed pages.
    if out.exists() {
        fs::remove_dir_all(&out)?;
    }
    let source = out.join("source");
    for (path, text) in pages(&root.join("docs"))? {
        let to = source.join(&path);
        fs::create_dir_all(to.parent().unwrap_or(&source))?;
        let text = match text {
            Some(text) if path == Path::new("conformance.md") => {
                Some(text + &conformance::tables())
            }
            text => text,
        };
        match &text {
            // names files, not links
            Some(text) if path == Path::new("SUMMARY.md") => fs::write(to, text)?,
            Some(text) => fs::write(to, links::for_site(&path, text, playground.is_some()))?,
            None => drop(fs::copy(root.join("docs").join(&path), to)?),
        }
    }
    let html = out.join("html");
    let html = fs::create_dir_all(&html).and_then(|()| fs::canonicalize(&html))?;
    call(Command::new(mdbook).arg("build").arg(&source).arg("--dest-dir").arg(&html))?;
    if let Some(playground) = playground {
        for file in files(&playground)? {
            let to = html.join("playground").join(file.strip_prefix(&playground)?);
            fs::create_dir_all(to.parent().unwrap_or(&html))?;
            fs::copy(file, to)?;
        }
    }
    links::check(&html)?;
    println!("{}", html.display());
    Ok(())
}

fn mdbook(root: &Path) -> Result<PathBuf, Failure> {
    if let Some(named) = env::var_os("MDBOOK") {
        return Ok(named.into());
    }
    let place = root.join("target/mdbook").join(MDBOOK);
    let program = place.join("bin/mdbook");
    if !program.exists() {
        eprintln!("building mdBook {MDBOOK}, once");
        call(
            Command::new(cargo())
                .args(["install", "--quiet", "--debug", "mdbook", "--locked", "--version", MDBOOK])
                .args(["--no-default-features", "--features", "search", "--root"])
                .arg(&place)
                // the workspace's artefacts stay
                .env("CARGO_TARGET_DIR", root.join("target/mdbook/build")),
        )?;
        fs::remove_dir_all(root.join("target/mdbook/build"))?;
    }
    Ok(program)
}

/// Files below docs/, with the text of pages. Each page must be in the table of contents, or the
/// site lacks it.
fn pages(docs: &Path) -> Result<Vec<(PathBuf, Option<String>)>, Failure> {
    let contents = fs::read_to_string(docs.join("SUMMARY.md"))?;
    let mut pages = Vec::new();
    for file in files(docs)? {
        let path = file.strip_prefix(docs)?.to_owned();
        if path.extension().is_none_or(|it| it != "md") {
            pages.push((path, None));
            continue;
        }
        let name = path.to_str().ok_or("a name that is no text")?;
        if name != "SUMMARY.md" && !contents.contains(&format!("({name})")) {
            return Err(format!("docs/{name} is not in docs/SUMMARY.md").into());
        }
        let text = fs::read_to_string(&file)?;
        pages.push((path, Some(text)));
    }
    Ok(pages)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_page_of_this_repository_is_in_the_contents() {
        let docs = Path::new(env!("CARGO_MANIFEST_DIR")).join("../docs");
        let pages = pages(&docs).unwrap();
        assert!(pages.iter().filter(|(_, text)| text.is_some()).count() > 30);
    }
}
