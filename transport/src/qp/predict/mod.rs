//! Header prediction: a fast path for usual packets of established connections (V. Jacobson, "4BSD
//! Header Prediction", 1990).
//!
//! Without prediction the same bytes leave. Nothing changes before prediction commits.

mod receive;
mod send;
