//! `librspreload.so`: runs TCP programs over rsockets where both sides can.
//!
//! A program's socket stays TCP, beside an rsocket, until one of the two is chosen. A listener
//! listens on both. A connect tries the rsocket first; without a device to the peer or an rsocket
//! there, the socket is plain TCP. An accepted or connected rsocket keeps an unconnected TCP
//! socket: the program knows its number, and it stores the options that rsockets lack.
//!
//! The functions wrap those of the C library, and pass other descriptors on. They are `unsafe`
//! likewise: they trust the program's pointers.

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
