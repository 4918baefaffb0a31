//! rsockets: the calls of librdmacm that are named after those on sockets, on top of
//! [`roce_provider::rsocket`], whose calls never wait. Waiting is here, where a thread can be
//! cancelled without leaving anything behind.

mod connect;
mod datagram;
mod descriptor;
pub(crate) mod exit;
mod instance;
mod iomap;
mod iovec;
mod option;
mod poll;
mod receive;
mod select;
mod send;
mod shut;
mod table;
mod wait;
