use std::error::Error;

/// One line that says what is wrong, or a viewer's reason to stop.
pub type Failure = Box<dyn Error>;
