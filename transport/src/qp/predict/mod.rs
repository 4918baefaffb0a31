//! Header prediction: a fast path for the packets that established connections nearly always have
//! next.
//!
//! Read first: V. Jacobson, "4BSD Header Prediction" (1990). The fast path matches the general one
//! and changes nothing before it commits: an adapter without prediction sends the same bytes.

mod receive;
mod send;
