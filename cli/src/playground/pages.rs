use std::{collections::BTreeMap, fs, io, path::Path};

/// A larger directory is not the page's.
const MOST: u64 = 32 << 20;
const DEEPEST: usize = 4;

/// Files by path, read once: requests reach nothing else on the host.
#[derive(Debug)]
pub(super) struct Pages {
    files: BTreeMap<String, Vec<u8>>,
    bytes: u64,
}

impl Pages {
    pub(super) fn read(directory: &Path) -> io::Result<Self> {
        let mut pages = Self { files: BTreeMap::new(), bytes: 0 };
        pages.add(directory, "", 0)?;
        if pages.files.contains_key("index.html") {
            return Ok(pages);
        }
        Err(io::Error::new(io::ErrorKind::NotFound, "index.html is missing"))
    }

    fn add(&mut self, directory: &Path, prefix: &str, depth: usize) -> io::Result<()> {
        for entry in fs::read_dir(directory)? {
            let path = entry?.path();
            let Some(name) = path.file_name().and_then(|name| name.to_str()) else { continue };
            let name = format!("{prefix}{name}");
            let about = fs::symlink_metadata(&path)?;
            if about.is_dir() && depth < DEEPEST {
                self.add(&path, &format!("{name}/"), depth + 1)?;
            } else if about.is_file() {
                self.bytes += about.len();
                if self.bytes > MOST {
                    let message = "more than 32 MB, so no page of the playground";
                    return Err(io::Error::new(io::ErrorKind::InvalidInput, message));
                }
                self.files.insert(name, fs::read(&path)?);
            }
        }
        Ok(())
    }

    pub(super) fn find(&self, path: &str) -> Option<(&'static str, &[u8])> {
        let path = path.split(['?', '#']).next()?.strip_prefix('/')?;
        let name = if path.is_empty() { "index.html" } else { path };
        self.files.get(name).map(|bytes| (kind(name), &bytes[..]))
    }
}

fn kind(name: &str) -> &'static str {
    match name.rsplit('.').next() {
        Some("html") => "text/html; charset=utf-8",
        Some("js") => "text/javascript; charset=utf-8",
        Some("css") => "text/css; charset=utf-8",
        Some("wasm") => "application/wasm",
        Some("svg") => "image/svg+xml",
        _ => "application/octet-stream",
    }
}
