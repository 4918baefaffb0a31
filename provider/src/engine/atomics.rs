//! Atomics. The models of concurrency (`models/`) have another file in the place of this one.

pub(super) use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64};
