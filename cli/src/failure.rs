use std::error::Error;

/// One line that says what to do.
pub(crate) type Failure = Box<dyn Error>;

/// Returns this text as a failure.
macro_rules! fail {
    ($($text:tt)*) => { return Err(format!($($text)*).into()) };
}

pub(crate) use fail;
