//! The schedule: which thread receives and sends, what may wait and until when, and whether a
//! thread spins or sleeps.
//!
//! Everything here is a plain value: no clock, no atomics, no system calls. Callers pass
//! observations with their times, and act on the results. The engine's other files do that; tests
//! do it in virtual time, and the models of concurrency (`models/`) with threads in every order.
//!
//! * [`duty`]: what the background thread does until its next look;
//! * [`cork`]: requests, and acknowledgements of messages that the program finds, wait for more;
//! * [`spin`]: a thread that finds nothing looks again, or sleeps (adaptive spinning);
//! * [`backoff`]: times that double;
//! * [`times`]: every time and count, with its reason.

pub(super) mod backoff;
pub(super) mod cork;
pub(super) mod duty;
pub(super) mod spin;
pub(super) mod times;
