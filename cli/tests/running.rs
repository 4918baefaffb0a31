use std::{
    io::{BufRead, BufReader},
    process::{Child, Command, Stdio},
};

/// Killed when dropped.
pub(crate) struct Running(pub(crate) Child);

impl Running {
    /// With its first line.
    pub(crate) fn start(command: &mut Command) -> (Self, String) {
        let mut running = Self(command.stdout(Stdio::piped()).spawn().unwrap());
        let mut line = String::new();
        BufReader::new(running.0.stdout.take().unwrap()).read_line(&mut line).unwrap();
        (running, line)
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}
