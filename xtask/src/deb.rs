use std::{fs, path::Path};

use ar::{Builder, Header};
use chrono::DateTime;
use md5::Md5;

use crate::{
    Failure,
    build::{Built, VERSION},
    contents::{
        Contents, DESCRIPTION, Entry, HOMEPAGE, MAINTAINER, PackageKind, SUMMARY,
        VERBS_DESCRIPTION, VERBS_SUMMARY, What, file, gzip, script, wrapped,
    },
    sums::sum,
    tarball::archive,
};

const REVISION: &str = "1";
/// Accepted lintian findings.
const TOOL_FINDINGS: &[u8] = include_bytes!("../../packaging/debian/roce.lintian-overrides");
const VERBS_FINDINGS: &[u8] = include_bytes!("../../packaging/debian/roce-verbs.lintian-overrides");

pub(crate) fn write(out: &Path, built: &Built, contents: &Contents<'_>) -> Result<(), Failure> {
    let mut entries = contents.place(PackageKind::Debian);
    entries.extend(policy(built, "roce", TOOL_FINDINGS));
    package(out, built, "roce", (SUMMARY, DESCRIPTION), &entries, &[])?;

    let mut entries = contents.verbs(PackageKind::Debian)?;
    entries.extend(policy(built, "roce-verbs", VERBS_FINDINGS));
    let libraries = contents.libraries(PackageKind::Debian);
    let scripts = [
        ("postinst", include_str!("../../packaging/verbs/postinst")),
        ("prerm", include_str!("../../packaging/verbs/prerm")),
    ];
    let scripts = scripts.map(|(name, text)| (name, script(text, &libraries)));
    package(out, built, "roce-verbs", (VERBS_SUMMARY, VERBS_DESCRIPTION), &entries, &scripts)
}

fn package(
    out: &Path,
    built: &Built,
    name: &str,
    (summary, description): (&str, &str),
    entries: &[Entry],
    scripts: &[(&str, String)],
) -> Result<(), Failure> {
    let architecture = if built.machine == "aarch64" { "arm64" } else { "amd64" };
    let (major, minor) = built.glibc;
    let size: usize = entries.iter().map(|entry| bytes(entry).len()).sum();
    let control = format!(
        "Package: {name}\nVersion: {VERSION}-{REVISION}\nArchitecture: {architecture}\n\
         Maintainer: {MAINTAINER}\nInstalled-Size: {}\nDepends: libc6 (>= {major}.{minor})\n\
         Section: net\nPriority: optional\nHomepage: {HOMEPAGE}\nDescription: {summary}\n {}\n",
        size.div_ceil(1024),
        wrapped(description).join("\n ")
    );
    let mut inside =
        vec![file("./control", control.as_bytes()), file("./md5sums", md5sums(entries).as_bytes())];
    inside.extend(scripts.iter().map(|(name, text)| Entry {
        path: format!("./{name}"),
        what: What::Program(text.clone().into_bytes()),
    }));
    let control = archive("", &inside, built.time)?;
    let data = archive("./", entries, built.time)?;
    let mut package = Builder::new(Vec::new());
    for (name, bytes) in
        [("debian-binary", &b"2.0\n"[..]), ("control.tar.gz", &control), ("data.tar.gz", &data)]
    {
        let mut header = Header::new(name.into(), bytes.len() as u64);
        header.set_mode(0o100_644);
        package.append(&header, bytes)?;
    }
    let path = out.join(format!("{name}_{VERSION}-{REVISION}_{architecture}.deb"));
    Ok(fs::write(path, package.into_inner()?)?)
}

/// For `dpkg --verify` and `debsums`.
fn md5sums(entries: &[Entry]) -> String {
    let files = entries.iter().filter(|entry| !matches!(entry.what, What::Link(_)));
    files.map(|entry| format!("{}  {}\n", sum::<Md5>(bytes(entry)), entry.path)).collect()
}

fn policy(built: &Built, package: &str, tolerated: &[u8]) -> [Entry; 3] {
    let date = DateTime::from_timestamp(built.time.into(), 0).unwrap_or_default().to_rfc2822();
    let changes = format!(
        "{package} ({VERSION}-{REVISION}) unstable; urgency=medium\n\n  * Version {VERSION}; see CHANGELOG.md in \
         {HOMEPAGE}.\n\n -- {MAINTAINER}  {date}\n"
    );
    let copyright = include_str!("../../packaging/debian/copyright.in");
    let copyright = copyright.replace("@HOMEPAGE@", HOMEPAGE);
    let path = format!("usr/share/doc/{package}/changelog.Debian.gz");
    let overrides = format!("usr/share/lintian/overrides/{package}");
    [
        file(format!("usr/share/doc/{package}/copyright"), copyright.as_bytes()),
        file(path, &gzip(changes.as_bytes())),
        file(overrides, tolerated),
    ]
}

fn bytes(entry: &Entry) -> &[u8] {
    match &entry.what {
        What::File(bytes) | What::Program(bytes) | What::Library(bytes) => bytes,
        What::Link(_) => &[],
    }
}
