//! `librspreload.so`: runs TCP programs over rsockets where both sides can.
//!
//! A socket has a TCP socket and an rsocket until one is chosen. Listeners use both. A connect
//! tries the rsocket first, then plain TCP. Beside a connected rsocket, an unconnected TCP socket
//! keeps the program's number, and options that rsockets lack.
//!
//! All functions are `unsafe`, like the C library's: they trust the program's pointers.

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
