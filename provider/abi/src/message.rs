//! Messages to the user.

/// Prints a message to the standard error output, in one line.
pub(crate) fn print(text: &str) {
    eprintln!("roce: {text}");
}
