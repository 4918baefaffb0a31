//! `models/` replaces this file.

pub(super) use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64};
