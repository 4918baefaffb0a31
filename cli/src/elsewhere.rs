//! The tool on systems other than Linux, where there are no devices.

use std::{
    ffi::OsString,
    fs::File,
    io::{self, BufWriter},
    path::Path,
};

use roce_capture::CaptureWriter;

use crate::failure::Failure;

/// A capture into a file.
pub(crate) type Capture = CaptureWriter<BufWriter<File>>;

/// Starts a capture in a new file, or in one that is overwritten.
pub(crate) fn create_capture(path: &Path) -> io::Result<Capture> {
    CaptureWriter::new(BufWriter::new(File::create(path)?))
}

/// The commands of Linux, and words that are no commands.
pub(crate) fn refuse(words: &[OsString]) -> Result<(), Failure> {
    let command = words.first().map(|word| word.to_string_lossy()).unwrap_or_default();
    Err(format!(
        "{command:?} is not available here: devices need Linux; demo, \
         explain and playground work"
    )
    .into())
}

/// Waits for a line on a terminal.
#[derive(Debug)]
pub(crate) struct Keys(());

impl Keys {
    /// Fails if there is no terminal to wait on.
    pub(crate) fn new() -> Result<Self, Failure> {
        match io::IsTerminal::is_terminal(&io::stdin()) {
            true => Ok(Self(())),
            false => {
                Err("--step waits for lines, and standard input is not a terminal: omit --step"
                    .into())
            }
        }
    }

    /// Waits for a line; one with q, and the end of the input, end the program.
    pub(crate) fn wait(&self) -> Result<(), Failure> {
        let mut line = String::new();
        let count = io::stdin().read_line(&mut line)?;
        if count == 0 || line.trim() == "q" {
            std::process::exit(0);
        }
        Ok(())
    }
}
