//! Reason why the program was not started.

/// The command line or the environment is wrong.
const REFUSED: u8 = 2;
/// The program cannot be executed.
pub(super) const NOT_EXECUTABLE: u8 = 126;
/// There is no such program.
pub(super) const NOT_FOUND: u8 = 127;

pub(super) struct Refusal {
    /// Exit status of the command.
    pub(super) status: u8,
    pub(super) line: String,
}

impl Refusal {
    pub(super) fn new(line: impl Into<String>) -> Self {
        Self { status: REFUSED, line: line.into() }
    }
}
