use std::{collections::BTreeSet, fs, path::Path};

use tar::{Builder, EntryType, Header};

use crate::{
    Failure,
    build::{Built, VERSION},
    contents::{Entry, What, gzip},
};

pub(crate) fn write(out: &Path, built: &Built, entries: &[Entry]) -> Result<String, Failure> {
    let directory = format!("roce-{VERSION}-{}-linux", built.machine);
    let name = format!("{directory}.tar.gz");
    fs::write(out.join(&name), archive(&format!("{directory}/"), entries, built.time)?)?;
    Ok(name)
}

/// Entries after their directories, owned by root.
pub(crate) fn archive(prefix: &str, entries: &[Entry], time: u32) -> Result<Vec<u8>, Failure> {
    let header = |kind, mode, size| header(kind, mode, size, time);
    let mut archive = Builder::new(Vec::new());
    let mut directories = BTreeSet::new();
    for entry in entries {
        let path = format!("{prefix}{}", entry.path);
        let parents: Vec<_> = Path::new(&path).ancestors().skip(1).collect();
        for parent in parents.into_iter().rev().filter_map(Path::to_str) {
            if !parent.is_empty() && parent != "." && directories.insert(parent.to_owned()) {
                let mut header = header(EntryType::Directory, 0o755, 0);
                archive.append_data(&mut header, format!("{parent}/"), &[][..])?;
            }
        }
        match &entry.what {
            What::File(bytes) | What::Program(bytes) | What::Library(bytes) => {
                let mode = if matches!(entry.what, What::Program(_)) { 0o755 } else { 0o644 };
                let mut header = header(EntryType::Regular, mode, bytes.len());
                archive.append_data(&mut header, &path, &bytes[..])?;
            }
            What::Link(target) => {
                archive.append_link(&mut header(EntryType::Symlink, 0o777, 0), &path, target)?;
            }
        }
    }
    Ok(gzip(&archive.into_inner()?))
}

fn header(kind: EntryType, mode: u32, size: usize, time: u32) -> Header {
    let mut header = Header::new_gnu();
    header.set_entry_type(kind);
    header.set_mode(mode);
    header.set_size(size as u64);
    header.set_mtime(time.into());
    header
}
