//! The schedule: which thread receives and sends, what may wait and until when, and whether a
//! thread spins or sleeps.
//!
//! Everything here is a plain value: no clock, no atomics, no calls of the system. Callers say what
//! they see, and at what time, and act on what they are told. The engine's other files do that;
//! tests do it in virtual time, and the models of concurrency (`models/`) with threads in every
//! order.
//!
//! * [`duty`]: what the background thread does until its next look;
//! * [`cork`]: what the program posts, and what acknowledges what it finds, waits for more
//!   (corking);
//! * [`spin`]: a thread that finds nothing looks again, or sleeps (adaptive spinning);
//! * [`backoff`]: times that double;
//! * [`times`]: every time and count, with its reason.

pub(super) mod backoff;
pub(super) mod cork;
pub(super) mod duty;
pub(super) mod spin;
pub(super) mod times;
