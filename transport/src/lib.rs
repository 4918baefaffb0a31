//! The InfiniBand transport of RoCEv2 as a deterministic, sans-IO core.
//!
//! No socket, clock, thread or entropy: an [`Adapter`](adapter::Adapter) is a function of seed,
//! datagrams, commands and time.
//!
//! Names are those of the InfiniBand Architecture Specification, volume 1, and annex A17 (RoCEv2).
//! Read [`adapter`], [`qp`], [`wire`], in this order.

#![no_std]
#![forbid(unsafe_code)]

extern crate alloc;
#[cfg(test)]
extern crate std;

pub mod adapter;
pub mod addr;
mod bounded;
pub mod cm;
pub mod congestion;
mod defaults;
pub mod event;
pub mod explain;
mod gids;
mod hash;
pub mod ids;
pub mod mem;
mod named;
mod pkeys;
pub mod psn;
pub mod qp;
pub mod share;
pub mod time;
pub mod trace;
pub mod wire;
pub mod work;
