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

#[derive(Debug)]
pub(crate) struct Keys(());

impl Keys {
    pub(crate) fn new() -> Result<Self, Failure> {
        match io::IsTerminal::is_terminal(&io::stdin()) {
            true => Ok(Self(())),
            false => Err("--step needs a terminal on standard input; omit it".into()),
        }
    }

    pub(crate) fn wait(&self) -> Result<(), Failure> {
        let mut line = String::new();
        let count = io::stdin().read_line(&mut line)?;
        if count == 0 || line.trim() == "q" {
            std::process::exit(0);
        }
        Ok(())
    }
}
