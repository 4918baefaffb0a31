//! Fuzz targets of roce: one module a target, its body a plain function of bytes.
//!
//! A body panics when an invariant is broken. It is independent of the fuzzing engine: the same
//! function runs under libFuzzer (`fuzz_targets/`) and replays its corpus under `cargo test`
//! (`tests/replay.rs`).
//!
//! * [`parse`]: bytes as one packet.
//! * [`packets`]: bytes as a script of packets, commands and time for an adapter with queue pairs
//!   in every state.
//! * [`faults`]: text as a plan of faults, and datagrams that meet them.
//! * [`explain`]: bytes as a capture file.
//! * [`ancillary`]: bytes as the ancillary data of a received message.
//! * [`frames`]: bytes as a script of Ethernet frames and time for a host of its own.
//! * [`flows`]: bytes as the attributes of a flow and its specs, as a C program has them in memory.
//! * [`share`]: bytes as a program for clients of the service that several users share addresses
//!   by.
//! * [`shm`]: bytes as a program for a process that shares memory or an address with a device.
//! * [`mad`]: bytes as messages of connection management, and as a script for an adapter that gets
//!   them.
//! * [`capture`]: bytes as datagrams for a capture.
//! * [`verbs`]: bytes as a program for two adapters, with every verb and packets between them.

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
