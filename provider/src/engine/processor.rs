//! Yields and spinning; `models/` replaces this file.

pub(super) use std::{hint, thread};
