//! Optional hooks around calls of C: rules by which they fail, and checks of programs.

pub(crate) mod check;
pub(crate) mod fault;
mod switch;

pub(crate) use switch::are_on;
