//! Fuzz targets of roce: one module each, the body a plain function of bytes.
//!
//! A body panics when an invariant breaks. The same function runs under libFuzzer (`fuzz_targets/`)
//! and on its corpus under `cargo test` (`tests/replay.rs`).
//!
//! * [`parse`]: one packet.
//! * [`packets`]: a script of packets, commands and time for an adapter with queue pairs in every
//!   state.
//! * [`faults`]: a plan of faults, and datagrams that meet it.
//! * [`explain`]: a capture file.
//! * [`ancillary`]: ancillary data of a received message.
//! * [`frames`]: a script of Ethernet frames and time for a host.
//! * [`flows`]: a flow's attributes and specs in C's layout.
//! * [`share`]: a program for clients of the service that shares addresses among users.
//! * [`shm`]: a program for a process that shares memory or an address with a device.
//! * [`mad`]: CM messages, and a script for an adapter that receives them.
//! * [`capture`]: datagrams for a capture.
//! * [`verbs`]: a program for two adapters, with every verb and packets between them.

pub mod ancillary;
pub mod capture;
pub mod explain;
pub mod faults;
pub mod flows;
pub mod frames;
mod input;
pub mod mad;
pub mod packets;
pub mod parse;
pub mod share;
pub mod shm;
pub mod verbs;
