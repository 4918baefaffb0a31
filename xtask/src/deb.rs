//! Debian's packages: `roce`, and `roce-verbs`, which takes the place of libibverbs for all programs.

use std::{fs, path::Path};

use ar::{Builder, Header};

use crate::{
    Failure,
    build::{Built, VERSION},
    contents::{
        Contents, DESCRIPTION, Entry, HOMEPAGE, Place, SUMMARY, VERBS_DESCRIPTION, VERBS_SUMMARY,
        What, file, script,
    },
    tarball::archive,
};

const REVISION: &str = "1";

pub(crate) fn write(out: &Path, built: &Built, contents: &Contents) -> Result<(), Failure> {
    let architecture = if built.machine == "aarch64" { "arm64" } else { "amd64" };
    let (major, minor) = built.glibc;
    let libc = format!("libc6 (>= {major}.{minor})");
    let package =
        |name: &str, depends: &str, about: (&str, &str), entries: &[Entry], scripts: &[Entry]| {
            let size: usize = entries.iter().map(size).sum();
            let control = format!(
                "Package: {name}\nVersion: {VERSION}-{REVISION}\nArchitecture: {architecture}\n\
             Maintainer: the roce authors <{HOMEPAGE}>\nInstalled-Size: {}\nDepends: {depends}\n\
             Section: net\nPriority: optional\nHomepage: {HOMEPAGE}\nDescription: {}\n {}\n",
                size.div_ceil(1024),
                about.0,
                about.1
            );
            let mut inside = vec![file("./control", control.as_bytes())];
            inside.extend(scripts.iter().map(|script| Entry {
                path: format!("./{}", script.path),
                what: What::Program(bytes(script).to_vec()),
            }));
            let control = archive("", &inside)?;
            let data = archive("./", entries)?;
            let mut package = Builder::new(Vec::new());
            for (name, bytes) in [
                ("debian-binary", &b"2.0\n"[..]),
                ("control.tar.gz", &control),
                ("data.tar.gz", &data),
            ] {
                let mut header = Header::new(name.into(), bytes.len() as u64);
                header.set_mode(0o100_644);
                package.append(&header, bytes)?;
            }
            let path = out.join(format!("{name}_{VERSION}-{REVISION}_{architecture}.deb"));
            Ok::<_, Failure>(fs::write(path, package.into_inner()?)?)
        };

    let mut entries = contents.place(Place::Debian);
    entries.push(copyright("roce"));
    package("roce", &libc, (SUMMARY, DESCRIPTION), &entries, &[])?;

    let mut entries = contents.verbs(Place::Debian)?;
    entries.push(copyright("roce-verbs"));
    let libraries = contents.libraries(Place::Debian);
    let scripts = [
        ("postinst", include_str!("../../packaging/verbs/postinst")),
        ("prerm", include_str!("../../packaging/verbs/prerm")),
    ];
    let scripts = scripts.map(|(name, text)| file(name, script(text, &libraries).as_bytes()));
    package("roce-verbs", &libc, (VERBS_SUMMARY, VERBS_DESCRIPTION), &entries, &scripts)
}

/// The file that Debian's policy asks for.
fn copyright(package: &str) -> Entry {
    let text = format!(
        "Format: https://www.debian.org/doc/packaging-manuals/copyright-format/1.0/\nSource: {HOMEPAGE}\n\n\
         Files: *\nCopyright: the roce authors\nLicense: Apache-2.0 or Expat\n The texts are in LICENSE-APACHE and LICENSE-MIT \
         in this directory,\n those of the components in THIRD-PARTY.txt.\n"
    );
    file(format!("usr/share/doc/{package}/copyright"), text.as_bytes())
}

fn bytes(entry: &Entry) -> &[u8] {
    match &entry.what {
        What::File(bytes) | What::Program(bytes) => bytes,
        What::Link(_) => &[],
    }
}

fn size(entry: &Entry) -> usize {
    bytes(entry).len()
}
