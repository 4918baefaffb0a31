pub(crate) mod address;
pub(crate) mod event;
pub(crate) mod flow;
pub(crate) mod mtu;
mod number;
pub(crate) mod qp;
pub(crate) mod rights;
pub(crate) mod wc;
pub(crate) mod wr;
