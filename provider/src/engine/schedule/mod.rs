//! Schedule: which thread serves, how long packets are corked, and whether a thread spins or
//! sleeps.
//!
//! Plain values without clock, atomics or system calls: tests run in virtual time, `models/` with
//! threads in every order. Reasons and numbers are in [`times`].

pub(super) mod backoff;
pub(super) mod cork;
pub(super) mod duty;
pub(super) mod spin;
pub(super) mod times;
