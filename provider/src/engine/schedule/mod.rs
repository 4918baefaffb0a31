//! Schedule: which thread serves, how long packets are corked, and whether a thread spins or
//! sleeps.
//!
//! Plain values without clock, atomics or system calls: callers pass observations with times and
//! act on results. The engine does so live, tests in virtual time, `models/` with threads in every
//! order.
//!
//! * [`duty`]: duty of the background thread until its next check;
//! * [`cork`]: corking of requests and acknowledgements;
//! * [`spin`]: adaptive spinning;
//! * [`backoff`]: exponential backoff;
//! * [`times`]: times and counts, with reasons.

pub(super) mod backoff;
pub(super) mod cork;
pub(super) mod duty;
pub(super) mod spin;
pub(super) mod times;
