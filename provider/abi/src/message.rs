//! Messages to the user.

use roce_provider::stderr;

/// Prints a message to the standard error output, in one line.
pub(crate) fn print(text: &str) {
    stderr::write(&format!("roce: {text}\n"));
}
