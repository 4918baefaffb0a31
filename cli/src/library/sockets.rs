//! The library that has TCP go over rsockets.

use std::{
    os::unix::ffi::OsStrExt,
    path::{Path, PathBuf},
};

use super::{find::check, links::SOCKETS};

/// The one beside the library that takes the place of libibverbs and librdmacm.
pub(crate) fn sockets(library: &Path) -> Result<PathBuf, String> {
    let path = library.with_file_name(SOCKETS);
    let found = check(&path).map_err(|problem| {
        format!(
            "--sockets: {} {problem}; `cargo build --release -p roce-preload` makes it, and \
             --library names the library beside it",
            path.display()
        )
    })?;
    // the dynamic linker takes either for the end of a name
    if found.as_os_str().as_bytes().iter().any(|byte| b": ".contains(byte)) {
        return Err(format!(
            "--sockets: {} has a colon or a space in its name, which no list of libraries can have",
            found.display()
        ));
    }
    Ok(found)
}
