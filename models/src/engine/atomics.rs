//! Atomics with explored orders.

pub(super) use crate::atomic::{AtomicBool, AtomicU32, AtomicU64};
