//! Homebrew formula for Linux.

use std::{fs, path::Path};

use sha2::Sha256;

use crate::{
    Failure,
    build::VERSION,
    contents::{HOMEPAGE, SUMMARY},
    sums::sum,
};

/// `tarballs`: names by processor.
pub(crate) fn write(out: &Path, tarballs: &[(&'static str, String)]) -> Result<(), Failure> {
    let mut downloads = String::new();
    for (machine, name) in tarballs {
        let when = if *machine == "aarch64" { "on_arm" } else { "on_intel" };
        let sum = sum::<Sha256>(&fs::read(out.join(name))?);
        downloads += &format!(
            "  {when} do\n    url \"{HOMEPAGE}/releases/download/v{VERSION}/{name}\"\n    sha256 \"{sum}\"\n  end\n\n"
        );
    }
    let text = include_str!("../../packaging/homebrew/roce.rb.in")
        .replace("@SUMMARY@", SUMMARY)
        .replace("@HOMEPAGE@", HOMEPAGE)
        .replace("@VERSION@", VERSION)
        .replace("@DOWNLOADS@\n", &downloads);
    Ok(fs::write(out.join("roce.rb"), text)?)
}
