use std::{
    os::unix::ffi::OsStrExt,
    path::{Path, PathBuf},
};

use super::{find::check, links::SOCKETS};

pub(crate) fn sockets(library: &Path) -> Result<PathBuf, String> {
    let path = library.with_file_name(SOCKETS);
    let found = check(&path).map_err(|problem| {
        format!(
            "--sockets: {} {problem}; `cargo build --release -p roce-preload` makes it, and \
             --library names the library beside it",
            path.display()
        )
    })?;
    // separators of the dynamic linker's lists
    if found.as_os_str().as_bytes().iter().any(|byte| b": ".contains(byte)) {
        return Err(format!(
            "--sockets: the path {} has a colon or a space, which LD_PRELOAD cannot express; move \
             it",
            found.display()
        ));
    }
    Ok(found)
}
