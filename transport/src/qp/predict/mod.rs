//! Header prediction: a fast path for usual packets of established connections.
//!
//! Read first: V. Jacobson, "4BSD Header Prediction" (1990). It matches the general path and
//! changes nothing before it commits: without prediction the same bytes leave.

mod receive;
mod send;
