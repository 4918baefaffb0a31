//! Optional hooks around C calls: injected faults, and checks.

pub(crate) mod check;
pub(crate) mod fault;
mod switch;

pub(crate) use switch::are_on;
