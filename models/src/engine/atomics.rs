//! Atomics whose orders are explored.

pub(super) use crate::atomic::{AtomicBool, AtomicU32, AtomicU64};
