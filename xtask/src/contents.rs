use std::{fs, io::Write, path::Path};

use flate2::{Compression, GzBuilder, write::GzEncoder};

use crate::{
    Failure,
    build::{Built, VERSION},
    metadata::{self, Component},
    soname,
};

/// As in `roce unpack`.
const PKG_CONFIG: [(&str, &[u8]); 2] = [
    ("libibverbs.pc", include_bytes!("../../cli/src/library/libibverbs.pc")),
    ("librdmacm.pc", include_bytes!("../../cli/src/library/librdmacm.pc")),
];

const UNIT: &[u8] = include_bytes!("../../packaging/systemd/roce-share.service");

pub(crate) struct Entry {
    pub(crate) path: String,
    pub(crate) what: What,
}

pub(crate) enum What {
    File(Vec<u8>),
    Program(Vec<u8>),
    Library(Vec<u8>),
    Link(String),
}

#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum PackageKind {
    Tarball,
    Debian,
    Rpm,
}

pub(crate) struct Contents<'a> {
    built: &'a Built,
    completions: Vec<(String, Vec<u8>)>,
    manual: Vec<(String, Vec<u8>)>,
    documents: Vec<(String, Vec<u8>)>,
    /// CycloneDX.
    pub(crate) bill: Vec<u8>,
}

impl<'a> Contents<'a> {
    pub(crate) fn new(
        built: &'a Built,
        pages: &Path,
        components: &[Component],
    ) -> Result<Self, Failure> {
        let mut documents = Vec::new();
        for name in ["README.md", "CHANGELOG.md", "LICENSE-APACHE", "LICENSE-MIT"] {
            documents.push((name.to_owned(), fs::read(name)?));
        }
        documents.push(("THIRD-PARTY.txt".to_owned(), metadata::licences(components)?.into()));
        Ok(Self {
            built,
            completions: files(&pages.join("completions"))?,
            manual: files(&pages.join("man"))?,
            documents,
            bill: metadata::bill(components, &built.target)?,
        })
    }

    pub(crate) fn licences(&self) -> impl Iterator<Item = (&str, &[u8])> {
        let of = |name: &str| name.starts_with("LICENSE") || name.starts_with("THIRD");
        let all = self.documents.iter().filter(move |(name, _)| of(name));
        all.map(|(name, text)| (name.as_str(), &text[..]))
    }

    /// In system packages.
    pub(crate) fn libraries(&self, place: PackageKind) -> String {
        match place {
            PackageKind::Tarball => "lib/roce".to_owned(),
            PackageKind::Debian => format!("usr/lib/{}-linux-gnu/roce", self.built.machine),
            PackageKind::Rpm => "usr/lib64/roce".to_owned(),
        }
    }

    pub(crate) fn place(&self, place: PackageKind) -> Vec<Entry> {
        let path = if place == PackageKind::Tarball { "roce" } else { "usr/bin/roce" };
        let what = What::Program(self.built.tool.clone());
        let mut entries = vec![Entry { path: path.to_owned(), what }];
        if place != PackageKind::Tarball {
            let libraries = self.libraries(place);
            let library = format!("{libraries}/libroce_abi.so");
            for name in ["libibverbs.so", "libibverbs.so.1", "librdmacm.so", "librdmacm.so.1"] {
                entries.push(link(format!("{library}.links/{name}"), format!("/{library}")));
            }
            for (name, text) in PKG_CONFIG {
                entries.push(file(format!("{library}.links/pkgconfig/{name}"), text));
            }
            entries.push(shared(library, self.built.library.clone()));
            let sockets = self.built.sockets.clone();
            entries.push(shared(format!("{libraries}/librspreload.so"), sockets));
        }
        entries.push(file(
            match place {
                PackageKind::Tarball => "roce-share.service",
                _ => "usr/lib/systemd/system/roce-share.service",
            },
            UNIT,
        ));
        for (name, text) in &self.completions {
            let directory = match (place, name.as_str()) {
                (PackageKind::Tarball, _) => "completions",
                (_, "roce") => "usr/share/bash-completion/completions",
                (PackageKind::Debian, "_roce") => "usr/share/zsh/vendor-completions",
                (_, "_roce") => "usr/share/zsh/site-functions",
                _ => "usr/share/fish/vendor_completions.d",
            };
            // Here the name must say which shell.
            let name =
                if place == PackageKind::Tarball && name == "roce" { "roce.bash" } else { name };
            entries.push(file(format!("{directory}/{name}"), text));
        }
        for (name, text) in &self.manual {
            match place {
                PackageKind::Tarball => entries.push(file(format!("man/man1/{name}"), text)),
                _ => entries.push(file(format!("usr/share/man/man1/{name}.gz"), &gzip(text))),
            }
        }
        for (name, text) in &self.documents {
            match place {
                PackageKind::Tarball => entries.push(file(name.clone(), text)),
                // Debian's policy
                PackageKind::Debian if name == "CHANGELOG.md" => {
                    entries.push(file("usr/share/doc/roce/changelog.gz", &gzip(text)));
                }
                _ => entries.push(file(format!("usr/share/doc/roce/{name}"), text)),
            }
        }
        entries
    }

