//! What completion queues are made of. The models of concurrency (`models/`) have others in the
//! place of this file, so that the code of the queues itself is what they try out.

pub(super) use core::sync::atomic::{
    AtomicBool, AtomicU8, AtomicU16, AtomicU32, AtomicU64, AtomicUsize, Ordering,
};

pub(super) use crossbeam_queue::ArrayQueue;
pub(super) use once_cell::race::OnceBox;
