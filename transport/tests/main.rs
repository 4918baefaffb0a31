//! The transport in virtual time.

mod common;
mod connect;
mod golden;
mod objects;
mod pair;
mod properties;
mod swarm;
