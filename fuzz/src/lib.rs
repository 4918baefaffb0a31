//! Fuzz targets of roce: one module each, the body a plain function of bytes.
//!
//! A body panics when an invariant breaks. It runs under libFuzzer (`fuzz_targets/`), and on its
//! corpus under `cargo test` (`tests/replay.rs`).
//!
//! * [`parse`]: one packet.
//! * [`packets`]: packets, commands and time for an adapter with queue pairs in every state.
//! * [`faults`]: a plan of faults, and datagrams.
//! * [`explain`]: a capture file.
//! * [`ancillary`]: ancillary data.
//! * [`frames`]: Ethernet frames and time for a host.
//! * [`flows`]: a flow in C's layout.
//! * [`share`]: clients of the service that shares addresses among users.
//! * [`shm`]: a process that shares memory or an address with a device.
//! * [`mad`]: CM messages for an adapter.
//! * [`capture`]: datagrams for a capture.
//! * [`verbs`]: two adapters, every verb, and packets between them.

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
