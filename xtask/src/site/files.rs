use std::{
    fs,
    path::{Path, PathBuf},
};

use crate::Failure;

/// Files below a folder, in order.
pub(crate) fn files(folder: &Path) -> Result<Vec<PathBuf>, Failure> {
    let (mut files, mut open) = (Vec::new(), vec![folder.to_owned()]);
    while let Some(folder) = open.pop() {
        for entry in fs::read_dir(folder)? {
            let path = entry?.path();
            if path.is_dir() {
                open.push(path);
            } else {
                files.push(path);
            }
        }
    }
    files.sort();
    Ok(files)
}
