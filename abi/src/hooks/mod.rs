//! Fault injection and checks around C calls.

pub(crate) mod check;
pub(crate) mod fault;
mod switch;

pub(crate) use switch::are_on;
