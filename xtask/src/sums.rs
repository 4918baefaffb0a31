use std::{fs, path::Path};

use sha2::{Digest, Sha256};

use crate::Failure;

pub(crate) const SUMS: &str = "SHA256SUMS";

/// For `sha256sum --check`.
pub(crate) fn write(out: &Path) -> Result<(), Failure> {
    let mut paths: Vec<_> =
        fs::read_dir(out)?.map(|entry| Ok(entry?.path())).collect::<std::io::Result<_>>()?;
    paths.sort();
    let mut text = String::new();
    for path in &paths {
        let name = path.file_name().unwrap_or_default().to_string_lossy();
        text += &format!("{}  {name}\n", sum::<Sha256>(&fs::read(path)?));
        println!("{}", path.display());
    }
    Ok(fs::write(out.join(SUMS), text)?)
}

pub(crate) fn sum<D: Digest>(bytes: &[u8]) -> String {
    D::digest(bytes).iter().map(|byte| format!("{byte:02x}")).collect()
}
