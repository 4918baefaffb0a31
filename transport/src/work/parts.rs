//! Parts of completion queues; concurrency models (`models/`) replace this file.

pub(super) use core::sync::atomic::{
    AtomicBool, AtomicU8, AtomicU16, AtomicU32, AtomicU64, AtomicUsize, Ordering,
};

pub(super) use crossbeam_queue::ArrayQueue;
pub(super) use once_cell::race::OnceBox;
