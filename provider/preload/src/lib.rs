//! `librspreload.so`: has programs that use TCP use rsockets instead, where both sides can.
//!
//! A program's socket is one of TCP as ever, and has an rsocket beside it until it is known which
//! of the two serves. A listener listens on both. Who connects tries the rsocket first, and drops
//! it when there is no device towards the peer, or no rsocket there; then the socket is plain TCP,
//! and none of this matters any more. An accepted or connected rsocket has a TCP socket that is not
//! connected beside it, whose number the program knows, and which keeps the options that rsockets
//! have none of.
//!
//! The functions here stand in front of those of the C library, and pass on what is not about such
//! sockets. They are `unsafe` as those are: they take pointers from programs, and pass them on.

#![cfg_attr(not(test), deny(clippy::print_stdout, clippy::print_stderr))]
#![allow(
    unsafe_op_in_unsafe_fn,
    missing_docs,
    reason = "one contract for all: what the C library demands; and its names"
)]

mod connect;
mod descriptor;
mod epoll;
mod fork;
mod function;
mod next;
mod option;
mod poll;
mod rdma;
mod table;
mod transfer;
mod watched;
