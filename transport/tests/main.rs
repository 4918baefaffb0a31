//! The transport in virtual time, as its users see it.

mod common;
mod connect;
mod golden;
mod objects;
mod pair;
mod properties;
mod swarm;
