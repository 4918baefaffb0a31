use std::{
    collections::BTreeMap,
    ffi::OsString,
    fs::{self, File},
    io::{self, Read},
    sync::mpsc::{self, RecvTimeoutError},
    thread,
    time::Instant,
};

use rustix::fs::{FallocateFlags, fallocate};
use tempfile::TempDir;

use crate::{
    explain::{
        growing::{Growing, LOOK, MOST, SHARE},
        report::Filter,
    },
    ladder::{Ladder, Tone},
    output::errln,
};

/// Draws captures of a temporary directory on standard error.
pub(super) struct Live {
    directory: TempDir,
    ladder: Ladder,
    captures: BTreeMap<OsString, Capture>,
    /// Drawn last.
    last: Option<OsString>,
}

struct Capture {
    file: File,
    growing: Growing,
    full: bool,
}

impl Live {
    pub(super) fn new() -> io::Result<Self> {
        let directory = tempfile::Builder::new().prefix("roce-ladder-").tempdir()?;
        let ladder = Ladder::on(&io::stderr());
        Ok(Self { directory, ladder, captures: BTreeMap::new(), last: None })
    }

    /// `ROCE_PCAP`.
    pub(super) fn pattern(&self) -> OsString {
        self.directory.path().join("%d of process %p").into()
    }

    /// Returns the end of the drawing.
    pub(super) fn start(mut self) -> impl FnOnce() {
        let (stop, stopped) = mpsc::channel::<()>();
        let thread = thread::spawn(move || {
            let mut pause = LOOK;
            while stopped.recv_timeout(pause) == Err(RecvTimeoutError::Timeout) {
                let began = Instant::now();
                self.look();
                pause = LOOK.max(began.elapsed() * SHARE);
            }
            self.look();
            self.conclude();
        });
        move || {
            drop(stop);
            // A panic is on standard error.
            let _ = thread.join();
        }
    }

    fn look(&mut self) {
        for entry in fs::read_dir(&self.directory).into_iter().flatten().flatten() {
            let name = entry.file_name();
            if self.captures.contains_key(&name) {
                continue;
            }
            if let Ok(file) = File::options().read(true).write(true).open(entry.path()) {
                let capture = Capture { file, growing: Growing::default(), full: false };
                self.captures.insert(name, capture);
            }
        }
        for (name, capture) in &mut self.captures {
            let was_full = capture.full;
            if capture.read() {
                if self.last.as_ref() != Some(name) {
                    capture.growing.leave();
                }
                let title = format!("{}: ", name.display());
                let lines = capture.growing.draw(&self.ladder, &Filter::default(), &title);
                if !lines.is_empty() {
                    self.last = Some(name.clone());
                }
                lines.iter().for_each(|line| errln!("{line}"));
            }
            if capture.full && !was_full {
                errln!(
                    "{}: {} MiB of packets are drawn, the limit of --ladder; `roce run --pcap \
                     FILE` keeps all",
                    name.display(),
                    MOST >> 20
                );
            }
        }
    }

    fn conclude(&self) {
        let filter = Filter::default();
        for (name, capture) in &self.captures {
            if let Some(lines) = capture.growing.conclusion(&self.ladder, &filter) {
                errln!("");
                let title = self.ladder.prose(&name.display().to_string(), Tone::Strong);
                errln!("{}", title.concat());
                lines.iter().for_each(|line| errln!("{line}"));
            }
        }
    }
}

impl Capture {
    /// Reads new bytes and frees their disk space. `false`: none.
    fn read(&mut self) -> bool {
        let before = self.growing.bytes.len();
        if !self.full {
            let left = MOST.saturating_sub(before) as u64;
            // The next poll retries.
            let _ = (&self.file).take(left).read_to_end(&mut self.growing.bytes);
            self.full = self.growing.bytes.len() >= MOST;
        }
        let length = self.file.metadata().map_or(0, |metadata| metadata.len());
        let done = if self.full { length } else { self.growing.bytes.len() as u64 };
        if done > 0 {
            // If unsupported, the file stays until the program has ended.
            let flags = FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE;
            let _ = fallocate(&self.file, flags, 0, done);
        }
        self.growing.bytes.len() > before
    }
}
