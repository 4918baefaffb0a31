mod conformance;
mod links;
mod pages;

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
    for page in pages::all(&root.join("docs"))? {
        let to = source.join(&page.path);
        fs::create_dir_all(to.parent().unwrap_or(&source))?;
        let text = match &page.text {
            Some(text) if page.path == Path::new("conformance.md") => {
                Some(text.clone() + &conformance::tables())
            }
            text => text.clone(),
        };
        match &text {
            // names files, not links
            Some(text) if page.path == Path::new("SUMMARY.md") => fs::write(to, text)?,
            Some(text) => fs::write(to, links::for_site(&page.path, text, playground.is_some()))?,
            None => drop(fs::copy(root.join("docs").join(&page.path), to)?),
        }
    }
    let html = out.join("html");
    let html = fs::create_dir_all(&html).and_then(|()| fs::canonicalize(&html))?;
    call(Command::new(mdbook).arg("build").arg(&source).arg("--dest-dir").arg(&html))?;
    if let Some(playground) = playground {
        copy(&playground, &html.join("playground"))?;
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

fn copy(from: &Path, to: &Path) -> Result<(), Failure> {
    fs::create_dir_all(to)?;
    for entry in fs::read_dir(from)? {
        let entry = entry?;
        let target = to.join(entry.file_name());
        if entry.file_type()?.is_dir() {
            copy(&entry.path(), &target)?;
        } else {
            fs::copy(entry.path(), target)?;
        }
    }
    Ok(())
}