    /// Replaces libibverbs for all programs.
    pub(crate) fn verbs(&self, place: PackageKind) -> Result<Vec<Entry>, Failure> {
        let libraries = self.libraries(place);
        let library = format!("{libraries}/verbs/libroce_verbs.so");
        let mut entries = vec![shared(library, soname::without(self.built.library.clone())?)];
        for name in ["libibverbs.so.1", "librdmacm.so.1"] {
            entries.push(link(format!("{libraries}/verbs/{name}"), "libroce_verbs.so".to_owned()));
        }
        let on = format!(
            "# programs find roce in the place of libibverbs and librdmacm\n/{libraries}/verbs\n"
        );
        let off = "# programs find libibverbs and librdmacm; roce is in `roce run`\n";
        entries.push(file(format!("{libraries}/verbs-on.conf"), on.as_bytes()));
        entries.push(file(format!("{libraries}/verbs-off.conf"), off.as_bytes()));
        for (name, text) in self.licences() {
            entries.push(file(format!("usr/share/doc/roce-verbs/{name}"), text));
        }
        Ok(entries)
    }
}

pub(crate) fn file(path: impl Into<String>, text: &[u8]) -> Entry {
    Entry { path: path.into(), what: What::File(text.to_vec()) }
}

fn shared(path: String, bytes: Vec<u8>) -> Entry {
    Entry { path, what: What::Library(bytes) }
}

fn link(path: String, target: String) -> Entry {
    Entry { path, what: What::Link(target) }
}

fn files(directory: &Path) -> Result<Vec<(String, Vec<u8>)>, Failure> {
    let mut files = Vec::new();
    for entry in fs::read_dir(directory)? {
        let entry = entry?;
        files.push((entry.file_name().to_string_lossy().into_owned(), fs::read(entry.path())?));
    }
    files.sort();
    Ok(files)
}

/// Without a time, for reproducible packages.
pub(crate) fn gzip(bytes: &[u8]) -> Vec<u8> {
    let mut encoder: GzEncoder<Vec<u8>> =
        GzBuilder::new().mtime(0).write(Vec::new(), Compression::best());
    encoder.write_all(bytes).and_then(|()| encoder.finish()).expect("memory takes it")
}

pub(crate) const SUMMARY: &str = "RDMA without hardware: a RoCEv2 adapter in user space";
pub(crate) const DESCRIPTION: &str = "The tool roce, and libraries in the place of libibverbs and librdmacm \
for the programs that it runs (roce run -- PROGRAM), without privilege and without a kernel module.";
pub(crate) const VERBS_SUMMARY: &str = "RDMA without hardware, for all programs of this host";
pub(crate) const VERBS_DESCRIPTION: &str = "Programs find roce in the place of libibverbs and librdmacm, whose files stay. \
The alternative roce-verbs turns that on and off.";
pub(crate) const MAINTAINER: &str = "the roce authors <roce-rs@users.noreply.github.com>";
pub(crate) const HOMEPAGE: &str = env!("CARGO_PKG_HOMEPAGE");

pub(crate) fn wrapped(text: &str) -> Vec<String> {
    let mut lines: Vec<String> = Vec::new();
    for word in text.split(' ') {
        match lines.last_mut() {
            Some(line) if line.len() + word.len() < 76 => {
                line.push(' ');
                line.push_str(word);
            }
            _ => lines.push(word.to_owned()),
        }
    }
    lines
}

pub(crate) fn script(text: &str, libraries: &str) -> String {
    text.replace("@LIBRARIES@", &format!("/{libraries}")).replace("@VERSION@", VERSION)
}
