//! Flows: raw packet queue pairs that get a received frame (`ibv_create_flow`).
//!
//! Sources: ibv_create_flow(3), the kernel's `include/rdma/ib_verbs.h`.

mod attr;
mod fields;
mod filter;
mod table;
#[cfg(test)]
mod tests;

pub use attr::{FlowAttr, FlowKind, FlowSpec, FlowSpecError, Membership};
pub use filter::{EthFilter, Ipv4Filter, Ipv6Filter, PortFilter};
pub use table::{Copies, FlowId, FlowTable};
