use std::fmt::Display;

const REFUSED: u8 = 2;
pub(super) const NOT_EXECUTABLE: u8 = 126;
pub(super) const NOT_FOUND: u8 = 127;

pub(super) struct Refusal {
    pub(super) status: u8,
    pub(super) line: String,
}

impl<E: Display> From<E> for Refusal {
    fn from(error: E) -> Self {
        Self { status: REFUSED, line: error.to_string() }
    }
}
