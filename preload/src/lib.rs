//! `librspreload.so`: has programs that use TCP use rsockets instead, where both sides can.
//!
//! A program's socket is one of TCP as ever, and has an rsocket beside it until it is known which
//! of the two serves. A listener listens on both. A connect tries the rsocket first, and drops it
//! if no device leads to the peer, or the peer has no rsocket; then the socket is plain TCP. An
//! accepted or connected rsocket has an unconnected TCP socket beside it. The program knows that
//! socket's number, and the socket keeps the options that rsockets lack.
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
