//! Error of a play.

use std::error::Error;

/// One line that says what is wrong; or a viewer's own reason to end.
pub type Failure = Box<dyn Error>;
