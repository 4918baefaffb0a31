//! librdmacm's rsockets on [`roce_rsocket`]. Waits are here, where cancellation leaks nothing.

mod connect;
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
mod table;
mod wait;
