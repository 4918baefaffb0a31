//! Standard output and standard error of the tool.
//!
//! `println!` panics when the output has no reader any more, as in `roce devinfo | head -1`. These
//! end the command as SIGPIPE would, quietly. The signal itself stays ignored, as it is in every
//! Rust program: sockets of the library report a broken connection as an error.

use std::{
    fmt::Arguments,
    io::{self, ErrorKind, Write},
    process,
};

/// Exit status that a shell shows for a program that SIGPIPE ended.
const BROKEN_PIPE: i32 = 128 + 13;

/// `println!` that ends the command if the line cannot be written.
macro_rules! outln {
    ($($text:tt)*) => { $crate::output::write_out(format_args!($($text)*)) };
}

/// `eprintln!` that does not panic.
macro_rules! errln {
    ($($text:tt)*) => { $crate::output::write_err(format_args!($($text)*)) };
}

pub(crate) use {errln, outln};

pub(crate) fn write_out(line: Arguments<'_>) {
    if let Err(error) = writeln!(io::stdout().lock(), "{line}") {
        if error.kind() == ErrorKind::BrokenPipe {
            process::exit(BROKEN_PIPE);
        }
        errln!("roce: cannot write to standard output: {error}");
        process::exit(1);
    }
}

pub(crate) fn write_err(line: Arguments<'_>) {
    // there is no other place where a failure could be shown
    let _ = writeln!(io::stderr().lock(), "{line}");
}
