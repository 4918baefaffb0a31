//! Call counts in a file (`ROCE_CALLS`) that outlives any process, for `roce run --fail-each`.

use std::{
    fs::OpenOptions,
    io,
    mem::ManuallyDrop,
    os::unix::fs::OpenOptionsExt,
    path::Path,
    process, slice,
    sync::{
        OnceLock,
        atomic::{AtomicU32, Ordering},
    },
};

use memmap2::MmapRaw;
use roce_provider::{
    environment::{self, CALLS},
    faults::CallId,
    report,
};

/// A word per call, and one for injected failures.
const WORDS: usize = CallId::COUNT + 1;

static COUNTS: OnceLock<&[AtomicU32]> = OnceLock::new();

pub(super) fn begin() {
    let Some(directory) = environment::value(CALLS) else { return };
    match map(Path::new(&directory)) {
        Ok(counts) => drop(COUNTS.set(counts)),
        Err(error) => report::line(format_args!("{CALLS}: calls are not counted: {error}")),
    }
}

/// Maps this process's file; a forked child shares it.
fn map(directory: &Path) -> io::Result<&'static [AtomicU32]> {
    let path = directory.join(process::id().to_string());
    let file = OpenOptions::new()
        .read(true)
        .write(true)
        .create(true)
        .truncate(false)
        .mode(0o600)
        .open(path)?;
    file.set_len((WORDS * size_of::<u32>()) as u64)?;
    let map = ManuallyDrop::new(MmapRaw::map_raw(&file)?);
    // SAFETY: `WORDS` words stay mapped; all writers use atomics. Only the directory's user could
    // truncate the file.
    Ok(unsafe { slice::from_raw_parts(map.as_ptr().cast(), WORDS) })
}

pub(super) fn count(call: CallId, fails: bool) {
    let Some(counts) = COUNTS.get() else { return };
    counts[call.number()].fetch_add(1, Ordering::Relaxed);
    if fails {
        counts[CallId::COUNT].fetch_add(1, Ordering::Relaxed);
    }
}
