//! `println!` panics without a reader, as in `roce devinfo | head -1`; these macros end the command
//! as SIGPIPE would. SIGPIPE stays ignored: the library's sockets report errors.

use std::{
    fmt::Arguments,
    io::{self, ErrorKind, Write},
    process,
};

/// After SIGPIPE, in a shell.
const BROKEN_PIPE: i32 = 128 + 13;

/// `println!` that ends the command on failure.
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
    // nowhere to report a failure
    let _ = writeln!(io::stderr().lock(), "{line}");
}
