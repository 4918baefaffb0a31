//! Standard error: perhaps closed, a stuck pipe, or a terminal.

#![allow(unsafe_code, reason = "atexit has no safe interface")]

use std::{
    env,
    io::{self, IsTerminal},
    sync::{
        Once,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};

use rustix::{
    event::{PollFd, PollFlags, Timespec, poll},
    io::Errno,
};

use crate::{signals::without_sigpipe, sync::Mutex};

/// Longest wait for a reader.
const PATIENCE: Duration = Duration::from_millis(100);
/// Bytes that a writable pipe takes without blocking (`PIPE_BUF`).
const PART: usize = 4096;

/// Texts do not mix.
static WRITING: Mutex<()> = Mutex::new(());
/// Set once nobody reads.
static QUIET: AtomicBool = AtomicBool::new(false);

pub(super) fn has_colors() -> bool {
    let is_set = |name| env::var_os(name).is_some_and(|value| !value.is_empty());
    io::stderr().is_terminal()
        && !is_set("NO_COLOR")
        && env::var_os("TERM").is_none_or(|term| term != "dumb")
}

/// Writes a text, unless the reader is stuck or gone.
pub fn write(text: &str) {
    let _writing = WRITING.lock();
    if !QUIET.load(Ordering::Relaxed) && without_sigpipe(|| write_all(text.as_bytes())).is_err() {
        QUIET.store(true, Ordering::Relaxed);
    }
}

/// Fails if nobody reads. Text not taken in time is lost.
fn write_all(mut bytes: &[u8]) -> rustix::io::Result<()> {
    let stderr = rustix::stdio::stderr();
    while !bytes.is_empty() {
        let mut ready = [PollFd::new(&stderr, PollFlags::OUT)];
        let limit = Timespec::try_from(PATIENCE).map_err(|_| Errno::INVAL)?;
        match poll(&mut ready, Some(&limit)) {
            Ok(0) => return Ok(()), // the reader is stuck
            Ok(_) if ready[0].revents().contains(PollFlags::NVAL) => return Err(Errno::BADF),
            Ok(_) => {}
            Err(Errno::INTR) => continue,
            Err(error) => return Err(error),
        }
        match rustix::io::write(stderr, &bytes[..bytes.len().min(PART)]) {
            Ok(0) => return Ok(()),
            Ok(written) => bytes = &bytes[written..],
            Err(Errno::INTR | Errno::AGAIN) => {}
            Err(error) => return Err(error),
        }
    }
    Ok(())
}

pub(crate) fn at_exit(run: extern "C" fn()) {
    static ONCE: Once = Once::new();
    // SAFETY: the function lives as long as this library
    ONCE.call_once(|| unsafe {
        libc::atexit(run);
    });
}
