//! Flows: which raw packet queue pairs get a received frame (`ibv_create_flow`).
//!
//! Read first: ibv_create_flow(3), the kernel's `include/rdma/ib_verbs.h`. Pure functions of
//! frames; [`Flow::membership`] has their needs of the interface.

mod attr;
mod fields;
mod filter;
mod table;
#[cfg(test)]
mod tests;

pub use attr::{FlowAttr, FlowKind, FlowSpec, FlowSpecError, Membership};
pub use filter::{EthFilter, Ipv4Filter, Ipv6Filter, PortFilter};
pub use table::{Copies, FlowId, FlowTable};
