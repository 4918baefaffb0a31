//! Python wheel: the tool as a script, and `python -m roce`.

use std::{
    fs::{self, File},
    io::Write,
    path::Path,
};

use base64::prelude::{BASE64_URL_SAFE_NO_PAD, Engine};
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
        let text = fs::read(Path::new("packaging/python").join(name))?;
        files.push((format!("roce/{name}"), 0o644, text));
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
        let sum = BASE64_URL_SAFE_NO_PAD.encode(Sha256::digest(bytes));
        record += &format!("{path},sha256={sum},{}\n", bytes.len());
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
