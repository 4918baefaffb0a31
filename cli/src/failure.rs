use std::error::Error;

/// One line that says what to do.
pub(crate) type Failure = Box<dyn Error>;
