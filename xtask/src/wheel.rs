//! Python wheel: the tool as a script, and `python -m roce`.

use std::{
    fs::{self, File},
    io::Write,
    path::Path,
};

use sha2::{Digest, Sha256};
use zip::{CompressionMethod, DateTime, ZipWriter, write::SimpleFileOptions};

use crate::{
    Failure,
    build::{Built, VERSION},
    contents::{Contents, HOMEPAGE, SUMMARY},
};

pub(crate) fn write(out: &Path, built: &Built, contents: &Contents<'_>) -> Result<(), Failure> {
    let (major, minor) = built.glibc;
    // the oldest manylinux that pip knows for this tag
    let tag = format!("py3-none-manylinux_{major}_{}_{}", minor.max(17), built.machine);
    let info = format!("roce-{VERSION}.dist-info");
    let metadata = format!(
        "Metadata-Version: 2.1\nName: roce\nVersion: {VERSION}\nSummary: {SUMMARY}\nHome-page: {HOMEPAGE}\n\
         License: MIT OR Apache-2.0\nRequires-Python: >=3.8\nDescription-Content-Type: text/markdown\n\n{}",
        fs::read_to_string("packaging/python/README.md")?
    );
    let wheel = format!(
        "Wheel-Version: 1.0\nGenerator: cargo xtask dist\nRoot-Is-Purelib: false\nTag: {tag}\n"
    );
    let mut files: Vec<(String, u32, Vec<u8>)> = Vec::new();
    for name in ["__init__.py", "__main__.py"] {
        files.push((
            format!("roce/{name}"),
            0o644,
            fs::read(Path::new("packaging/python").join(name))?,
        ));
    }
    files.push((format!("roce-{VERSION}.data/scripts/roce"), 0o755, built.tool.clone()));
    for (name, text) in contents.licences() {
        files.push((format!("{info}/licenses/{name}"), 0o644, text.to_vec()));
    }
    files.push((format!("{info}/sboms/roce.cdx.json"), 0o644, contents.bill.clone()));
    files.push((format!("{info}/METADATA"), 0o644, metadata.into()));
    files.push((format!("{info}/WHEEL"), 0o644, wheel.into()));
    let mut record = String::new();
    for (path, _, bytes) in &files {
        record += &format!("{path},sha256={},{}\n", base64(&Sha256::digest(bytes)), bytes.len());
    }
    record += &format!("{info}/RECORD,,\n");
    files.push((format!("{info}/RECORD"), 0o644, record.into()));

    let mut archive = ZipWriter::new(File::create(out.join(format!("roce-{VERSION}-{tag}.whl")))?);
    for (path, mode, bytes) in files {
        // the format's first time, for reproducible packages
        let options = SimpleFileOptions::default()
            .compression_method(CompressionMethod::Deflated)
            .last_modified_time(DateTime::default())
            .unix_permissions(mode);
        archive.start_file(path, options)?;
        archive.write_all(&bytes)?;
    }
    archive.finish()?;
    Ok(())
}

/// URL-safe, without padding.
fn base64(bytes: &[u8]) -> String {
    const ALPHABET: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_";
    let mut text = String::new();
    for group in bytes.chunks(3) {
        let word = group.iter().fold(0u32, |word, byte| word << 8 | u32::from(*byte));
        let word = word << (8 * (3 - group.len()));
        for at in 0..=group.len() {
            text.push(char::from(ALPHABET[(word >> (18 - 6 * at) & 63) as usize]));
        }
    }
    text
}

#[cfg(test)]
mod tests {
    use super::base64;

    #[test]
    fn sums_are_written_as_in_addresses() {
        for (bytes, text) in
            [("", ""), ("f", "Zg"), ("fo", "Zm8"), ("foo", "Zm9v"), ("foob", "Zm9vYg")]
        {
            assert_eq!(base64(bytes.as_bytes()), text);
        }
        assert_eq!(base64(&[0xFB, 0xFF]), "-_8");
    }
}
