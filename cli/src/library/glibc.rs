//! Checks a program's glibc version, as the dynamic linker would name only a missing symbol.

use std::{
    collections::BTreeSet,
    ffi::OsStr,
    fs::{self, File},
    os::unix::ffi::OsStrExt,
    path::{Path, PathBuf},
};

use object::{
    Endianness, elf,
    read::{
        ReadCache, Result,
        elf::{FileHeader, ProgramHeader},
    },
};

const GLIBC: &str = "libc.so.6";

type Header = elf::FileHeader64<Endianness>;
type Data = ReadCache<File>;

/// Reason why the dynamic linker cannot load the library.
pub(crate) fn unfit(program: &Path, library: &Path) -> Option<String> {
    let interpreter = interpreter(program)?;
    let name = interpreter.file_name().unwrap_or_default().as_bytes();
    if name.starts_with(b"ld-musl") {
        return Some(
            "is linked with musl, and the library needs glibc; run it on a system with glibc"
                .into(),
        );
    }
    // glibc's dynamic linker and library share a directory.
    let glibc = fs::canonicalize(&interpreter).ok()?.with_file_name(GLIBC);
    let (needed, found) = (read(library, needed)?, read(&glibc, defined)?);
    let (_, missing) = needed.difference(&found).last()?;
    Some(format!(
        "runs with {}, which lacks {missing}, and the library {} needs it; install the packages of \
         a release, or build roce on a host with this glibc",
        glibc.display(),
        library.display()
    ))
}

/// `None`: no 64-bit ELF file, or a damaged file.
fn read<T>(path: &Path, what: impl FnOnce(&Header, Endianness, &Data) -> Result<T>) -> Option<T> {
    let data = Data::new(File::open(path).ok()?);
    let header = Header::parse(&data).ok()?;
    what(header, header.endian().ok()?, &data).ok()
}

fn interpreter(program: &Path) -> Option<PathBuf> {
    let read = |header: &Header, endian: Endianness, data: &Data| {
        for segment in header.program_headers(endian, data)? {
            if let Some(path) = segment.interpreter(endian, data)? {
                return Ok(Some(Path::new(OsStr::from_bytes(path)).to_owned()));
            }
        }
        Ok(None)
    };
    self::read(program, read).flatten()
}

fn version(name: &[u8]) -> Option<Version> {
    let text = str::from_utf8(name).ok()?;
    let numbers = text.strip_prefix("GLIBC_")?.split('.').map(|part| part.parse().ok());
    Some((numbers.collect::<Option<_>>()?, text.to_owned()))
}

/// Numbers and name.
type Version = (Vec<u32>, String);

fn needed(header: &Header, endian: Endianness, data: &Data) -> Result<BTreeSet<Version>> {
    let sections = header.sections(endian, data)?;
    let mut versions = BTreeSet::new();
    let Some((mut files, link)) = sections.gnu_verneed(endian, data)? else { return Ok(versions) };
    let strings = sections.strings(endian, data, link)?;
    while let Some((file, mut names)) = files.next()? {
        if file.file(endian, strings)? != GLIBC.as_bytes() {
            continue;
        }
        while let Some(name) = names.next()? {
            versions.extend(version(name.name(endian, strings)?));
        }
    }
    Ok(versions)
}

fn defined(header: &Header, endian: Endianness, data: &Data) -> Result<BTreeSet<Version>> {
    let sections = header.sections(endian, data)?;
    let mut versions = BTreeSet::new();
    let Some((mut all, link)) = sections.gnu_verdef(endian, data)? else { return Ok(versions) };
    let strings = sections.strings(endian, data, link)?;
    while let Some((_, mut names)) = all.next()? {
        // the rest are parents' names
        if let Some(name) = names.next()? {
            versions.extend(version(name.name(endian, strings)?));
        }
    }
    Ok(versions)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn versions_are_ordered_by_their_numbers() {
        let [old, new] = ["GLIBC_2.9", "GLIBC_2.28"].map(|name| version(name.as_bytes()).unwrap());
        assert!(old < new);
        assert!(version(b"GLIBC_PRIVATE").is_none() && version(b"GCC_3.0").is_none());
    }

    #[test]
    fn what_runs_here_is_fit_for_this() {
        let own = std::env::current_exe().unwrap();
        assert_eq!(unfit(&own, &own), None);
        if cfg!(target_env = "gnu") {
            assert!(!read(&own, needed).unwrap().is_empty());
            assert!(interpreter(&own).unwrap().is_absolute());
        }
        assert_eq!(unfit(Path::new("/etc/passwd"), &own), None);
    }
}
