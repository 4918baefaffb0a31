//! The tool without devices, on other systems than Linux.

use std::{
    ffi::OsString,
    fs::File,
    io::{self, BufWriter},
    path::Path,
};

use roce_capture::CaptureWriter;

use crate::failure::Failure;

pub(crate) type Capture = CaptureWriter<BufWriter<File>>;

pub(crate) fn create_capture(path: &Path) -> io::Result<Capture> {
    CaptureWriter::new(BufWriter::new(File::create(path)?))
}

pub(crate) fn refuse(words: &[OsString]) -> Result<(), Failure> {
    let command = words.first().map(|word| word.to_string_lossy()).unwrap_or_default();
    Err(format!("{command:?} needs Linux; demo, explain and playground run here").into())
}

pub(crate) mod keys {
    use std::{io, process};

    use crate::failure::Failure;

    /// Waits for a line. q and the end of the input end the program.
    pub(crate) fn wait() -> Result<(), Failure> {
        let mut line = String::new();
        let count = io::stdin().read_line(&mut line)?;
        if count == 0 || line.trim() == "q" {
            process::exit(0);
        }
        Ok(())
    }
}
