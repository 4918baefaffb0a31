//! Header prediction: what an established connection nearly always sends and receives next takes a
//! short way, everything else the general one.
//!
//! Read first: V. Jacobson, "4BSD Header Prediction" (1990). The short way does what the general
//! one does with the same packet, and changes nothing before it knows that it can: an adapter
//! without prediction sends the same bytes.

mod receive;
mod send;
