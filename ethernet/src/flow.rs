//! Flows: which queue pairs of raw packets a received frame is for (`ibv_create_flow`).
//!
//! What to read first: ibv_create_flow(3), and the kernel's `include/rdma/ib_verbs.h`. Functions of
//! frames and values; who needs what of an interface is told by [`Flow::membership`].

mod attr;
mod fields;
mod filter;
mod table;
#[cfg(test)]
mod tests;

pub use attr::{FlowAttr, FlowKind, FlowSpec, FlowSpecError, Membership};
pub use filter::{EthFilter, Ipv4Filter, Ipv6Filter, PortFilter};
pub use table::{Copies, FlowId, FlowTable};
