//! The InfiniBand transport of RoCEv2 as a deterministic, sans-IO core.
//!
//! Nothing here opens a socket, reads a clock, starts a thread or draws entropy. An
//! [`Adapter`](adapter::Adapter) is a function of datagrams, verbs commands and time: the same seed
//! and the same calls give the same packets. Every network fault is therefore a unit test in
//! virtual time.
//!
//! Names are those of the InfiniBand Architecture Specification, volume 1 (chapter 9, "Transport
//! layer"; chapters 10 and 11, the verbs) and of its annex A17 (RoCEv2). Read [`adapter`] first,
//! then [`qp`], then [`wire`]. An adapter's record ([`trace`]) has its decisions and their reasons.

#![no_std]
#![forbid(unsafe_code)]

extern crate alloc;
#[cfg(test)]
extern crate std;

pub mod adapter;
pub mod addr;
pub mod cm;
pub mod congestion;
pub mod event;
pub mod explain;
mod gids;
mod hash;
pub mod ids;
pub mod mem;
mod pkeys;
pub mod psn;
pub mod qp;
pub mod share;
pub mod time;
pub mod trace;
pub mod wire;
pub mod work;
